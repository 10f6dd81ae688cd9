//! Chats that set no `max_tokens`.

use asynclane_tests::served::{MODEL, Served};
use serde_json::{Value, json};

/// Presets of full attention; all but the first read the whole canvas.
const PRESETS: [&str; 9] = [
    "balanced",
    "vanilla",
    "dream",
    "fast_dllm",
    "fast_dllm_prefix",
    "fast_dllm_dual",
    "fast_dllm_dual_published",
    "adablock",
    "d3llm",
];

fn chat(preset: &str) -> Value {
    let content = "Reverse the list coins, eggs, books, pens.";
    json!({"model": MODEL, "messages": [{"role": "user", "content": content}],
        "diffusion": {"preset": preset}})
}

/// A canvas of 1,024 masks, the budget of other decoders, takes these decoders another text and
/// hundreds of times the rows.
#[test]
fn decoders_that_read_the_whole_canvas_answer_chats_without_a_budget() {
    let served = Served::start();
    for preset in PRESETS {
        let answer = served.client().json("/v1/chat/completions", &chat(preset));
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.ends_with("Reversed it is pens, books, eggs, coins."), "{preset}: {text}");
    }
}

#[test]
fn the_default_budget_bounds_min_tokens() {
    let served = Served::start();
    for (preset, budget) in [("balanced", 1024), ("vanilla", 256)] {
        let mut body = chat(preset);
        body["min_tokens"] = json!(budget + 1);
        let refused = served.client().post("/v1/chat/completions", &body);
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        let expected =
            format!("min_tokens must be in 0..max_tokens ({budget}), got {}", budget + 1);
        assert!(message.contains(&expected), "{message}");
    }
}
