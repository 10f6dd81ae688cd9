//! Environment variables, `--set` and flags as values of keys.

use clap::CommandFactory;
use engine::did_you_mean;
use toml::Value;

use super::layers::Layers;
use super::origin::Origin;
use crate::args::{Cli, ModelArgs, ServeArgs};

/// Prefix of our environment variables.
const PREFIX: &str = "ASYNCLANE_";

/// Prefixes of variables that Kubernetes sets for a Service called `asynclane`.
const OF_A_SERVICE: [&str; 2] = ["ASYNCLANE_SERVICE_", "ASYNCLANE_PORT"];

/// The argument of `serve` that is no flag.
const MODEL: &str = "MODEL";

/// An argument's id, the key that it sets, and the value.
type Given = (&'static str, &'static str, Value);

impl Layers {
    /// Adds the environment over the present values, `--set` over that, and flags over both.
    pub(super) fn overrides(&mut self, args: &ModelArgs, serve: Option<&ServeArgs>) {
        let mut given = of_model(args);
        given.extend(serve.map(of_serve).unwrap_or_default());
        given.extend(serve.map(short).unwrap_or_default());
        let by_environment = |(id, ..): &Given| args.environment.contains(*id);
        let (variables, flags): (Vec<_>, Vec<_>) = given.into_iter().partition(by_environment);
        for (id, key, value) in variables {
            let name = format!("{PREFIX}{}", id.to_uppercase());
            self.put(key, value, Origin::Environment(name));
        }
        for text in &args.set {
            self.set(text);
        }
        for (id, key, value) in flags {
            let origin = match id {
                MODEL => Origin::Argument(MODEL),
                id => Origin::Flag(format!("--{}", id.replace('_', "-"))),
            };
            self.put(key, value, origin);
        }
    }

    /// Parses `engine.row_budget=256`; text needs no quotes.
    fn set(&mut self, text: &str) {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (key.trim(), value.trim());
        let Some(default) = self.default_of(key) else {
            let section = key.split_once('.').map(|(section, _)| section);
            let known = self.names(section).or_else(|| self.names(None));
            let known = known.unwrap_or_default().join(", ");
            let keys = self.keys();
            let hint = did_you_mean(key, keys.iter().map(String::as_str));
            let what = format!("expected KEY=VALUE with a key of {known}, found {text:?}{hint}");
            self.wrong("", what, Origin::Set);
            return;
        };
        let is_text = default.is_str();
        let read = format!("value = {value}").parse::<toml::Table>().ok();
        let read = read.and_then(|mut table| table.remove("value"));
        let value = match read {
            Some(read) if !is_text || read.is_str() => read,
            _ => Value::String(value.to_owned()),
        };
        self.put(key, value, Origin::Set);
    }
}

fn of_model(args: &ModelArgs) -> Vec<Given> {
    let cache = args.no_prefix_cache.then_some(Value::Boolean(false));
    let values = [
        ("model", "model.path", text(&args.model)),
        ("decoder", "model.decoder", text(&args.decoder)),
        ("filter", "model.filter", text(&args.filter)),
        ("lora", "model.lora", text(&args.lora)),
        (
            "prompt_blocks",
            "model.prompt_blocks",
            number(args.prompt_blocks),
        ),
        ("edits", "model.edits", text(&args.edits)),
        ("draft_model", "model.draft_model", text(&args.draft_model)),
        (
            "draft_decoder",
            "model.draft_decoder",
            text(&args.draft_decoder),
        ),
        ("dtype", "model.dtype", text(&args.dtype)),
        ("device", "model.device", text(&args.device)),
        ("backend", "model.backend", text(&args.backend)),
        (
            "expert_sharing",
            "model.expert_sharing",
            text(&args.expert_sharing),
        ),
        (
            "max_model_len",
            "model.max_model_len",
            number(args.max_model_len),
        ),
        ("kv_memory", "engine.kv_memory", text(&args.kv_memory)),
        ("kv_dtype", "engine.kv_dtype", text(&args.kv_dtype)),
        (
            "device_memory",
            "engine.device_memory",
            args.device_memory.map(Value::Float),
        ),
        ("row_budget", "engine.row_budget", number(args.row_budget)),
        (
            "long_quantum",
            "engine.long_quantum",
            number(args.long_quantum),
        ),
        (
            "prefill_chunk",
            "engine.prefill_chunk",
            number(args.prefill_chunk),
        ),
        (
            "max_running",
            "engine.max_running",
            number(args.max_running),
        ),
        ("no_prefix_cache", "engine.prefix_cache", cache),
    ];
    present(values)
}

/// The model as an argument, and the address of `--host` and `--port`.
fn short(args: &ServeArgs) -> Vec<Given> {
    let host = args.host.as_deref().unwrap_or("127.0.0.1");
    let port = args.port.unwrap_or(8000);
    let address = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let flag = if args.host.is_some() { "host" } else { "port" };
    let is_given = args.host.is_some() || args.port.is_some();
    let address = is_given.then_some(Value::String(address));
    present([
        (MODEL, "model.path", text(&args.name)),
        (flag, "server.listen", address),
    ])
}

fn of_serve(args: &ServeArgs) -> Vec<Given> {
    let values = [
        (
            "served_model_name",
            "model.served_name",
            text(&args.served_model_name),
        ),
        ("listen", "server.listen", text(&args.listen)),
        (
            "max_waiting",
            "engine.max_waiting",
            number(args.max_waiting),
        ),
        (
            "max_bytes_in_flight",
            "server.max_bytes_in_flight",
            number(args.max_bytes_in_flight),
        ),
        (
            "max_sequences",
            "server.max_sequences",
            number(args.max_sequences),
        ),
        (
            "max_request_tokens",
            "server.max_request_tokens",
            number(args.max_request_tokens),
        ),
        (
            "max_connections",
            "server.max_connections",
            number(args.max_connections),
        ),
        (
            "stall_after",
            "engine.stall_after",
            number(args.stall_after),
        ),
        (
            "step_timeout",
            "engine.step_timeout",
            number(args.step_timeout),
        ),
        (
            "drain_delay",
            "server.drain_delay",
            number(args.drain_delay),
        ),
        (
            "drain_timeout",
            "server.drain_timeout",
            number(args.drain_timeout),
        ),
        (
            "api_keys_file",
            "server.api_keys_file",
            text(&args.api_keys_file),
        ),
        ("log", "telemetry.log", text(&args.log)),
        ("log_format", "telemetry.log_format", text(&args.log_format)),
        (
            "otlp_endpoint",
            "telemetry.otlp_endpoint",
            text(&args.otlp_endpoint),
        ),
    ];
    present(values)
}

fn present<const N: usize>(values: [(&'static str, &'static str, Option<Value>); N]) -> Vec<Given> {
    let values = values.into_iter();
    values
        .filter_map(|(id, key, value)| Some((id, key, value?)))
        .collect()
}

fn text(value: &Option<String>) -> Option<Value> {
    value.clone().map(Value::String)
}

/// TOML's integers are signed; a larger value fits no key.
fn number(value: Option<impl Into<u64>>) -> Option<Value> {
    let value = i64::try_from(value?.into()).unwrap_or(i64::MAX);
    Some(Value::Integer(value))
}

/// Writes a warning for every environment variable with our prefix that no argument reads.
pub fn warn_of_unknown_variables() {
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let known = variables();
    for name in unread(names.iter().map(String::as_str)) {
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        say!("warning: unknown environment variable {name} ignored{hint}");
    }
}

/// Those of `names` that have the prefix of our environment variables and that no argument reads.
fn unread<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let known = variables();
    let is_strange = |name: &&str| {
        name.starts_with(PREFIX)
            && !known.iter().any(|known| known == name)
            && !OF_A_SERVICE.iter().any(|other| name.starts_with(other))
    };
    names.into_iter().filter(is_strange).collect()
}

/// The environment variables that the arguments of any command read.
pub fn variables() -> Vec<String> {
    let cli = Cli::command();
    let mut commands = vec![&cli];
    let mut found = Vec::new();
    while let Some(command) = commands.pop() {
        let names = command.get_arguments().filter_map(clap::Arg::get_env);
        found.extend(names.map(|name| name.to_string_lossy().into_owned()));
        commands.extend(command.get_subcommands());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_names_of_flags_and_variables_and_keys_exist() {
        let full = ModelArgs {
            model: Some(String::new()),
            decoder: Some(String::new()),
            filter: Some(String::new()),
            lora: Some(String::new()),
            prompt_blocks: Some(1),
            edits: Some(String::new()),
            dtype: Some(String::new()),
            device: Some(String::new()),
            backend: Some(String::new()),
            expert_sharing: Some(String::new()),
            max_model_len: Some(1),
            kv_memory: Some(String::new()),
            kv_dtype: Some(String::new()),
            device_memory: Some(0.5),
            row_budget: Some(1),
            long_quantum: Some(1),
            prefill_chunk: Some(1),
            no_prefix_cache: true,
            max_running: Some(1),
            ..ModelArgs::default()
        };
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        let layers = Layers::default();
        for (id, key, _) in of_model(&full) {
            let mut arguments = serve.get_arguments();
            let argument = arguments.find(|one| one.get_id() == id).unwrap();
            assert_eq!(argument.get_long(), Some(&*id.replace('_', "-")));
            let name = format!("{PREFIX}{}", id.to_uppercase());
            assert_eq!(argument.get_env().unwrap().to_str(), Some(&*name));
            assert!(layers.default_of(key).is_some(), "{key}");
        }
        assert_eq!(of_model(&full).len(), 19);
    }

    #[test]
    fn an_unknown_name_with_our_prefix_is_found() {
        let names = [
            "PATH",
            "ASYNCLANE_LISTEN",
            "ASYNCLANE_LISTENS",
            "ASYNCLANE_PORT",
            "ASYNCLANE_PORT_8000_TCP_ADDR",
            "ASYNCLANE_SERVICE_HOST",
        ];
        assert_eq!(unread(names), ["ASYNCLANE_LISTENS"]);
    }
}
