//! The binary with the feature `cuda` on the fake driver of `tests/lab/cuda/examples/fake_driver`.
//!
//! `tests/lab/cuda/check` builds both and runs these tests; `SERVER_BINARY` names the binary and
//! `FAKE_DRIVER` the driver.

mod fake;

use std::path::Path;
use std::time::{Duration, Instant};

use asynclane_tests::process::{Server, run_command, stderr, stdout};
use asynclane_tests::reply::with;
use asynclane_tests::words::with_words;
use fake::Fake;
use serde_json::{Value, json};

/// Exit status of an engine that hangs, and of a device that is lost.
const ENGINE: i32 = 70;
const DEVICE: i32 = 71;
/// Every server here has ended within this time.
const BOUND: Duration = Duration::from_secs(120);
const PROMPT: &str = "Tom has 9 coins and buys 8 more. How many coins does Tom have?";
/// Flags of a server on the fake driver: little memory, few positions.
const SMALL: [&str; 8] = {
    let [device, len, rows, kv] = ["--device", "--max-model-len", "--row-budget", "--kv-memory"];
    [device, "cuda", len, "128", rows, "128", kv, "8MiB"]
};

/// Checkpoints of random weights.
const FIXTURES: &str = "../crates/model/tests/model/fixtures";
const LISTEN: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

fn body(stream: bool) -> Value {
    json!({"model": "demo", "prompt": PROMPT, "max_tokens": 8, "stream": stream})
}

fn serve(fake: &Fake, more: &[&str]) -> Server {
    Server::spawn(fake.command(&[&LISTEN, &SMALL[..], more].concat()))
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().expect("a text")
}

/// The log of a server that ends in time with the exit status `code`.
fn ended(server: Server, code: i32) -> String {
    let begun = Instant::now();
    let (status, log) = server.wait();
    assert!(begun.elapsed() < BOUND, "{log}");
    assert_eq!(status.code(), Some(code), "{log}");
    log
}

/// The arguments of a text by one decoder.
fn text_by(decoder: &str) -> [&str; 6] {
    ["generate", PROMPT, "--max-tokens", "8", "--decoder", decoder]
}

/// The fake driver is the oldest one that the machine code supports.
#[test]
fn texts_are_those_of_the_cpu_and_graphs_are_used() {
    let fake = Fake::new("texts", "seed 9\nversion 12000");
    for decoder in ["asynclane", "fast_dllm_dual"] {
        let ask = |device: &[&str]| {
            let output = run_command(fake.command(&[&text_by(decoder), device].concat()));
            assert_eq!(stderr(&output), "", "{decoder}");
            stdout(&output)
        };
        assert_eq!(ask(&SMALL), ask(&["--device", "cpu"]), "{decoder}");
    }
    let log = fake.log();
    assert!(log.contains("calls: cuGraphLaunch "), "{log}");
    fake.assert_clean();
}

/// Kernels that no card has run give the same text, and are used where they are asked for.
#[test]
fn untested_kernels_change_no_text() {
    for dtype in ["bf16", "int8"] {
        let fake = Fake::new("untested", "seed 11");
        let ask = |more: &[&str]| {
            let asked = [&text_by("asynclane"), &SMALL[..], &["--dtype", dtype], more].concat();
            let output = run_command(fake.command(&asked));
            assert_eq!(stderr(&output), "", "{dtype}");
            stdout(&output)
        };
        // Launches that overlap have attributes.
        let overlaps = || fake.log().contains("calls: cuLaunchKernelEx ");
        let text = ask(&[]);
        assert!(!overlaps(), "{}", fake.log());
        assert_eq!(ask(&["--untested-kernels"]), text, "{dtype}");
        assert!(overlaps(), "{}", fake.log());
        fake.assert_clean();
    }
}

/// One of the models has canvases of noise.
#[test]
fn texts_of_models_with_experts_are_those_of_the_cpu() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURES);
    for (checkpoint, decoder) in [
        ("families/llada-moe", "balanced"),
        ("canvas/diffusion-gemma", "canvas,max_denoising_steps=5"),
    ] {
        let fake = Fake::new("experts", "seed 5");
        let folder = fake.model();
        with_words(&fixtures.join(checkpoint), &folder);
        let model = ["--model", folder.to_str().unwrap()];
        let asked = ["generate", "w7 w8 w9 w12", "--raw", "--max-tokens", "16"];
        let asked = [&asked[..], &["--decoder", decoder]].concat();
        let ask = |device: &[&str]| {
            let output = run_command(fake.command(&[&asked[..], &model, device].concat()));
            assert_eq!(stderr(&output), "", "{checkpoint}");
            stdout(&output)
        };
        let text = ask(&SMALL);
        assert!(text.split_whitespace().count() > 8, "{checkpoint}: {text}");
        assert_eq!(text, ask(&["--device", "cpu"]), "{checkpoint}");
        let log = fake.log();
        for name in ["cuGraphLaunch", "choose_experts", "experts_f32", "mix_experts"] {
            assert!(log.contains(&format!("calls: {name} ")), "{log}");
        }
        fake.assert_clean();
    }
}

#[test]
fn filtered_samples_and_logprobs_are_those_of_the_cpu() {
    let fake = Fake::new("filters", "seed 4");
    let filters = json!({"temperature": 0.9, "top_p": 0.9, "top_k": 20, "seed": 3, "logprobs": 2});
    let asked = with(body(false), &filters);
    let answers = [&SMALL[..], &["--device", "cpu"]].map(|device| {
        let server = Server::spawn(fake.command(&[&LISTEN, device].concat()));
        let answer = server.client().post("/v1/completions", &asked).json();
        server.stop();
        answer["choices"][0].clone()
    });
    let [device, cpu] = &answers;
    assert_eq!(device["text"], cpu["text"]);
    let (device, cpu) = (&device["logprobs"], &cpu["logprobs"]);
    assert_eq!(device["tokens"], cpu["tokens"]);
    let numbers = |value: &Value| -> Vec<f64> {
        let all = value["token_logprobs"].as_array().expect("a list").iter();
        all.map(|one| one.as_f64().expect("a number")).collect()
    };
    let (device, cpu) = (numbers(device), numbers(cpu));
    assert!(!device.is_empty());
    for (one, other) in device.iter().zip(&cpu) {
        assert!((one - other).abs() < 1e-3, "{device:?} {cpu:?}");
    }
    fake.assert_clean();
}

#[test]
fn a_lost_device_ends_streams_with_an_error_and_the_process_with_its_status() {
    let fake = Fake::new("lost", "");
    let server = serve(&fake, &[]);
    let client = server.client();
    assert_eq!(client.post("/v1/completions", &body(false)).status, 200);
    fake.plan("fault 40 700");
    let streams = [0, 1].map(|_| client.begin("/v1/completions", &body(true)).unwrap());
    for mut stream in streams {
        let mut seen = String::new();
        std::io::Read::read_to_string(&mut stream, &mut seen).unwrap();
        assert!(seen.contains("\"error\""), "{seen}");
    }
    let log = ended(server, DEVICE);
    let lines = log.lines().filter(|line| line.starts_with("asynclane: "));
    let lines: Vec<&str> = lines.collect();
    let [line] = lines[..] else { panic!("{log}") };
    let (start, end) = ("asynclane: the device failed: CUDA: ", "; the process ends");
    assert!(line.starts_with(start) && line.ends_with(end), "{line}");
    let words = "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)";
    assert!(line.contains(words), "{line}");
}

#[test]
fn other_errors_fail_their_requests_only() {
    let fake = Fake::new("other", "");
    let server = serve(&fake, &[]);
    let client = server.client();
    let asked = with(body(false), &json!({"max_tokens": 4}));
    let want = client.post("/v1/completions", &asked).json();
    for function in ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"] {
        fake.plan(&format!("fail {function} 2 2"));
        let answer = client.post("/v1/completions", &asked);
        assert_eq!(answer.status, 500, "{function}");
        assert_eq!(client.get("/health").status, 200);
        let later = client.post("/v1/completions", &asked).json();
        assert_eq!(text(&later), text(&want), "{function}");
    }
    let failures = client.metrics().sum("asynclane_step_failures_total", &[]);
    assert_eq!(failures, 3.0);
    server.stop();
    fake.assert_clean();
}

#[test]
fn a_driver_that_refuses_graphs_is_named_once_and_served_without() {
    let fake = Fake::new("graphs", "");
    let server = serve(&fake, &[]);
    let client = server.client();
    // The first call is the start's.
    fake.plan("fail cuGraphInstantiateWithFlags 1 2");
    let first = client.post("/v1/completions", &body(false)).json();
    let again = client.post("/v1/completions", &body(false)).json();
    assert_eq!(text(&first), text(&again));
    let log = server.stop();
    assert_eq!(log.matches("CUDA graphs are off").count(), 1, "{log}");
    fake.assert_clean();
    let launched = fake.log().contains("calls: cuGraphLaunch ");
    assert!(!launched, "{}", fake.log());
}

/// Whichever call of a graph fails, the text is the same, and nothing is left behind.
#[test]
fn texts_are_the_same_without_graphs() {
    let fake = Fake::new("refused", "");
    let ask = |plan: &str| {
        fake.plan(plan);
        run_command(fake.command(&[&text_by("asynclane"), &SMALL[..]].concat()))
    };
    let want = stdout(&ask(""));
    // At the start, where it is told at once; and later.
    let refused = ask("fail cuStreamBeginCapture_v2 1 801");
    let words = "CUDA graphs unavailable, kernels launch one by one: CUDA: capture: operation not \
                 supported (CUDA_ERROR_NOT_SUPPORTED, 801)";
    assert_eq!(stderr(&refused), format!("warning: {words}\n"));
    assert_eq!(stdout(&refused), want);
    for plan in ["fail cuStreamEndCapture 2 801", "fail cuGraphLaunch 1 801"] {
        assert_eq!(stdout(&ask(plan)), want, "{plan}");
    }
    fake.assert_clean();
}

#[test]
fn a_device_step_that_never_ends_ends_the_process() {
    let fake = Fake::new("hang", "");
    let server = serve(&fake, &["--step-timeout", "3", "--stall-after", "1"]);
    fake.plan("hang");
    let client = server.client();
    let _request = client.begin("/v1/completions", &body(true)).unwrap();
    let log = ended(server, ENGINE);
    let line = "longer than engine.step_timeout (3 s); the process ends";
    assert_eq!(log.matches(line).count(), 1, "{log}");
}

#[test]
fn a_device_is_chosen_by_its_number() {
    let fake = Fake::new("number", "");
    let ask = |device: &str| {
        fake.plan("devices 2");
        let mut small = SMALL;
        small[1] = device;
        run_command(fake.command(&[&text_by("asynclane"), &small[..]].concat()))
    };
    let first = ask("cuda:0");
    assert_eq!(stdout(&ask("cuda:1")), stdout(&first));
    let refused = ask("cuda:7");
    assert_eq!(refused.status.code(), Some(69));
    let line =
        "asynclane: --device cuda:7: the NVIDIA driver found 2 devices, the last is cuda:1\n";
    assert_eq!(stderr(&refused), line);
}

#[test]
fn a_start_that_cannot_succeed_is_one_line_with_its_status() {
    let fake = Fake::new("start", "");
    let old = "--device cuda: expected an NVIDIA driver for CUDA 12.0 or later";
    let none = "--device cuda: the NVIDIA driver found no device";
    let full = "out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)";
    let lost = "fail cuMemcpyHtoDAsync_v2 5 214";
    for (plan, status, words) in [
        ("version 11080", 69, old),
        ("devices 0", 69, none),
        ("fail cuMemAlloc_v2 9 2", 65, full),
        (lost, DEVICE, "the device failed: "),
        ("memory 1048576", 65, "on Fake device ("),
    ] {
        fake.plan(plan);
        let output = run_command(fake.command(&[&LISTEN, &SMALL[..]].concat()));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{plan}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(words), "{plan}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}
