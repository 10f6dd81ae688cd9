//! `asynclane inspect`: logits of a checkpoint, health of a server.

use std::net::TcpListener;

use asynclane_tests::process::{Server, run, stderr, stdout};
use safetensors::{Dtype, SafeTensors};

use crate::folder;

#[test]
fn logits_are_those_of_the_model() {
    let file = folder("logits").join("logits.safetensors");
    let out = file.to_str().expect("the path is UTF-8");
    let output = run(&["inspect", "logits", "--tokens", "1,2,3", "--out", out]);
    assert_eq!(stdout(&output), "");
    let bytes = std::fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.names(), ["logits"]);
    let logits = tensors.tensor("logits").unwrap();
    assert_eq!(
        (logits.dtype(), logits.shape()),
        (Dtype::F32, &[3, 1024][..])
    );

    let files = model::Files::memory(demo::checkpoint::DEMO.files());
    let model = model::Checkpoint::open(&files).and_then(model::Model::load);
    let expected = model.unwrap().logits(&[1, 2, 3]).unwrap();
    let expected: Vec<u8> = expected.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert!(logits.data() == expected, "bit for bit");
}

#[test]
fn logits_on_candle_are_near_those_of_the_kernels() {
    let logits = |backend: &str| -> Vec<f32> {
        let file = folder(&format!("logits-{backend}")).join("logits.safetensors");
        let out = file.to_str().expect("the path is UTF-8");
        let arguments = ["--backend", backend, "--tokens", "1,2,3", "--out", out];
        let output = run(&[&["inspect", "logits"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let bytes = std::fs::read(&file).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor("logits").unwrap().data().to_vec();
        let words = data.as_chunks().0.iter();
        words.map(|&x| f32::from_le_bytes(x)).collect()
    };
    let (cpu, candle) = (logits("cpu"), logits("candle"));
    assert_ne!(cpu, candle, "candle sums in another order");
    for (one, other) in cpu.iter().zip(&candle) {
        assert!((one - other).abs() < 1e-3, "{one} and {other}");
    }
}

#[test]
fn a_backend_that_cannot_be_used_is_refused_by_key() {
    for (arguments, what) in [
        (
            &["--backend", "torch"][..],
            "expected one of cpu, candle, found \"torch\"",
        ),
        (
            &["--backend", "candle", "--device", "cuda"][..],
            "expected cpu with model.device cuda",
        ),
    ] {
        let output = run(&[&["inspect", "model"], arguments].concat());
        assert_ne!(output.status.code(), Some(0));
        let said = stderr(&output);
        assert!(said.contains("model.backend"), "{said}");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn logits_of_every_family_are_those_of_its_official_code() {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/model/tests/model/fixtures/families"
    );
    for case in ["dream-odd", "wedlm-7b", "sdar-16-tied", "llada2-odd"] {
        let model = format!("{root}/{case}");
        let bytes = std::fs::read(format!("{model}/reference.safetensors")).unwrap();
        let reference = SafeTensors::deserialize(&bytes).unwrap();
        let words = reference.tensor("tokens").unwrap().data().to_vec();
        let tokens = words.as_chunks().0.iter().map(|&id| u32::from_le_bytes(id));
        let tokens = tokens
            .map(|id| id.to_string())
            .collect::<Vec<_>>()
            .join(",");
        let file = folder(case).join("logits.safetensors");
        let out = file.to_str().expect("the path is UTF-8");
        let arguments = ["--model", &model, "--tokens", &tokens, "--out", out];
        let output = run(&[&["inspect", "logits"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let bytes = std::fs::read(&file).unwrap();
        let got = SafeTensors::deserialize(&bytes).unwrap();
        let (got, want) = (
            got.tensor("logits").unwrap(),
            reference.tensor("logits").unwrap(),
        );
        assert_eq!(got.shape(), want.shape(), "{case}");
        let floats = |data: &[u8]| -> Vec<f32> {
            let words = data.as_chunks().0.iter();
            words.map(|&x| f32::from_le_bytes(x)).collect()
        };
        for (got, want) in floats(got.data()).iter().zip(floats(want.data())) {
            assert!((got - want).abs() < 1e-4, "{case}: {got} for {want}");
        }
    }
}

#[test]
fn attention_and_readout_of_a_model_are_printed() {
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
    let text_int8 = stdout(&run(&[
        "inspect",
        "--max-model-len",
        "256",
        "--kv-dtype",
        "int8",
    ]));
    // 6 heads of 32 bytes and a scale.
    let [bytes, full, pages] = ["KV per position", "KV at full length", "KV pages"];
    assert_eq!(said(&text_int8, bytes), "2592 bytes (int8)");
    assert!(said(&text_int8, full).starts_with("0.6 MiB for one sequence"));
    assert_eq!(said(&text_int8, pages), "25890 of 16 slots per GiB");
    let presets = said(&text, "presets");
    assert!(
        presets.starts_with("balanced (default), fast, asynclane"),
        "{presets}"
    );
    assert!(!presets.contains("wedlm"), "{presets}");
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/model/tests/model/fixtures/families"
    );
    for (case, presets) in [
        (
            "wedlm-7b",
            "wedlm, wedlm_exact, wedlm_next (default), autoregressive, prompt_lookup, block_causal, d2f",
        ),
        ("sdar-16-tied", "block_causal (default), d2f, s2d2"),
    ] {
        let folder = folder(&format!("presets-{case}"));
        for file in std::fs::read_dir(format!("{root}/{case}")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        for (file, content) in demo::checkpoint::DEMO.files() {
            if file.starts_with("tokenizer") {
                std::fs::write(folder.join(file), content).unwrap();
            }
        }
        let model = folder.to_str().expect("the path is UTF-8");
        let text = stdout(&run(&["inspect", "--model", model]));
        assert_eq!(said(&text, "presets"), presets);
    }
}

#[test]
fn the_capacity_of_this_machine_comes_first() {
    let text = stdout(&run(&["inspect", "capacity"]));
    let mut rows = text.lines().skip_while(|line| !line.starts_with("device"));
    let names: Vec<_> = rows.by_ref().skip(1).take(5).map(|row| &row[..8]).collect();
    assert_eq!(
        names,
        ["this CPU", "A100    ", "H100    ", "H200    ", "B200    "]
    );
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
    let output = run(&["inspect", "device"]);
    let text = stdout(&output);
    assert!(text.lines().next().unwrap().ends_with(" threads"), "{text}");
    for dtype in model::WeightDtype::ALL {
        let line = format!("{} by {}", dtype.name(), dtype.instructions());
        assert!(text.lines().any(|other| other == line), "{text}");
        let output = run(&["inspect", "model", "--dtype", dtype.name()]);
        let line = format!("matrices         {line}");
        let text = stdout(&output);
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    let output = run(&["inspect", "model", "--dtype", "fp8"]);
    assert_eq!(output.status.code(), Some(78));
    let message = stderr(&output);
    assert!(
        message.contains("model.dtype: expected one of auto, f32, bf16, int8, int4"),
        "{message}"
    );
}

#[test]
fn tokens_outside_the_vocabulary_are_refused() {
    let file = folder("no-logits").join("logits.safetensors");
    let out = file.to_str().expect("the path is UTF-8");
    let output = run(&["inspect", "logits", "--tokens", "1,5000", "--out", out]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("5000"), "{}", stderr(&output));
    assert!(!file.exists());
}

#[test]
fn health_tells_a_server_from_a_closed_port() {
    let server = Server::start(&[]);
    let address = server.client().address().to_string();
    let health = |address: &str| run(&["inspect", "health", "--address", address]);
    assert_eq!(stdout(&health(&address)), "");

    // Bound and released: a free port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let output = health(&address);
    assert_eq!(output.status.code(), Some(69));
    let message = stderr(&output);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains(&address), "{message}");
}

/// The rows of `docs/capacity.md` for models of which only the configuration is here.
#[test]
fn the_memory_of_a_model_is_known_before_its_download() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let document = std::fs::read_to_string(format!("{root}/docs/capacity.md")).unwrap();
    for (file, name, experts) in [
        (
            "diffusiongemma-26b",
            "DiffusionGemma 26B-A4B (text)",
            "8 of 128",
        ),
        ("llada2-flash", "LLaDA2.0-flash 100B-A6B", "8 of 256"),
    ] {
        let config = format!("{root}/crates/model/tests/model/fixtures/configs/{file}.json");
        let output = run(&["inspect", "capacity", "--config-json", &config]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        let of = |dtype: &str| {
            let said = said(&text, &format!("weights in {dtype} "));
            said.split(" in memory").next().unwrap().to_owned()
        };
        let row = ["f32", "bf16", "int8", "int4"].map(of).join(" | ");
        let row = format!("| {name} | {row} |");
        assert!(document.contains(&row), "docs/capacity.md: {row}");
        let touched = format!("steps that touch {experts} experts");
        assert!(text.contains(&touched), "{text}");
    }
    let absent = run(&["inspect", "capacity", "--config-json", "/no/config.json"]);
    assert_eq!(absent.status.code(), Some(66), "{}", stderr(&absent));
}

/// The floors of LLaDA-8B's steps: 7.5e9 multiplied weights and K/V of 512 KiB a position at 4.2 TB/s.
#[test]
fn the_floor_of_a_step_is_one_read_of_weights_and_context() {
    let output = run(&[
        "inspect", "device", "--steps", "--device", "cpu", "--rows", "64,256",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("Nothing was measured"), "{text}");
    let lines = text.lines().map(|line| line.split_whitespace().collect());
    let steps: Vec<Vec<&str>> = lines
        .filter(|words: &Vec<&str>| words.len() == 4 && ["bf16", "int8"].contains(&words[0]))
        .collect();
    let want = [
        ["bf16", "64", "1024", "3.826"],
        ["bf16", "256", "1024", "4.593"],
        ["int8", "64", "1024", "2.041"],
        ["int8", "256", "1024", "2.808"],
    ];
    assert_eq!(steps, want, "{text}");
}

#[test]
fn steps_that_cannot_be_listed_are_refused_in_one_message() {
    for (arguments, code, what) in [
        (
            &["--geometry", "llada-8"][..],
            64,
            "--geometry: expected one of demo, llada-300m, llada-8b, found \"llada-8\" (did you mean \
             \"llada-8b\"?)",
        ),
        (
            &["--rows", "0"],
            64,
            "invalid value '0' for '--rows <ROWS>': 0 is not in 1..=4096",
        ),
        (
            &["--rows", "64,many"],
            64,
            "invalid value 'many' for '--rows <ROWS>'",
        ),
        (
            &["--slots", "16"],
            64,
            "invalid value '16' for '--slots <SLOTS>': 16 is not in 32..=4096",
        ),
    ] {
        let output = run(&[
            &["inspect", "device", "--steps", "--device", "cpu"],
            arguments,
        ]
        .concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(what), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let many = ["64"; 33].join(",");
    let output = run(&[
        "inspect", "device", "--steps", "--device", "cpu", "--rows", &many,
    ]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("expected at most 64 steps in 2 dtypes, found 66"),
        "{said}"
    );
    let output = run(&["inspect", "device", "--rows", "64"]);
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}
