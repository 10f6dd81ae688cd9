//! `asynclane inspect`: logits of a checkpoint, health of a server.

use std::net::TcpListener;
use std::path::Path;

use asynclane_tests::process::{Server, command, refusal, run, run_command, stderr, stdout, utf8};
use engine::decoding::{PRESETS, Registry};
use safetensors::{Dtype, SafeTensors};

use crate::folder;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/model/tests/model/fixtures");

/// The dtype, the shape and the bytes of a tensor in a file.
fn tensor(file: &Path, name: &str) -> (Dtype, Vec<usize>, Vec<u8>) {
    let bytes = std::fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())
}

/// The logits that `asynclane inspect logits` writes.
fn logits(test: &str, arguments: &[&str]) -> (Dtype, Vec<usize>, Vec<u8>) {
    let file = folder(test).join("logits.safetensors");
    let output = run(&[&["inspect", "logits", "--out", utf8(&file)], arguments].concat());
    assert_eq!(stdout(&output), "");
    tensor(&file, "logits")
}

fn assert_near(
    (_, shape, got): &(Dtype, Vec<usize>, Vec<u8>),
    want: &(Dtype, Vec<usize>, Vec<u8>),
    most: f32,
) {
    assert_eq!(*shape, want.1);
    for (got, want) in got.as_chunks().0.iter().zip(want.2.as_chunks().0) {
        let (got, want) = (f32::from_le_bytes(*got), f32::from_le_bytes(*want));
        assert!((got - want).abs() < most, "{got} for {want}");
    }
}

#[test]
fn logits_are_those_of_the_model() {
    let cpu = logits("logits", &["--tokens", "1,2,3"]);
    assert_eq!((cpu.0, &*cpu.1), (Dtype::F32, &[3, 1024][..]));
    let files = model::Files::memory(demo::checkpoint::DEMO.files());
    let model = model::Checkpoint::open(&files).and_then(model::Model::load);
    let expected = model.unwrap().logits(&[1, 2, 3]).unwrap();
    let expected: Vec<u8> = expected.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert!(cpu.2 == expected, "bit for bit");

    let candle = logits("logits-candle", &["--backend", "candle", "--tokens", "1,2,3"]);
    assert_ne!(cpu.2, candle.2, "candle sums in another order");
    assert_near(&candle, &cpu, 1e-3);
}

#[test]
fn a_quantized_model_is_described_with_the_memory_that_it_takes() {
    let folder = folder("quantized");
    for file in std::fs::read_dir(format!("{FIXTURES}/quantized/gptq")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    for (file, content) in demo::checkpoint::DEMO.files() {
        if file.starts_with("tokenizer") {
            std::fs::write(folder.join(file), content).unwrap();
        }
    }
    for (dtype, how) in [("auto", "codes are kept"), ("int8", "expanded when loaded")] {
        let lines = stdout(&run(&["inspect", "--model", utf8(&folder), "--dtype", dtype]));
        let stored = if dtype == "auto" { "blocks" } else { dtype };
        for expected in [
            format!("quantized        gptq, 4 bits, groups of 32; {how}\n"),
            format!("\nmatrices         {stored} by "),
            format!("\nweights in {stored} "),
        ] {
            assert!(lines.contains(&expected), "{expected} in {lines}");
        }
    }
    assert!(!stdout(&run(&["inspect"])).contains("\nquantized"));
}

#[test]
fn a_backend_that_cannot_be_used_is_refused_by_key() {
    let torch = "expected one of cpu, candle, found \"torch\"";
    let device = "expected cpu with model.device cuda";
    for (arguments, expected) in [
        (&["--backend", "torch"][..], torch),
        (&["--backend", "candle", "--device", "cuda"], device),
    ] {
        let output = run(&[&["inspect", "model"], arguments].concat());
        assert_ne!(output.status.code(), Some(0));
        let said = stderr(&output);
        assert!(said.contains("model.backend") && said.contains(expected), "{said}");
    }
}

#[test]
fn logits_of_every_family_are_those_of_its_official_code() {
    for case in ["dream-odd", "wedlm-7b", "sdar-16-tied", "llada2-odd"] {
        let model = format!("{FIXTURES}/families/{case}");
        let reference = Path::new(&model).join("reference.safetensors");
        let (_, _, words) = tensor(&reference, "tokens");
        let tokens = words.as_chunks().0.iter().map(|&id| u32::from_le_bytes(id).to_string());
        let tokens = tokens.collect::<Vec<_>>().join(",");
        let got = logits(case, &["--model", &model, "--tokens", &tokens]);
        assert_near(&got, &tensor(&reference, "logits"), 1e-4);
    }
}

#[test]
fn attention_and_logit_shift_of_a_model_are_printed() {
    let text = stdout(&run(&["inspect", "model"]));
    for line in ["attention        full", "predictions      at their own row"] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
}

/// The value of a line of `asynclane inspect`.
fn said<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} in {text}")).trim()
}

#[test]
fn memory_and_presets_of_a_model_are_printed() {
    let text = stdout(&run(&["inspect", "--max-model-len", "256"]));
    // 6 layers, keys and values of width 192, 4 bytes each.
    let kv = "2.2 MiB for one sequence of 256 positions";
    assert_eq!(said(&text, "KV at full length"), kv);
    for dtype in model::WeightDtype::ALL {
        let weights = said(&text, &format!("weights in {} ", dtype.name()));
        assert!(weights.contains("MiB in memory, "), "{weights}");
    }
    let device = said(&text, "on a device");
    // Keys and values are in f32 here too.
    let (arrays, pages) = device.split_once(" for the largest step, ").unwrap();
    assert_eq!(pages, "2.2 MiB of KV pages at least");
    assert!(arrays.contains(" MiB of weights, "), "{device}");
    let arguments = ["inspect", "--max-model-len", "256", "--kv-dtype", "int8"];
    let text_int8 = stdout(&run(&arguments));
    // 6 heads of 32 bytes and a scale.
    let [bytes, full, pages] = ["KV per position", "KV at full length", "KV pages"];
    assert_eq!(said(&text_int8, bytes), "2592 bytes (int8)");
    assert!(said(&text_int8, full).starts_with("0.6 MiB for one sequence"));
    assert_eq!(said(&text_int8, pages), "25890 of 16 slots per GiB");
    let device = said(&text_int8, "on a device");
    assert!(device.ends_with(", 0.6 MiB of KV pages at least"), "{device}");
    let presets = said(&text, "presets");
    let first = presets.starts_with("balanced (default), fast, low_latency, asynclane");
    assert!(first && !presets.contains("wedlm"), "{presets}");
    let of_wedlm = "wedlm, wedlm_exact, wedlm_next (default), introspective, autoregressive, prompt_lookup, block_causal, d2f";
    for (case, presets) in
        [("wedlm-7b", of_wedlm), ("sdar-16-tied", "block_causal (default), d2f, s2d2")]
    {
        let folder = folder(&format!("presets-{case}"));
        for file in std::fs::read_dir(format!("{FIXTURES}/families/{case}")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        for (file, content) in demo::checkpoint::DEMO.files() {
            if file.starts_with("tokenizer") {
                std::fs::write(folder.join(file), content).unwrap();
            }
        }
        let text = stdout(&run(&["inspect", "--model", utf8(&folder)]));
        assert_eq!(said(&text, "presets"), presets);
    }
}

#[test]
fn the_capacity_of_this_machine_comes_first() {
    let text = stdout(&run(&["inspect", "capacity"]));
    let mut rows = text.lines().skip_while(|line| !line.starts_with("device"));
    let names: Vec<_> = rows.by_ref().skip(1).take(7).map(|row| &row[..8]).collect();
    let expected =
        ["this CPU", "RTX 4090", "L40S    ", "A100    ", "H100    ", "H200    ", "B200    "];
    assert_eq!(names, expected);
    assert!(text.contains(", 1024 positions a sequence\n") && !text.contains(" 0.0 "), "{text}");
    let message = refusal(&run(&["inspect", "capacity", "--context", "100000"]), 64);
    assert!(message.contains("--context: expected at most 1024, the model's context"), "{message}");
}

#[test]
fn the_capacity_of_another_machine_is_asked_for_with_three_numbers() {
    let text = stdout(&run(&["inspect", "capacity", "--on", "64,40,0.4"]));
    let mut rows = text.lines().skip_while(|line| !line.starts_with("device"));
    let row = rows.nth(2).expect("this CPU comes first");
    assert!(row.starts_with("yours           64 "), "{text}");
    for wrong in ["64,40", "64,40,0.4,1", "64,40,0", "64"] {
        let output = run(&["inspect", "capacity", "--on", wrong]);
        assert_eq!(output.status.code(), Some(64), "{wrong}");
        assert!(stderr(&output).contains("--on: expected three positive numbers"));
    }
}

#[test]
fn the_instructions_of_each_dtype_are_printed() {
    let text = stdout(&run(&["inspect", "device"]));
    let has = |text: &str, line: &str| assert!(text.lines().any(|other| other == line), "{text}");
    assert!(text.lines().next().unwrap().ends_with(" threads"), "{text}");
    for dtype in model::WeightDtype::ALL {
        let line = format!("{} by {}", dtype.name(), dtype.instructions());
        has(&text, &line);
        let text = stdout(&run(&["inspect", "model", "--dtype", dtype.name()]));
        has(&text, &format!("matrices         {line}"));
    }
    let output = run(&["inspect", "model", "--dtype", "fp8"]);
    assert_eq!(output.status.code(), Some(78));
    let message = stderr(&output);
    let expected = "model.dtype: expected one of auto, f32, bf16, int8, int4, int8w";
    assert!(message.contains(expected), "{message}");
    let output = run(&["run", "--model", "demo", "--device", "cpu", "--dtype", "int8w", "Hello"]);
    assert_eq!(output.status.code(), Some(78));
    let message = stderr(&output);
    let expected = "model.dtype: int8w needs a CUDA device, expected int8 or bf16 on the CPU";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn tokens_outside_the_vocabulary_are_refused() {
    let file = folder("no-logits").join("logits.safetensors");
    let output = run(&["inspect", "logits", "--tokens", "1,5000", "--out", utf8(&file)]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("5000"), "{}", stderr(&output));
    assert!(!file.exists());
}

#[test]
fn health_tells_a_server_from_a_closed_port() {
    let server = Server::start(&[]);
    let address = server.client().address().to_string();
    let health = |address: &str| run(&["inspect", "health", "--address", address]);
    let port = address.rsplit_once(':').unwrap().1;
    let (url, wildcard) = (format!("http://{address}"), format!("0.0.0.0:{port}"));
    for given in [&*address, port, &url, &format!("{url}/"), &wildcard] {
        assert_eq!(stdout(&health(given)), "", "{given}");
    }
    for wrong in [&*format!("https://{address}"), &format!("{url}/v1"), "localhost"] {
        let message = refusal(&health(wrong), 64);
        assert!(message.contains("expected HOST:PORT, a port or http://HOST:PORT"), "{message}");
    }

    // The address of the same configuration.
    let file = folder("health").join("server.toml");
    std::fs::write(&file, format!("[server]\nlisten = \"{wildcard}\"\n")).unwrap();
    let set = format!("server.listen={port}");
    for given in [["--config", utf8(&file)], ["--set", &set]] {
        assert_eq!(stdout(&run(&[&["inspect", "health"], &given[..]].concat())), "", "{given:?}");
    }
    let mut by_environment = command(&["inspect", "health"]);
    by_environment.env("ASYNCLANE_LISTEN", port);
    assert_eq!(stdout(&run_command(by_environment)), "");

    // Bound and released: a free port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let message = refusal(&health(&address), 69);
    assert!(message.contains(&address), "{message}");
}

/// The rows of `docs/capacity.md` for models of which only the configuration is here.
#[test]
fn the_memory_of_a_model_is_known_before_its_download() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let document = std::fs::read_to_string(format!("{root}/docs/capacity.md")).unwrap();
    let shelf = format!("{root}/crates/cli/src/shelf");
    let fixtures = format!("{FIXTURES}/configs");
    for (folder, file, name, experts) in [
        (shelf, "diffusiongemma-26b", "DiffusionGemma 26B-A4B (text)", "8 of 128"),
        (fixtures, "llada2-flash", "LLaDA2.0-flash 100B-A6B", "8 of 256"),
    ] {
        let config = format!("{folder}/{file}.json");
        let text = stdout(&run(&["inspect", "capacity", "--config-json", &config]));
        let memory = |dtype: &str| {
            let said = said(&text, &format!("weights in {dtype} "));
            said.split(" in memory").next().unwrap().to_owned()
        };
        let row = ["f32", "bf16", "int8", "int4"].map(memory).join(" | ");
        let row = format!("| {name} | {row} |");
        assert!(document.contains(&row), "docs/capacity.md: {row}");
        let touched = format!("steps that touch {experts} experts");
        assert!(text.contains(&touched), "{text}");
    }
    let absent = run(&["inspect", "capacity", "--config-json", "/no/config.json"]);
    assert_eq!(absent.status.code(), Some(66), "{}", stderr(&absent));
}

/// `asynclane inspect device --steps` on the CPU.
fn steps(arguments: &[&str]) -> std::process::Output {
    run(&[&["inspect", "device", "--steps", "--device", "cpu"], arguments].concat())
}

/// The floors of LLaDA-8B's steps: 7.5e9 multiplied weights and K/V of 512 KiB a position at 4.2 TB/s.
#[test]
fn the_floor_of_a_step_is_one_read_of_weights_and_context() {
    let text = stdout(&steps(&["--rows", "64,256"]));
    assert!(text.contains("Nothing was measured"), "{text}");
    let lines = text.lines().map(|line| line.split_whitespace().collect());
    let steps: Vec<Vec<&str>> = lines
        .filter(|words: &Vec<&str>| {
            words.len() == 4 && ["bf16", "int8", "int8w", "int4"].contains(&words[0])
        })
        .collect();
    let want = [
        ["bf16", "64", "1024", "3.826"],
        ["bf16", "256", "1024", "4.593"],
        ["int8", "64", "1024", "2.041"],
        ["int8", "256", "1024", "2.808"],
        ["int8w", "64", "1024", "2.041"],
        ["int8w", "256", "1024", "2.808"],
        ["int4", "64", "1024", "1.371"],
        ["int4", "256", "1024", "2.138"],
    ];
    assert_eq!(steps, want, "{text}");
}

#[test]
fn steps_that_cannot_be_listed_are_refused_in_one_message() {
    let many = ["64"; 33].join(",");
    let geometries = "--geometry: expected one of demo, llada-300m, llada-8b, llada2-mini, \
                      diffusion-gemma, qwen3-30b-a3b, found \"llada-8\" (did you mean \"llada-8b\"?)";
    let value = |flag: &str, value: &str| format!("invalid value '{value}' for '--{flag}");
    for (arguments, expected) in [
        (["--geometry", "llada-8"], geometries.to_owned()),
        (["--rows", "0"], value("rows <ROWS>': 0 is not in 1..=4096", "0")),
        (["--rows", "64,many"], value("rows <ROWS>'", "many")),
        (["--slots", "16"], value("slots <SLOTS>': 16 is not in 32..=4096", "16")),
        (["--rows", &many], "expected at most 96 steps in 4 dtypes, found 132".to_owned()),
    ] {
        let output = steps(&arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(&expected), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let output = run(&["inspect", "device", "--rows", "64"]);
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}

#[test]
fn decoders_are_printed_with_their_settings() {
    let all = stdout(&run(&["inspect", "decoders"]));
    for preset in PRESETS {
        assert!(all.contains(&format!("preset {}: {}\n", preset.name, preset.summary)), "{all}");
    }
    for field in Registry::builtin().fields() {
        let (name, values) = (field.name, field.kind.describe());
        let is_choice = ["preset", "schedule", "commit", "cache"].contains(&name);
        assert!(is_choice || all.contains(&format!("  {name} ({values}; default ")), "{name}");
    }
    let one = stdout(&run(&["inspect", "decoders", "fused"]));
    assert!(one.starts_with("cache fused: ") && all.contains(&one), "{one}");
    let refused = run(&["inspect", "decoders", "fuse"]);
    assert_eq!(refused.status.code(), Some(64));
    assert!(stderr(&refused).ends_with("(did you mean \"fused\"?)\n"), "{refused:?}");
}
