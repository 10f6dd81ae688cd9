//! Refusals of models that are too large for a device. No device is needed: its memory is two
//! numbers.

use std::collections::BTreeMap;

use clap::Parser;
use demo::checkpoint::DEMO;
use model::{Files, Model};

use super::*;
use crate::args::{Cli, Command};
use crate::load;
use crate::shelf;

const MIB: u64 = 1 << 20;

/// The demo model under these arguments.
fn demo(arguments: &[&str]) -> (Config, Checkpoint) {
    let cli = Cli::parse_from([&["asynclane", "serve"][..], arguments].concat());
    let Command::Serve(args) = cli.command else {
        panic!("not serve");
    };
    let config = Config::resolve(&args.model, Some(&args)).unwrap();
    let checkpoint = load::checkpoint(&config.model.path).unwrap();
    (config, checkpoint)
}

/// A device with these free and total bytes.
fn card(memory: (u64, u64)) -> fit::FreeDevice<'static> {
    fit::FreeDevice { name: "A card", memory }
}

fn refusal(arguments: &[&str], memory: (u64, u64)) -> Option<String> {
    let (config, mut checkpoint) = demo(arguments);
    unfit(&config, &mut checkpoint, card(memory)).unwrap()
}

/// Bytes that weights, step and the fewest pages of the demo model take.
fn needs(arguments: &[&str]) -> model::DeviceMemory {
    let (config, checkpoint) = demo(arguments);
    let mut checkpoint = crate::kv::with_format(checkpoint, &config);
    let info = checkpoint.survey(*config.model.dtype).unwrap().info;
    least(&config, &mut checkpoint, &info).unwrap()
}

#[test]
fn int8_takes_twice_the_rows_to_reach_the_rate_of_a_card() {
    let rows = WeightDtype::ALL.map(|dtype| (dtype, enough_rows(DeviceLimits::H200, dtype)));
    for (dtype, rows) in rows {
        let expected = if dtype == WeightDtype::Int8 { 1024 } else { 512 };
        assert_eq!(rows, expected, "{dtype:?}");
    }
}

#[test]
fn what_fits_is_not_refused() {
    let needs = needs(&[]).sum();
    assert_eq!(refusal(&[], (needs * 2, needs * 2)), None);
    let whole = ["--device-memory", "1"];
    assert_eq!(refusal(&whole, (needs, needs)), None);
    assert!(refusal(&whole, (needs - 1, needs)).is_some());
    assert!(refusal(&[], (needs, needs)).is_some());
}

#[test]
fn sequences_are_as_long_as_fits_onto_a_card() {
    let (config, _) = demo(&["--dtype", "int4"]);
    let text = include_str!("../shelf/diffusiongemma-26b.json");
    let mut checkpoint = Checkpoint::planned(text).unwrap();
    let info = checkpoint.survey(*config.model.dtype).unwrap().info;
    let mut needed = |length: u32| {
        let mut config = config.clone();
        config.model.max_model_len = length;
        least(&config, &mut checkpoint, &info).unwrap().sum()
    };
    let (short, long, all) = (needed(8192), needed(1 << 14), needed(1 << 18));
    let mut length = |bytes| {
        let memory = (bytes, bytes * 10 / 9 + 10);
        let fitted = fit::fitted(&config, &mut checkpoint, memory).unwrap();
        let fits = unfit(&fitted, &mut checkpoint, card(memory)).unwrap().is_none();
        (fitted.max_model_len(&info), fits)
    };
    assert_eq!(length(short), (8192, true));
    assert_eq!(length(long - 1), (8192, true));
    assert_eq!(length(all), (1 << 18, true));
    assert_eq!(length(MIB), (1024, false));
}

#[test]
fn keys_and_values_are_as_queries_or_in_int8() {
    let memory = (1 << 40, 1 << 40);
    for dtype in ["f32", "bf16", "int8"] {
        assert_eq!(refusal(&["--kv-dtype", "int8", "--dtype", dtype], memory), None);
    }
    let line = refusal(&["--kv-dtype", "f32", "--dtype", "bf16"], memory).unwrap();
    assert_eq!(line, "no CUDA kernels for keys and values in f32 beside queries in bf16");
    for dtype in ["bf16", "int8"] {
        assert_eq!(refusal(&["--kv-dtype", "bf16", "--dtype", dtype], memory), None);
    }
    // The least pages take a little more than half the bytes of bf16.
    let least = |kv| needs(&["--dtype", "bf16", "--kv-dtype", kv]).kv as f64;
    assert_eq!(least("int8") / least("bf16"), (32.0 + 4.0) / 64.0);
}

#[test]
fn a_refusal_says_what_is_needed_what_is_there_and_what_to_try() {
    let (exact, half) = (needs(&[]).sum(), needs(&["--dtype", "bf16"]).sum());
    assert!(half < exact);
    let line = refusal(&[], (half + MIB, 1 << 40)).unwrap();
    let start = format!("demo: needs {} on A card (", memory::size(exact));
    assert!(line.starts_with(&start), "{line}");
    for part in [" of weights in f32, ", " for a step of up to 2048 rows, ", " of KV pages), "] {
        assert!(line.contains(part), "{line}");
    }
    let end = format!(", {} free: try --dtype bf16", memory::size(half + MIB));
    assert!(line.ends_with(&end), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let quarter = needs(&["--dtype", "int4"]).sum();
    let line = refusal(&[], (quarter, 1 << 40)).unwrap();
    assert!(
        line.ends_with(&format!(", {} free: try --dtype int4", memory::size(quarter))),
        "{line}"
    );
    let line = refusal(&["--device-memory", "0.5"], (exact, exact)).unwrap();
    let found =
        format!("), {} allowed (0.5 of {}): ", memory::size(exact / 2), memory::size(exact));
    assert!(line.contains(&found), "{line}");
}

#[test]
fn fewer_pages_or_shorter_sequences_are_suggested() {
    let int4 = ["--dtype", "int4"];
    let memory = |more: &[&str]| needs(&[&int4[..], more].concat());
    let say = |more: &[&str], free| refusal(&[&int4[..], more].concat(), (free, 1 << 40)).unwrap();
    let least = memory(&[]);
    let line = say(&["--kv-memory", "4GiB"], least.sum() + 9 * MIB);
    let left = (least.kv + 9 * MIB) >> 20;
    assert!(line.ends_with(&format!("try --kv-memory {left}MiB")), "{line}");
    let fewer = memory(&["--max-model-len", "512"]).sum();
    let line = say(&[], fewer);
    assert!(line.ends_with(": try --max-model-len 512"), "{line}");
    let line = say(&["--kv-memory", "4GiB"], fewer);
    let end = ": try --max-model-len 512 --kv-memory auto";
    assert!(line.ends_with(end), "{line}");
    let narrow = ["--max-model-len", "512", "--row-budget", "512"];
    let line = say(&[], memory(&narrow).sum());
    let end = ": try --max-model-len 512 --row-budget 512";
    assert!(line.ends_with(end), "{line}");
    let line = say(&[], MIB);
    assert!(line.ends_with("fits, try --device cpu"), "{line}");
}

#[test]
fn pages_for_less_than_a_sequence_are_a_wrong_configuration() {
    let (config, mut checkpoint) = demo(&["--kv-memory", "8KiB"]);
    let plenty = card((1 << 40, 1 << 40));
    let error = unfit(&config, &mut checkpoint, plenty).unwrap_err();
    let line = error.to_string();
    assert!(line.starts_with("engine.kv_memory: expected at least "), "{line}");
    assert!(line.ends_with(" positions (model.max_model_len), found 8KiB"), "{line}");
    assert_eq!(exit::code(&error), exit::CONFIG.into());
}

#[test]
fn only_a_device_that_was_asked_for_ends_the_start() {
    let reason = || "too small".to_owned();
    assert_eq!(skipped(DeviceChoice::Auto, reason()).unwrap(), "too small");
    let error = skipped(DeviceChoice::Cuda(0), reason()).unwrap_err();
    assert_eq!(error.to_string(), "--device cuda: too small");
    assert_eq!(exit::code(&error), exit::CHECKPOINT.into());
}

/// Before a weight is read: these are no numbers, and loading would say so.
#[test]
fn memory_is_spoken_of_before_weights() {
    let mut files: BTreeMap<String, Vec<u8>> =
        DEMO.files().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect();
    let weights = files.get_mut("model.safetensors").unwrap();
    let last = weights.len() - 4;
    weights[last..].fill(0xFF);
    let mut checkpoint = Checkpoint::open(&Files::memory(files)).unwrap();
    let (config, _) = demo(&[]);
    let line = unfit(&config, &mut checkpoint, card((MIB, MIB))).unwrap();
    assert!(line.unwrap().starts_with("demo: needs "));
    let error = Model::load(checkpoint).err().unwrap();
    assert!(matches!(error, LoadError::NotFinite { .. }), "{error}");
}

/// A model that the list of models says fits starts without a further setting.
#[test]
fn models_that_fit_start_as_they_are() {
    let mut count = 0;
    for entry in shelf::ALL {
        let mut checkpoint = entry.checkpoint().unwrap();
        for (dtype, gib) in [("bf16", 24), ("int8", 16), ("int4", 24)] {
            let (mut config, _) = demo(&["--dtype", dtype]);
            config.model.path = entry.name.to_owned();
            let info = checkpoint.survey(*config.model.dtype).unwrap().info;
            let usual = info.max_positions.min(4096) as u32;
            let memory = ((gib << 30) - (1 << 29), gib << 30);
            let mut listed = config.clone();
            listed.model.max_model_len = usual;
            let fits = |config: &Config, checkpoint: &mut Checkpoint| {
                unfit(config, checkpoint, card(memory)).unwrap().is_none()
            };
            if !fits(&listed, &mut checkpoint) {
                continue;
            }
            let fitted = fit::fitted(&config, &mut checkpoint, memory).unwrap();
            assert!(fits(&fitted, &mut checkpoint), "{} in {dtype}", entry.name);
            let length = fitted.max_model_len(&info);
            assert!(length >= usual, "{} in {dtype}: {length}", entry.name);
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}
