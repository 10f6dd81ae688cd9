//! `suffix`: infilling.

use crate::common::*;

/// Number of tokens of a text, without special tokens around it.
fn length(server: &Server, text: &str) -> u64 {
    server.tokenizer.encode(text, false).unwrap().len() as u64
}

#[tokio::test]
async fn a_suffix_is_seen_and_counts_as_prompt() {
    let server = server();
    let plain = ask!(server, COMPLETIONS {"max_tokens": 20, "ignore_eos": true});
    let suffix = " is what Mia has left.";
    let fields = json!({"max_tokens": 20, "ignore_eos": true, "suffix": suffix});
    let answer = server.complete(fields.clone()).await;
    let more = length(&server, suffix);
    assert_eq!(prompt_tokens(&answer), prompt_tokens(&plain) + more);
    assert_eq!(answer["usage"]["completion_tokens"], 20);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    // The answer has the prompt's ids; no list has the suffix.
    let shown = json!({"return_token_ids": true});
    let shown = server.complete(merge(fields.clone(), shown)).await;
    assert_eq!(text(&shown), text(&answer));
    let prompt = ids(&shown["choices"][0]["prompt_token_ids"]);
    assert_eq!(prompt.len() as u64, prompt_tokens(&plain));
    // Usage counts each prompt once, with its suffix.
    let two = json!({"prompt": [[9, 8], [7]], "n": 3});
    let two = server.complete(merge(fields.clone(), two)).await;
    assert_eq!(prompt_tokens(&two), 3 + 2 * more);
    let streamed = events(&server.stream(COMPLETIONS, fields.clone()).await);
    let streamed: String = streamed.iter().map(text).collect();
    assert_eq!(text(&answer), streamed);
    // An echo is of the prompt alone.
    let echo = merge(fields, json!({"echo": true}));
    let echo = server.complete(echo).await;
    assert_eq!(text(&echo), format!("Mia has 12 eggs.{}", text(&answer)));
    assert_eq!(prompt_tokens(&echo), prompt_tokens(&answer));
}

#[tokio::test]
async fn positions_behind_the_budget_carry_the_suffix() {
    let server = server();
    // The simulated model is surer next to known tokens, on either side.
    let logprob = async |suffix: &str| {
        let answer = ask!(server, COMPLETIONS {"max_tokens": 6, "ignore_eos": true, "logprobs": 0,
            "suffix": suffix, "diffusion": {"schedule": "block_wise", "commit": "top_k",
                "tokens_per_step": 6, "block_length": 6, "cache": "none"}});
        items(&answer["choices"][0]["logprobs"]["token_logprobs"])[5].as_f64()
    };
    assert!(logprob(" and nothing else.").await > logprob("").await);
}

#[tokio::test]
async fn the_context_holds_prompt_suffix_and_budget() {
    let server = server();
    let suffix = "a b c d";
    let behind = length(&server, suffix);
    let context = CONTEXT as usize;
    let fits = u64::from(CONTEXT) - 3 - behind;
    let fields = |budget| json!({"prompt": [9, 8, 7], "suffix": suffix, "max_tokens": budget});
    let answer = server.complete(fields(fits)).await;
    assert_eq!(prompt_tokens(&answer), 3 + behind);
    let (beyond, code) = (fields(fits + 1), "context_length_exceeded");
    let refused = server.refused(COMPLETIONS, &beyond, code, "max_tokens");
    let message = refused.await;
    assert!(message.contains(&format!("at most {fits}")), "{message}");
    let (long, beyond) = ("a b ".repeat(context), vec![9; context + 1]);
    // The error of a prompt that is too long by itself names the prompt.
    let cases = refusals! {
        {"prompt": [9], "suffix": long, "max_tokens": 1} => context_length_exceeded "suffix";
        {"prompt": beyond, "suffix": long, "max_tokens": 1} => context_length_exceeded "prompt";
    };
    server.refuses(COMPLETIONS, &cases).await;
    // Truncation applies to the prompt, not to the suffix.
    let cut = ask!(server, COMPLETIONS {"prompt": beyond, "suffix": suffix, "max_tokens": 1,
        "truncate_prompt_tokens": 5});
    assert_eq!(prompt_tokens(&cut), 5 + behind);
}
