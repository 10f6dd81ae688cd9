//! `asynclane serve`: the HTTP server over an engine thread.

mod announce;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use server::{
    ApiKeys, AppState, Backend, DeviceBytes, KeyRing, Metrics, MetricsConfig, RequestLimits,
    SamplingDefaults, ServedModel, Settings, Timeouts,
};
use step::Attention;
use tokio::net::TcpListener;

use crate::args::ServeArgs;
use crate::config::{self, Config, LogFormat, UnknownFields};
use crate::console;
use crate::exit;
use crate::files;
use crate::load::{self, LoadedModel};
use crate::signals::Signals;
use crate::supervisor;
use crate::telemetry::{LogFilter, Telemetry};
use crate::trial;
use crate::watchdog::Watchdog;
use announce::announce;

/// Time for blocking work, and then for the engine thread, to end after the drain.
const END_TIME: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT, drains, and returns.
///
/// # Errors
/// A configuration, checkpoint or address that cannot be used; a model whose first forward pass fails.
pub fn run(args: &ServeArgs) -> Result<()> {
    run_with(args, |config| {
        let mut loaded = load::load(config)?;
        trial::run(&mut loaded, config)?;
        Ok(loaded)
    })
}

/// As [`run`], over what `load` returns.
///
/// # Errors
/// As [`run`], and the errors of `load`.
pub fn run_with(args: &ServeArgs, load: impl FnOnce(&Config) -> Result<LoadedModel>) -> Result<()> {
    let config = Config::resolve(&args.model, Some(args));
    let format = config.as_ref().map(|config| *config.telemetry.log_format);
    // A configuration that is refused is told in the format that was asked for.
    let is_json = match format {
        Ok(format) => format == LogFormat::Json,
        Err(_) => args.telemetry.log_format.as_deref() == Some("json"),
    };
    if is_json && !args.print_config {
        console::say_json();
    }
    config::warn_of_unknown_variables();
    if args.print_config {
        return config::show(&args.model, Some(args));
    }
    let config = config?;
    let keys = api_keys(&config, args)?;
    let telemetry = Telemetry::start(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener =
        runtime.block_on(TcpListener::bind(config.listen_address())).map_err(|error| {
            let advice = match error.kind() {
                std::io::ErrorKind::AddrInUse => "; --port chooses another, 0 a free one",
                _ => "",
            };
            let listen = &config.server.listen;
            exit::failure(exit::IO, format!("server.listen {listen}: {error}{advice}"))
        })?;
    let address = listener.local_addr()?;
    let mut settings = settings(&config, keys, address);
    settings.limits.max_connections = files::connections(settings.limits.max_connections);
    let state = AppState::new(settings);
    let reload = reloader(args, state.keys().clone(), telemetry.filter());
    let signals = Signals::listen(reload)?;
    // Probes answer while the model loads.
    let serving = runtime.spawn(server::serve(listener, state.clone(), signals.stopped()));
    let loaded = load(&config)?;
    announce(&loaded, &config, address, state.settings().keys.len());
    let thread = install(&state, loaded, &config)?;
    let backend = state.backend()?;
    telemetry.count(backend.metrics.spans());
    let limit = Duration::from_secs(config.engine.step_timeout);
    let watchdog = Watchdog::start(backend.engine.monitor(), limit)?;
    signals.serving();
    say!("ready on http://{address}");
    supervisor::ready(&address.to_string());
    runtime.block_on(serving)??;
    drop((watchdog, state));
    runtime.shutdown_timeout(END_TIME);
    join(thread);
    drop(telemetry);
    exit::bound();
    Ok(())
}

/// Waits for the engine thread, which ends after its present step. A step that takes longer ends with
/// the process: nobody waits for its result.
fn join(thread: std::thread::JoinHandle<()>) {
    let begun = Instant::now();
    while !thread.is_finished() {
        if begun.elapsed() >= END_TIME {
            tracing::warn!("the engine is still in a step, which ends with the process");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // A panic has been reported by its thread.
    let _ = thread.join();
}

/// The work of SIGHUP: reads the configuration and the key file again and takes the keys and the log
/// filter from them. Whatever cannot be read stays as it is.
fn reloader(
    args: &ServeArgs,
    ring: KeyRing,
    filter: LogFilter,
) -> impl Fn() + Send + Sync + 'static {
    let args = args.clone();
    move || {
        let read = || {
            let config = Config::resolve(&args.model, Some(&args))?;
            let keys = api_keys(&config, &args)?;
            anyhow::Ok((keys, config.telemetry.log.filter()))
        };
        match read() {
            // A server that checks keys must not be opened to everybody by a changed file.
            Ok((keys, _)) if keys.is_empty() != ring.get().is_empty() => {
                tracing::error!(
                    "SIGHUP: whether keys are needed is decided at the start; nothing changed"
                );
            }
            Ok((keys, log)) => {
                let count = keys.len();
                ring.replace(keys);
                let _ = filter.reload(log);
                tracing::info!(keys = count, "SIGHUP: API keys and log filter read again");
            }
            Err(error) => tracing::error!("SIGHUP: nothing changed: {error:#}"),
        }
    }
}

/// The keys of the file and of `--api-key`.
fn api_keys(config: &Config, args: &ServeArgs) -> Result<ApiKeys> {
    let path = config.server.api_keys_file.as_str();
    let keys = if path.is_empty() {
        ApiKeys::default()
    } else {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => exit::NO_INPUT,
                _ => exit::IO,
            };
            exit::failure(code, format!("server.api_keys_file {path}: {error}"))
        })?;
        let problem = |error| {
            let message = format!("server.api_keys_file {path}: {error}");
            exit::failure(exit::CONFIG, message)
        };
        ApiKeys::parse(&text).map_err(problem)?
    };
    let Some(key) = &args.api_key else {
        return Ok(keys);
    };
    if key.0.trim().is_empty() {
        let message = "--api-key: expected a key, found blanks only";
        return Err(exit::failure(exit::USAGE, message));
    }
    let is_argument = |argument: std::ffi::OsString| {
        let argument = argument.to_string_lossy();
        argument == "--api-key" || argument.starts_with("--api-key=")
    };
    if std::env::args_os().any(is_argument) {
        say!("warning: --api-key shows in the list of processes, prefer ASYNCLANE_API_KEY");
    }
    Ok(keys.with_key("argument", key.0.trim()))
}

/// Settings of the HTTP layer.
pub fn settings(config: &Config, keys: ApiKeys, address: SocketAddr) -> Settings {
    Settings {
        // Without API keys, a loopback server checks Host and Origin.
        local_only: keys.is_empty() && address.ip().to_canonical().is_loopback(),
        keys,
        playground: config.server.playground,
        reject_unknown_fields: *config.server.unknown_fields == UnknownFields::Reject,
        cors: config.server.cors,
        limits: RequestLimits {
            max_connections: config.server.limits.max_connections,
            max_body_bytes: config.server.limits.max_body_bytes,
            max_bytes_in_flight: config.server.limits.max_bytes_in_flight,
            max_sequences: config.server.limits.max_sequences,
            max_request_tokens: config.server.limits.max_request_tokens,
            ..RequestLimits::default()
        },
        timeouts: Timeouts {
            stall_after: Duration::from_secs(config.engine.stall_after),
            drain_delay: Duration::from_secs(config.server.drain_delay),
            drain_timeout: Duration::from_secs(config.server.drain_timeout),
            grammar: config.grammar_timeout(),
            ..Timeouts::default()
        },
    }
}

/// Starts the engine thread and hands it to the HTTP layer.
///
/// # Errors
/// No thread, a model that is already served.
pub fn install(
    state: &AppState,
    loaded: LoadedModel,
    config: &Config,
) -> Result<std::thread::JoinHandle<()>> {
    let spec = loaded.executor.spec();
    let metrics = Metrics::new(&MetricsConfig {
        model_name: loaded.name.clone(),
        backend: match loaded.hardware.is_cpu() {
            true => format!("cpu-{}", loaded.hardware.kernels.replace(" by ", "-")),
            false => format!("cuda-{}", loaded.info.formats.matrices.name()),
        },
        page_size: spec.page_size,
        pages: spec.pages,
        kv_dtype: loaded.info.formats.kv.name().to_owned(),
        row_budget: loaded.hardware.row_budget,
        device_memory: loaded.hardware.memory.map_or_else(DeviceBytes::default, |memory| {
            let model::DeviceMemory { weights, step, kv } = memory;
            DeviceBytes { weights, step, kv, graphs: Arc::clone(&loaded.hardware.graph_bytes) }
        }),
        vllm_aliases: config.server.vllm_metrics,
    });
    let engine_config = load::engine_config(config, &loaded);
    let model = served_model(&loaded, config)?;
    let drafter = loaded.draft.map(|draft| draft.drafter(&engine_config));
    let observer = metrics.observer();
    let (engine, thread) =
        engine::spawn_with_drafter(&engine_config, loaded.executor, drafter, observer)?;
    let backend = Backend { engine, tokenizer: loaded.tokenizer, model: Arc::new(model), metrics };
    let installed = state.install(backend);
    installed.map_err(|_| exit::failure(exit::ENGINE, "a model is served already"))?;
    Ok(thread)
}

fn served_model(loaded: &LoadedModel, config: &Config) -> Result<ServedModel> {
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(ServedModel {
        id: loaded.name.clone(),
        created,
        owner: "asynclane".to_owned(),
        is_demo: loaded.is_demo,
        parameters: loaded.info.parameters as u64,
        device: loaded.hardware.device.clone(),
        fingerprint: format!(
            "{}-{}-{}",
            env!("CARGO_PKG_VERSION"),
            if loaded.hardware.is_cpu() { "cpu" } else { "cuda" },
            loaded.info.formats.matrices.name()
        ),
        stop_tokens: loaded.stop_tokens.clone(),
        defaults: sampling(loaded),
        decoders: config.decoders(loaded.weights)?,
        formats: config.formats(),
    })
}

/// Sampling of a request that sets none: canvases of noise are sampled, masks take the most probable
/// token.
fn sampling(loaded: &LoadedModel) -> SamplingDefaults {
    match loaded.info.rows.attention {
        Attention::Canvas(_) => {
            SamplingDefaults { temperature: 1.0, ..SamplingDefaults::default() }
        }
        _ => SamplingDefaults::default(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn serve(arguments: &[&str]) -> ServeArgs {
        let cli = Cli::parse_from([&["asynclane", "serve"][..], arguments].concat());
        let Command::Serve(args) = cli.command else {
            panic!("not serve");
        };
        *args
    }

    fn keys(arguments: &[&str]) -> Result<ApiKeys> {
        let args = serve(arguments);
        api_keys(&Config::resolve(&args.model, Some(&args))?, &args)
    }

    #[test]
    fn keys_come_from_file_and_argument() {
        assert!(keys(&[]).unwrap().is_empty());
        let file = std::env::temp_dir().join(format!("asynclane-keys-{}", std::process::id()));
        std::fs::write(&file, "# team\nalice:one\n").unwrap();
        let path = file.to_str().unwrap();
        let both = keys(&["--api-keys-file", path, "--api-key", "two"]).unwrap();
        assert_eq!(both.name_of(b"one"), Some("alice"));
        assert_eq!(both.name_of(b"two"), Some("argument"));
        std::fs::write(&file, "# team\nalice\n").unwrap();
        let message = keys(&["--api-keys-file", path]).unwrap_err().to_string();
        assert!(message.contains(path) && message.contains("line 2: expected"), "{message}");
        std::fs::write(&file, "# nobody\n").unwrap();
        assert!(keys(&["--api-keys-file", path]).is_err());
        std::fs::remove_file(&file).unwrap();
        let message = keys(&["--api-keys-file", path]).unwrap_err().to_string();
        assert!(message.starts_with("server.api_keys_file"), "{message}");
        assert!(keys(&["--api-key", " "]).is_err());
    }

    #[test]
    fn only_a_loopback_server_without_keys_checks_host_and_origin() {
        let told = |listen: &str, keys: ApiKeys| {
            let args = serve(&[]);
            let config = Config::resolve(&args.model, Some(&args)).unwrap();
            settings(&config, keys, listen.parse().unwrap()).local_only
        };
        let key = || ApiKeys::default().with_key("team", "secret");
        for (listen, expected) in [
            ("127.0.0.1:8000", true),
            ("127.0.0.2:8000", true),
            ("[::1]:8000", true),
            ("0.0.0.0:8000", false),
            ("[::]:8000", false),
            ("192.0.2.1:8000", false),
        ] {
            assert_eq!(told(listen, ApiKeys::default()), expected, "{listen}");
            assert!(!told(listen, key()), "{listen}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        let args = serve(&["--api-key", "canary"]);
        assert!(!format!("{args:?}").contains("canary"));
    }
}
