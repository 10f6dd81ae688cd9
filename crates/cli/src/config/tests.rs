//! Files, origins, refusals.

use std::path::PathBuf;

use clap::Parser;
use model::KvDtype;

use super::origin::Origin;
use super::*;
use crate::args::{Cli, Command};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

#[test]
fn every_file_in_config_loads() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let args = ModelArgs { config: vec![path.clone()], ..ModelArgs::default() };
            Config::resolve(&args, None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            files += 1;
        }
    }
    assert!(files >= 3, "{files} files");
}

#[test]
fn the_reference_names_every_key_and_equals_the_defaults() {
    let text = std::fs::read_to_string(folder().join("reference.toml")).unwrap();
    let given: toml::Table = toml::from_str(&text).unwrap();
    let defaults = toml::Table::try_from(Config::default()).unwrap();
    assert_eq!(given, defaults);
}

/// The configuration of files with these contents.
fn of_files(name: &str, contents: &[&str]) -> Result<(Config, Origins)> {
    let file = |number: usize| {
        let name = format!("asynclane-{name}-{}-{number}.toml", std::process::id());
        std::env::temp_dir().join(name)
    };
    let files: Vec<PathBuf> = (0..contents.len()).map(file).collect();
    for (file, content) in files.iter().zip(contents) {
        std::fs::write(file, content).unwrap();
    }
    let args = ModelArgs { config: files.clone(), ..ModelArgs::default() };
    let result = Config::traced(&args, None);
    for file in files {
        std::fs::remove_file(file).unwrap();
    }
    result
}

/// Lines of a refusal, without the folder and the process.
fn lines(error: &anyhow::Error) -> Vec<String> {
    let folder = std::env::temp_dir().join("asynclane-");
    let message = error.to_string();
    let message = message.replace(folder.to_str().unwrap(), "");
    message.replace(&format!("-{}-", std::process::id()), "-").lines().map(str::to_owned).collect()
}

#[test]
fn later_files_win_key_by_key() {
    let first = "[engine]\nrow_budget = 1\npage_size = 8";
    let (config, origins) = of_files("later", &[first, "[engine]\n\nrow_budget = 2"]).unwrap();
    assert_eq!((config.engine.row_budget, config.engine.page_size), (2, 8));
    let place = |key: &str| match origins.get(key) {
        Origin::File(path, line, column) => {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name.chars().last().unwrap(), *line, *column)
        }
        other => panic!("{other}"),
    };
    assert_eq!(place("engine.row_budget"), ('1', 3, 14));
    assert_eq!(place("engine.page_size"), ('0', 3, 13));
    assert_eq!(origins.get("engine.max_running"), &Origin::Default);
}

#[test]
fn every_problem_of_every_file_is_named_with_its_place() {
    let first = "[engine]\nmax_running = 0\nlong_quantum = 7\nrow_budget = 5\nkv_memory = 512\n[servre]\nx = 1\n";
    let second = "model = 1\n[server]\nlisen = \"x\"\ncors = \"no\"\n[telemetry]\nlog = \"=\"\n";
    let third = "[model]\ndtype = \"fp8\"\nexpert_sharing = \"vote=1.5\"\n\
                 decoder = \"balanced,treshold=0.5\"\n";
    let error = of_files("all", &[first, second, third, "[model\n"]).unwrap_err();
    let lines = lines(&error);
    let expected = [
        "all-0.toml:5:13 engine.kv_memory: expected a string, found integer `512`",
        "all-0.toml:6:2 servre: expected one of engine, model, server, structured, telemetry, text, found \"servre\" (did you mean \"server\"?)",
        "all-1.toml:1:9 model: expected a table, found integer",
        "all-1.toml:4:8 server.cors: expected a boolean, found string \"no\"",
        "all-1.toml:3:1 server.lisen: expected one of",
        "all-3.toml:1:7: ",
        "all-0.toml:2:15 engine.max_running: expected at least 1, found 0",
        "all-0.toml:3:16 engine.long_quantum: expected at most engine.row_budget (5), found 7",
        "all-2.toml:2:9 model.dtype: expected one of auto, f32, bf16, int8, int4, int8w, found \"fp8\"",
        "all-2.toml:3:18 model.expert_sharing: expected vote=SHARE",
        "all-2.toml:4:11 model.decoder: treshold is not known (did you mean \"threshold\"?)",
        "all-1.toml:6:7 telemetry.log: expected directives",
    ];
    for start in expected {
        let found = lines.iter().any(|line| line.starts_with(start));
        assert!(found, "{start} in {lines:#?}");
    }
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
}

/// The configuration of `serve` with these arguments, the variables among them by id.
fn served(arguments: &[&str], environment: &[&str]) -> Result<(Config, Origins)> {
    let cli = Cli::parse_from([&["asynclane", "serve"][..], arguments].concat());
    let Command::Serve(mut args) = cli.command else {
        panic!("not serve");
    };
    let ids = environment.iter().map(|id| (*id).to_owned());
    args.model.environment = ids.collect();
    Config::traced(&args.model, Some(&args))
}

#[test]
fn flags_win_over_set_and_set_over_the_environment() {
    let arguments = ["--row-budget", "3", "--dtype", "bf16", "--max-waiting", "9"];
    let set = ["--set", "engine.row_budget=2", "--set", "model.dtype = int8"];
    let more = ["--set", "model.served_name=7", "--set", "server.cors=true"];
    let all = [&arguments[..], &set, &more].concat();
    let (config, origins) = served(&all, &["dtype", "max_waiting"]).unwrap();
    assert_eq!((config.engine.row_budget, config.model.dtype.as_str()), (3, "int8"));
    assert_eq!((&*config.model.served_name, config.server.cors), ("7", true));
    let origin = |key: &str| origins.get(key).to_string();
    assert_eq!(origin("engine.row_budget"), "--row-budget");
    assert_eq!(origin("model.dtype"), "--set");
    assert_eq!(origin("engine.max_waiting"), "environment ASYNCLANE_MAX_WAITING");
}

#[test]
fn a_refusal_names_the_flag_or_variable() {
    let arguments = [
        "--max-running",
        "0",
        "--dtype",
        "fp8",
        "--set",
        "engine.row_bugdet=1",
        "--device",
        "gpu",
        "--backend",
        "candel",
    ];
    let error = served(&arguments, &["dtype"]).unwrap_err();
    let message = error.to_string();
    let hint = "found \"engine.row_bugdet=1\" (did you mean \"engine.row_budget\"?)";
    assert!(message.contains(hint), "{message}");
    for line in [
        "--set: expected KEY=VALUE with a key of ",
        "--device model.device: expected one of auto, cpu, cuda, cuda:N, found \"gpu\" (did you mean",
        "--backend model.backend: expected one of cpu, candle, found \"candel\" (did you mean \"candle\"?)",
        "--max-running engine.max_running: expected at least 1, found 0",
        "environment ASYNCLANE_DTYPE model.dtype: expected one of",
    ] {
        assert!(message.lines().any(|found| found.starts_with(line)), "{message}");
    }
}

#[test]
fn number_formats_of_keys_and_values_are_checked() {
    let (config, _) = served(&["--kv-dtype", "bf16"], &[]).unwrap();
    assert_eq!(*config.engine.kv_dtype, Some(KvDtype::Bf16));
    assert_eq!(*served(&[], &[]).unwrap().0.engine.kv_dtype, None);
    for (arguments, line) in [
        (
            &["--kv-dtype", "fp8"][..],
            "--kv-dtype engine.kv_dtype: expected one of auto, f32, bf16, int8, found \"fp8\"",
        ),
        (
            &["--kv-dtype", "int8", "--backend", "candle"],
            "--kv-dtype engine.kv_dtype: expected auto or f32 with model.backend candle, found \"int8\"",
        ),
    ] {
        let error = served(arguments, &[]).unwrap_err().to_string();
        assert!(error.starts_with(line), "{error}");
    }
    assert!(served(&["--kv-dtype", "f32", "--backend", "candle"], &[]).is_ok());
}

#[test]
fn addresses_are_checked_without_a_look_up() {
    for address in ["127.0.0.1:0", "[::1]:80", "no-such.host:8000", "8000", ":65535"] {
        let content = format!("[server]\nlisten = {address:?}\n");
        let (config, _) = of_files("address", &[&content]).unwrap();
        assert_eq!(config.server.listen, address);
    }
    for address in ["127.0.0.1:99999", "127.0.0.1", "65536", "::1", "http://a:80", "[::1]", ""] {
        let content = format!("[server]\nlisten = {address:?}\n");
        let error = of_files("wrong-address", &[&content]).unwrap_err();
        let expected = "expected HOST:PORT or a port of at most 65535, found";
        let line = format!("wrong-address-0.toml:2:10 server.listen: {expected} {address:?}");
        assert_eq!(lines(&error), [line]);
    }
    let error = served(&["--host", "127.0.0.1:80"], &[]).unwrap_err().to_string();
    assert!(error.starts_with("--host server.listen: expected HOST:PORT"), "{error}");
}

#[test]
fn what_is_printed_resolves_to_itself_and_shows_no_key() {
    let (config, origins) = served(&["demo-wedlm", "--row-budget", "77"], &[]).unwrap();
    let text = print::text(&config, &origins, true).unwrap();
    assert!(text.contains("row_budget = 77 # --row-budget\n"), "{text}");
    let model = "path = \"demo-wedlm\" # argument MODEL\n";
    assert!(text.contains(model), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:8000\" # default\n"), "{text}");
    assert!(text.contains("an API key: ***"), "{text}");
    let (again, _) = of_files("printed", &[&text]).unwrap();
    assert_eq!(again, config);
}

#[test]
fn a_password_of_the_collector_is_not_printed() {
    let set = "--otlp-endpoint=http://me:secret@collector:4318";
    let (config, origins) = served(&[set], &[]).unwrap();
    let text = print::text(&config, &origins, false).unwrap();
    assert!(!text.contains("secret"), "{text}");
    assert!(text.contains("\"http://collector:4318\""), "{text}");
    assert!(text.contains("# a password before the host of otlp_endpoint: ***"), "{text}");
}

#[test]
fn prefills_and_refreshes_have_half_of_the_rows_unless_told_otherwise() {
    let mut config = Config::default();
    assert_eq!((config.row_budget(2048), config.long_quantum(2048)), (2048, 1024));
    config.engine.long_quantum = 2049;
    assert_eq!(config.problems().len(), 1);
    config.engine.long_quantum = 0;
    config.engine.row_budget = 1;
    assert_eq!((config.row_budget(2048), config.long_quantum(1)), (1, 1));
    config.engine.row_budget = 100;
    config.engine.long_quantum = 100;
    assert_eq!((config.row_budget(2048), config.long_quantum(100)), (100, 100));
    assert_eq!(config.problems(), []);
}
