//! Tests of the public interface: checkpoints, parity, batch invariance, the demo checkpoint.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod blocks;
mod candle;
mod canvas;
mod canvas_dtypes;
mod checkpoint;
mod chunks;
mod common;
mod demo;
mod dflash;
mod draft_adapter;
mod executor;
mod f16;
mod families;
mod filter;
mod frequencies;
mod gguf;
mod gguf_families;
mod gguf_files;
mod invariance;
mod kv_dtypes;
mod lora;
mod masks;
mod mlx;
mod official;
mod padding;
mod parity;
mod quantized;
mod reference;
mod refusals;
mod survey;
mod visible;
