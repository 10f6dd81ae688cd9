//! The figures of the README and of `docs/benchmarks.md` are those of the result files.

use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn result(name: &str) -> Value {
    let path = format!("tests/lab/records/{name}");
    serde_json::from_str(&read(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The member of `list` that is called `name`.
fn row<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut rows = list.as_array().expect("a list").iter();
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name}"))
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{row}: no {field}"))
}

/// The name of a preset's row: that of the decoder that was derived for it.
fn decoder<'a>(report: &'a Value, preset: &'a str) -> &'a str {
    let mut derived = report["derived"].as_array().expect("presets").iter();
    let found = derived.find(|one| one["preset"] == preset);
    found.map_or(preset, |one| one["decoder"].as_str().expect("a name"))
}

fn expect(document: &str, text: &str) {
    assert!(read(document).contains(text), "{document}: expected {text}");
}

#[test]
fn presets_have_their_measured_accuracy_and_cost() {
    // The presets were derived with the weights before they learnt greetings.
    let derived = result("epyc-2-threads/presets.json");
    let report = result("epyc-2-threads/greetings.json");
    for preset in ["balanced", "fast", "low_latency", "fast_dllm_dual", "vanilla"] {
        let name = decoder(&derived, preset);
        let overall = row(&report["overall"], name);
        let [strict, forwards, rows] =
            ["strict", "nfe_per_token", "positions_per_token"].map(|field| number(overall, field));
        let line = format!("| `{preset}` | {strict:.1} % | {forwards:.2} | {rows:.0} |");
        expect("docs/benchmarks.md", &line);
    }
    let [balanced, vanilla] =
        ["balanced", "vanilla"].map(|preset| row(&report["overall"], decoder(&derived, preset)));
    let line = format!(
        "**{:.2}** forward passes per token against {:.2} of LLaDA's own sampler, at {:.1} % against {:.1} %",
        number(balanced, "nfe_per_token"),
        number(vanilla, "nfe_per_token"),
        number(balanced, "strict"),
        number(vanilla, "strict"),
    );
    expect("README.md", &line);
}

#[test]
fn speeds_beside_fast_dllm_are_the_measured_ones() {
    let ratio = |file: &str, list: &str, name: &str| {
        let report = result(&format!("{file}.json"));
        number(row(&report[list], name), "ratio")
    };
    let budgets = ["budget-256", "budget-512"]
        .map(|file| ratio(&format!("epyc-2-threads/{file}"), "decoders", "balanced"));
    let ratio = |file: &str, list: &str, name: &str| {
        ratio(&format!("epyc-avx2-2-threads/{file}"), list, name)
    };
    let line = format!(
        "**{:.1}x** the speed of Fast-dLLM's dual cache in this server at a budget of 256 tokens, **{:.1}x** at 512",
        budgets[0], budgets[1]
    );
    expect("README.md", &line);
    let served = ratio("fast-dllm-512", "peers", "balanced f32 c=1");
    expect("docs/benchmarks.md", &format!("{served:.1}x at 512 tokens"));
    let report = result("epyc-avx2-2-threads/fast-dllm-256.json");
    for name in [
        "Fast-dLLM dual cache, float32",
        "balanced f32 c=1",
        "balanced f32 c=16",
        "balanced int8 c=16",
    ] {
        let row = row(&report["peers"], name);
        let [end, strict, tps, ratio] =
            ["end", "strict", "tps", "ratio"].map(|field| number(row, field));
        let line = format!("| {name} | {end:.1} % | {strict:.1} % | {tps:.0} | {ratio:.2}x |");
        expect("docs/benchmarks.md", &line);
    }
}

#[test]
fn the_step_on_a_card_is_the_measured_one() {
    let report = result("h200/steps.json");
    let mut steps = report["gpu_steps"].as_array().expect("steps").iter();
    let step = steps.find(|step| step["dtype"] == "bf16" && step["rows"] == 256);
    let [ours, torch] = ["ms", "torch_ms"].map(|field| number(step.expect("a step"), field));
    let line = format!(
        "a step of 256 rows takes {ours:.1} ms, in PyTorch's eager operations in a CUDA graph {torch:.1} ms"
    );
    expect("README.md", &line);
}

#[test]
fn speeds_beside_llama_cpp_are_the_measured_ones() {
    let report = result("epyc-2-threads/serving.json");
    for row in report["serving"].as_array().expect("rows") {
        let [streams, tps, first, ratio] =
            ["concurrency", "tps", "ttft_ms", "ratio"].map(|field| number(row, field));
        let server = row["name"].as_str().expect("a name");
        let line = format!("| {streams} | {server} | {tps:.1} | {first:.1} ms | {ratio:.2}x |");
        expect("docs/benchmarks.md", &line);
    }
}
