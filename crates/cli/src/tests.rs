//! This program parses every command line and setting in `deploy/` and the Dockerfile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Parser;
use clap::error::ErrorKind;
use serde_json::Value;

use crate::args::{Cli, Command, ModelArgs};
use crate::config::{Config, variables};
use crate::exit;

/// Path of the binary in the image.
const IN_IMAGE: &str = "/asynclane";
/// Variables of other programs that the manifests set.
const FOREIGN: [&str; 1] = ["HF_HOME"];
const DEPLOYMENT: &str = "deploy/kubernetes/deployment.yaml";
const UNIT: &str = "deploy/systemd/asynclane.service";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The document of a YAML file that has this kind.
fn object(path: &str, kind: &str) -> Value {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&read(path)).unwrap();
    let mut found = objects.into_iter().filter(|object| object["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("no {kind} in {path}"))
}

fn pod() -> Value {
    object(DEPLOYMENT, "Deployment")["spec"]["template"]["spec"].clone()
}

fn container() -> Value {
    pod()["containers"][0].clone()
}

/// The settings that the ConfigMap holds.
fn mounted_config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let map = object("deploy/kubernetes/config.yaml", "ConfigMap");
        let text = map["data"]["asynclane.toml"].as_str().unwrap();
        let name = format!("asynclane-map-{}.toml", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let args = ModelArgs { config: vec![file.clone()], ..ModelArgs::default() };
        let config = Config::resolve(&args, None);
        std::fs::remove_file(&file).unwrap();
        config.unwrap()
    })
}

/// The exec form behind an instruction of the Dockerfile.
fn instruction(name: &str) -> Vec<String> {
    let image = read("Dockerfile");
    let lines = image.lines().map(str::trim_start);
    let mut found = lines.filter_map(|line| line.strip_prefix(name));
    let list = found.find(|rest| rest.starts_with(" [")).expect("the exec form");
    serde_json::from_str(list).unwrap()
}

/// The listening address of a command line, or of the configuration files.
fn listens(arguments: &[String]) -> Option<String> {
    match Cli::try_parse_from(arguments).unwrap().command {
        Command::Serve(args) => args.address.listen,
        _ => panic!("not serve: {arguments:?}"),
    }
}

fn strings(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).unwrap()
}

#[test]
fn the_program_parses_the_command_of_the_image() {
    // The first CMD in the file is the health check's.
    let (entry, probe) = (instruction("ENTRYPOINT"), instruction("CMD"));
    assert_eq!(entry, [IN_IMAGE]);
    assert_eq!(probe[0], IN_IMAGE);
    assert!(matches!(Cli::try_parse_from(&probe).unwrap().command, Command::Inspect(_)));
    let image = read("Dockerfile");
    let last = image.lines().rfind(|line| line.starts_with("CMD ")).unwrap();
    let serve: Vec<String> = serde_json::from_str(&last["CMD ".len()..]).unwrap();
    let address = listens(&[entry, serve].concat());
    assert_eq!(address.as_deref(), Some("0.0.0.0:8000"));
}

#[test]
fn serve_takes_a_model_a_host_and_a_port() {
    let config = |arguments: &[&str]| {
        let arguments = [&["asynclane", "serve"], arguments].concat();
        let Command::Serve(args) = Cli::try_parse_from(&arguments).unwrap().command else {
            panic!("not serve: {arguments:?}");
        };
        crate::config::Config::resolve(&args.model, Some(&args)).unwrap()
    };
    assert_eq!(config(&["demo-wedlm"]).model.path, "demo-wedlm");
    let address = |arguments: &[&str]| config(arguments).listen_address();
    assert_eq!(address(&["--port", "9000"]), "127.0.0.1:9000");
    assert_eq!(address(&["--host", "0.0.0.0"]), "0.0.0.0:8000");
    assert_eq!(address(&["--host", "::1", "--port", "0"]), "[::1]:0");
    assert_eq!(address(&["--listen", "9001"]), "127.0.0.1:9001");
    assert_eq!(address(&["--listen", ":9002"]), "127.0.0.1:9002");
    assert_eq!(address(&["--listen", "0.0.0.0:9003"]), "0.0.0.0:9003");
    for both in [&["demo", "--model", "demo"][..], &["--port", "1", "--listen", "1"]] {
        let arguments = [&["asynclane", "serve"], both].concat();
        assert!(Cli::of(&arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn a_command_of_inspect_takes_a_model_in_front_or_behind() {
    let model = |line: &str| {
        let arguments = ["asynclane", "inspect"].into_iter().chain(line.split(' '));
        match Cli::of(arguments).map(|cli| cli.command) {
            Ok(Command::Inspect(args)) => Ok(args.named().weights.model),
            Ok(_) => panic!("not inspect"),
            Err(error) => Err(error.kind()),
        }
    };
    for line in [
        "./a",
        "model ./a",
        "capacity ./a --context 64",
        "logits ./a --tokens 1 --out x",
        "determinism ./a --requests 1",
        "capacity --model ./a",
        "./a capacity",
    ] {
        assert_eq!(model(line), Ok(Some("./a".to_owned())), "{line}");
    }
    assert_eq!(model("capacity"), Ok(None));
    assert_eq!(model("model ./a --model ./b"), Err(ErrorKind::ArgumentConflict));
}

/// As vLLM's `--max-model-len -1`.
#[test]
fn a_length_of_minus_one_is_the_models_own() {
    let parsed = |length| {
        let arguments = ["asynclane", "serve", "--max-model-len", length];
        match Cli::try_parse_from(arguments).map(|cli| cli.command) {
            Ok(Command::Serve(args)) => Ok(args.model.weights.max_model_len),
            Ok(_) => panic!("not serve"),
            Err(error) => Err(error.to_string()),
        }
    };
    assert_eq!(parsed("-1"), Ok(Some(0)));
    assert_eq!(parsed("512"), Ok(Some(512)));
    for wrong in ["-2", "4k"] {
        let said = parsed(wrong).unwrap_err();
        let expected = format!("invalid value '{wrong}' for '--max-model-len");
        assert!(said.contains(&expected) && said.contains("or -1 for the model's own"), "{said}");
    }
}

#[test]
fn the_program_parses_the_command_of_the_pod() {
    let container = container();
    let arguments = [vec![IN_IMAGE.to_owned()], strings(&container["args"])].concat();
    assert_eq!(listens(&arguments), None);
    let file = arguments.last().unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap();
    let folder = |name: &str| {
        let mut mounts = mounts.iter().filter(|mount| mount["name"] == name);
        mounts.next().unwrap()["mountPath"].as_str().unwrap().to_owned()
    };
    assert_eq!(*file, format!("{}/asynclane.toml", folder("config")));
    let config = mounted_config();
    assert_eq!(config.server.api_keys_file, format!("{}/keys", folder("keys")));
    let port = container["ports"][0]["containerPort"].to_string();
    assert_eq!(config.server.listen, format!("0.0.0.0:{port}"));
}

#[test]
fn environment_variables_are_settings() {
    let known: BTreeSet<String> = variables().into_iter().collect();
    assert!(known.contains("ASYNCLANE_LISTEN"));
    assert!(!known.contains("ASYNCLANE_PORT"), "Kubernetes sets it for a Service of that name");
    let of_pod = container()["env"].as_array().unwrap().clone();
    let mut names: Vec<String> =
        of_pod.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect();
    let unit = read(UNIT);
    let of_unit = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    names.extend(of_unit.filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())));
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let is_known = known.contains(&name) || FOREIGN.contains(&&*name);
        assert!(is_known, "no argument reads {name}");
    }
}

#[test]
fn every_grace_period_is_longer_than_the_drain() {
    let pod = pod();
    let hook = &container()["lifecycle"]["preStop"]["sleep"]["seconds"];
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let drain = mounted_config().server.drain_timeout;
    // A few seconds for the last log lines and bytes.
    let last = 5;
    assert!(grace > hook.as_u64().unwrap() + drain + last);
    let default = Config::default().server.drain_timeout;
    let seconds = |text: &str| text.trim().trim_end_matches('s').parse::<u64>().unwrap();
    let rest = |file: &str, key: &str| {
        let text = read(file);
        let mut lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(key));
        seconds(lines.next().unwrap_or_else(|| panic!("no {key} in {file}")))
    };
    assert!(rest("deploy/compose/compose.yaml", "stop_grace_period:") > default + last);
    assert!(rest(UNIT, "TimeoutStopSec=") > default + last);
}

#[test]
fn replicas_are_added_before_one_is_full() {
    let scaled = object("deploy/kubernetes/autoscaling/scaled-object.yaml", "ScaledObject");
    let trigger = &scaled["spec"]["triggers"][0]["metadata"];
    let threshold: u32 = trigger["threshold"].as_str().unwrap().parse().unwrap();
    let most = mounted_config().engine.max_running;
    assert_eq!(threshold, most * 7 / 10, "70 % of max_running");
    let name = &mounted_config().model.served_name;
    let query = trigger["query"].as_str().unwrap();
    assert_eq!(query.matches(&format!("model_name=\"{name}\"")).count(), 2);
}

#[test]
fn the_program_parses_the_command_of_the_unit() {
    let unit = read(UNIT);
    let value = |key: &str| {
        let mut lines = unit.lines().filter_map(|line| line.strip_prefix(key));
        lines.next().unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    let line = value("ExecStart=");
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let Command::Serve(args) = Cli::try_parse_from(&arguments).unwrap().command else {
        panic!("not serve: {line}");
    };
    let credential = value("LoadCredential=");
    let (name, _) = credential.split_once(':').unwrap();
    let keys = format!("${{CREDENTIALS_DIRECTORY}}/{name}");
    assert_eq!(args.api_keys_file, Some(keys));
    assert_eq!(args.model.config, [PathBuf::from("/etc/asynclane/asynclane.toml")]);
    let codes = [exit::USAGE, exit::CHECKPOINT, exit::NO_INPUT, exit::CONFIG];
    let codes = codes.map(|code| code.to_string()).join(" ");
    assert_eq!(value("RestartPreventExitStatus="), codes);
    let cache = format!("HF_HOME=/var/cache/{}", value("CacheDirectory="));
    assert_eq!(value("Environment="), cache);
}
