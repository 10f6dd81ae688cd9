//! The first lines of a server.

use std::io::IsTerminal;
use std::net::SocketAddr;

use model::DeviceMemory;
use step::{Attention, ExecutorSpec};

use crate::config::{Config, LogFormat};
use crate::load::LoadedModel;
use crate::memory::size;
use crate::names::shown;

/// Logs what is served in one line, and the memory of a device.
fn log(loaded: &LoadedModel, config: &Config, address: SocketAddr, keys: usize) {
    let kv_bytes = kv_pages(loaded);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        model = loaded.name,
        family = loaded.info.family,
        parameters = loaded.info.parameters,
        device = loaded.hardware.device,
        kernels = loaded.hardware.kernels,
        threads = loaded.hardware.threads,
        context = loaded.max_model_len,
        kv = loaded.info.formats.kv.name(),
        kv_bytes,
        decoder = served_decoder(config, loaded),
        "model loaded"
    );
    if let Some(DeviceMemory { weights, step, kv }) = loaded.hardware.memory {
        tracing::info!(weights, step, kv, "bytes of the device's memory");
    }
    if keys == 0 && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "no API keys: everybody who can reach the address can use the server");
    }
}

/// Bytes of all KV pages.
fn kv_pages(loaded: &LoadedModel) -> u64 {
    let ExecutorSpec { page_size, pages, .. } = loaded.executor.spec();
    loaded.hardware.kv_position as u64 * u64::from(page_size) * u64::from(pages)
}

/// Prints the settings in effect, addresses and a first request.
pub(super) fn announce(loaded: &LoadedModel, config: &Config, address: SocketAddr, keys: usize) {
    log(loaded, config, address, keys);
    let is_text = *config.telemetry.log_format == LogFormat::Text;
    if !is_text || !std::io::stderr().is_terminal() {
        return;
    }
    let info = &loaded.info;
    let ExecutorSpec { page_size, pages, .. } = loaded.executor.spec();
    let bytes = kv_pages(loaded);
    say!("asynclane {}", env!("CARGO_PKG_VERSION"));
    say!("  model      {} ({}, {} parameters)", loaded.name, info.family, info.parameters);
    say!(
        "  device     {}, {}, {} threads",
        loaded.hardware.device,
        loaded.hardware.kernels,
        loaded.hardware.threads
    );
    if let Some(draft) = &loaded.draft {
        say!("  drafts     {} by {}", draft.name, draft.decoding.label);
    }
    if let Some(drafter) = info.rows.drafter {
        let (name, layers) = (&config.model.decoding.draft_model, drafter.layers);
        let name = shown(name);
        say!("  drafts     {name}, DFlash: {layers} layers, blocks of {}", drafter.block);
    }
    if let Some(memory) = &loaded.hardware.memory {
        let (weights, step) = (size(memory.weights), size(memory.step));
        say!("  memory     {weights} of weights, {step} for the largest step");
    }
    say!("  context    {} positions", loaded.max_model_len);
    say!(
        "  KV cache   {pages} pages of {page_size} slots in {}, {}",
        info.formats.kv.name(),
        size(bytes)
    );
    say!(
        "  batch      {} rows a step, {} sequences, {} waiting",
        loaded.hardware.row_budget,
        config.engine.max_running,
        config.engine.max_waiting
    );
    let settings = served_decoder(config, loaded);
    say!("  decoder    {settings}");
    say!("  prefix     {}", prefix_cache(loaded, config));
    match keys {
        0 => say!("  keys       none: everybody who can reach the address can use the server"),
        keys => say!("  keys       {keys} accepted, as authorization: Bearer KEY"),
    }
    if config.server.playground {
        say!("  playground http://{address}/");
    }
    say!("  metrics    http://{address}/metrics");
    let body = example(loaded);
    say!(
        "  try        curl -N http://{address}/v1/chat/completions \\\n               \
         -H 'content-type: application/json' -d '{body}'"
    );
}

/// The body of a first request.
fn example(loaded: &LoadedModel) -> serde_json::Value {
    // The demo model answers only the phrasings that it was trained on.
    let prompt = match loaded.is_demo {
        true => demo::EXAMPLES[0],
        false => "Hello",
    };
    serde_json::json!({
        "model": loaded.name,
        "stream": true,
        "messages": [{"role": "user", "content": prompt}],
    })
}

/// The sharing of K/V between requests.
fn prefix_cache(loaded: &LoadedModel, config: &Config) -> &'static str {
    match (loaded.info.rows.attention, config.engine.prefix_cache) {
        (Attention::Full, _) => {
            "not shared between requests: under full attention K/V depend on later tokens"
        }
        (Attention::BlocksAfterPrompt(_), _) => {
            "not shared between requests: the K/V of a prompt depend on all of it"
        }
        (_, true) => "shared by requests with equal prefixes",
        (_, false) => "not shared: engine.prefix_cache is off",
    }
}

/// The default decoder as `preset,key=value`.
fn served_decoder(config: &Config, loaded: &LoadedModel) -> String {
    let decoders = config.decoders(loaded.weights);
    decoders.map_or_else(
        |error| error.to_string(),
        |decoders| decoders.spec(&decoders.blank()).to_string(),
    )
}
