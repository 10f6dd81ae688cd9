//! Optional fields: biases, truncation, continuation.

use serde_json::Value;

use crate::common::*;

#[tokio::test]
async fn a_bias_bans_or_forces_a_token() {
    let server = server();
    let biased = async |bias: serde_json::Value| {
        let fields = json!({"max_tokens": 12, "return_token_ids": true, "logit_bias": bias});
        server.complete(fields).await["choices"][0].clone()
    };
    let plain = biased(json!({})).await;
    let first = ids(&plain["token_ids"])[0];
    let banned = ids(&biased(json!({first.to_string(): -100})).await["token_ids"]);
    assert_eq!(banned.len(), 12);
    assert!(!banned.contains(&first), "{banned:?}");
    let forced = biased(json!({"77": 100, "5": 100.0})).await;
    assert_eq!(ids(&forced["token_ids"]), [77; 12]);
    assert_eq!(biased(json!({"77": 0})).await, plain);
    // A bias cannot lift a ban.
    let endless = ask!(server, COMPLETIONS {"max_tokens": 60, "ignore_eos": true,
        "logit_bias": {"1": 100, "4": 100}});
    has!(endless, {"usage": {"completion_tokens": 60}, "choices": [{"finish_reason": "length"}]});
}

#[tokio::test]
async fn a_request_may_leave_its_model_out() {
    let server = server();
    for path in [COMPLETIONS, CHAT, RESPONSES, MESSAGES, COUNT] {
        let named = server.ask(path, json!({})).await;
        let unnamed = server.ask(path, json!({"model": null})).await;
        assert_eq!(unnamed["model"], named["model"], "{path}");
        let keys =
            |answer: &Value| -> Vec<_> { answer.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(keys(&unnamed), keys(&named), "{path}");
    }
}

#[tokio::test]
async fn only_the_last_tokens_of_a_prompt_are_kept() {
    let server = server();
    let whole = ask!(server, COMPLETIONS {"prompt": [30, 40, 50], "echo": true,
        "return_token_ids": true});
    let cut = ask!(server, COMPLETIONS {"prompt": [10, 20, 30, 40, 50], "echo": true,
        "truncate_prompt_tokens": 3, "return_token_ids": true});
    assert_eq!(cut["choices"], whole["choices"]);
    has!(cut, {"usage": {"prompt_tokens": 3}, "choices": [{"prompt_token_ids": [30, 40, 50]}]});
    // The removed tokens need not fit the context.
    for (path, fields, length) in rows! {
        COMPLETIONS, json!({"prompt": vec![10; 2000], "truncate_prompt_tokens": 7}), 7;
        COMPLETIONS, json!({"prompt": [10, 20], "truncate_prompt_tokens": 7}), 2;
        CHAT, json!({"truncate_prompt_tokens": 2}), 2;
    } {
        let answer = server.ask(path, fields).await;
        assert_eq!(answer["usage"]["prompt_tokens"], length);
    }
}

#[tokio::test]
async fn a_final_message_is_continued() {
    let server = server();
    let open = "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
        <|start_header_id|>assistant<|end_header_id|>\n\n";
    for said in ["", ">", "Mia has", "<|eot_id|>"] {
        let answer = ask!(server, CHAT {"messages": [{"role": "user", "content": "Hi"},
            {"role": "assistant", "content": said}], "continue_final_message": true,
            "return_token_ids": true});
        let prompt = format!("{open}{said}");
        let expected = server.tokenizer.encode(&prompt, false).unwrap();
        assert_eq!(ids(&answer["choices"][0]["prompt_token_ids"]), expected);
    }
}
