//! Environment variables, `--set` and flags as values of keys.

use clap::CommandFactory;
use engine::did_you_mean;
use serde::Serialize;
use serde_json::Value as Json;
use toml::Value;

use super::layers::Layers;
use super::origin::Origin;
use crate::args::{AddressArgs, Cli, ModelArgs, ServeArgs};

/// Prefix of our environment variables.
const PREFIX: &str = "ASYNCLANE_";

/// Prefixes of variables that Kubernetes sets for a Service called `asynclane`.
const SERVICE_PREFIXES: [&str; 2] = ["ASYNCLANE_SERVICE_", "ASYNCLANE_PORT"];

/// The argument of `serve` that is no flag.
const MODEL: &str = "MODEL";

/// Arguments whose id is not the last part of their key.
const OTHER_KEYS: [(&str, &str); 4] = [
    ("model", "model.path"),
    (MODEL, "model.path"),
    ("served_model_name", "model.served_name"),
    ("no_prefix_cache", "engine.prefix_cache"),
];

/// The id of an argument, and its value.
type Argument = (String, Value);

impl Layers {
    /// Adds the environment over the present values, `--set` over that, and flags over both.
    pub(super) fn overrides(&mut self, args: &ModelArgs, serve: Option<&ServeArgs>) {
        let mut given = values(args);
        if let Some(serve) = serve {
            given.extend(values(serve));
            given.extend(serve.name.clone().map(|name| (MODEL.to_owned(), Value::String(name))));
        }
        let by_environment = |(id, _): &Argument| args.environment.contains(id);
        let (variables, flags): (Vec<_>, Vec<_>) = given.into_iter().partition(by_environment);
        for (id, value) in variables {
            let name = format!("{PREFIX}{}", id.to_uppercase());
            self.put_argument(&id, value, Origin::Environment(name));
        }
        for text in &args.set {
            self.set(text);
        }
        for (id, value) in flags {
            let origin = match &*id {
                MODEL => Origin::Argument(MODEL),
                id => Origin::Flag(format!("--{}", id.replace('_', "-"))),
            };
            self.put_argument(&id, value, origin);
        }
        if let Some((flag, address)) = serve.and_then(|serve| address(&serve.address)) {
            let flag = Origin::Flag(flag.to_owned());
            self.put("server.listen", Value::String(address), flag);
        }
    }

    /// Sets the key of the argument `id`.
    fn put_argument(&mut self, id: &str, value: Value, origin: Origin) {
        if let Some(key) = self.key_of(id) {
            self.put(&key, value, origin);
        }
    }

    /// The key that the argument `id` sets.
    fn key_of(&self, id: &str) -> Option<String> {
        let other = OTHER_KEYS.iter().find(|(other, _)| *other == id);
        let named = |key: &String| key.split_once('.').is_some_and(|(_, name)| name == id);
        match other {
            Some((_, key)) => Some((*key).to_owned()),
            None => self.keys().into_iter().find(named),
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

/// The arguments that were given, by id.
fn values(args: &impl Serialize) -> Vec<Argument> {
    let Ok(Json::Object(all)) = serde_json::to_value(args) else {
        return Vec::new();
    };
    let value = |(id, value): (String, Json)| {
        let value = match value {
            Json::String(text) => Value::String(text),
            Json::Bool(true) => Value::Boolean(!id.starts_with("no_")),
            Json::Number(number) if number.is_f64() => Value::Float(number.as_f64()?),
            // TOML's integers are signed; a larger value fits no key.
            Json::Number(number) => Value::Integer(number.as_i64().unwrap_or(i64::MAX)),
            _ => return None,
        };
        Some((id, value))
    };
    all.into_iter().filter_map(value).collect()
}

/// The address of `--host` and `--port`, and the flag that gives it.
fn address(args: &AddressArgs) -> Option<(&'static str, String)> {
    let flag = match (&args.host, args.port) {
        (Some(_), _) => "--host",
        (None, Some(_)) => "--port",
        (None, None) => return None,
    };
    let host = args.host.as_deref().unwrap_or("127.0.0.1");
    let port = args.port.unwrap_or(8000);
    let address = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    Some((flag, address))
}

/// Writes a warning for every environment variable with our prefix that no argument reads.
pub fn warn_of_unknown_variables() {
    let names: Vec<String> =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let known = variables();
    for name in unread(names.iter().map(String::as_str)) {
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        say!("warning: unknown environment variable {name} ignored{hint}");
    }
}

/// The variables among `names` that have this server's prefix and that no argument reads.
fn unread<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let known = variables();
    let is_strange = |name: &&str| {
        name.starts_with(PREFIX)
            && !known.iter().any(|known| known == name)
            && !SERVICE_PREFIXES.iter().any(|other| name.starts_with(other))
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
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        let layers = Layers::default();
        let mut keys = 0;
        for argument in serve.get_arguments() {
            let id = argument.get_id().as_str();
            let Some(name) = argument.get_env().filter(|_| !["config", "api_key"].contains(&id))
            else {
                continue;
            };
            assert_eq!(argument.get_long(), Some(&*id.replace('_', "-")));
            let expected = format!("{PREFIX}{}", id.to_uppercase());
            assert_eq!(name.to_str(), Some(&*expected));
            let key = layers.key_of(id).unwrap_or_else(|| panic!("{id} has no key"));
            assert!(layers.default_of(&key).is_some(), "{key}");
            keys += 1;
        }
        assert_eq!(keys, 40);
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
