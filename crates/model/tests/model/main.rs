//! Tests of the public interface: checkpoints, parity, batch invariance, the demo checkpoint.

#[cfg(test)]
mod backends;
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod candle;
#[cfg(test)]
mod canvas;
#[cfg(test)]
mod canvas_dtypes;
#[cfg(test)]
mod checkpoint;
#[cfg(test)]
mod chunks;
#[cfg(test)]
mod common;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod executor;
#[cfg(test)]
mod families;
#[cfg(test)]
mod filter;
#[cfg(test)]
mod frequencies;
#[cfg(test)]
mod gguf;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod kv_dtypes;
#[cfg(test)]
mod lora;
#[cfg(test)]
mod official;
#[cfg(test)]
mod padding;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod survey;
#[cfg(test)]
mod visible;
