//! Optional fields: biases, truncation, continuation.

use crate::common::{server, tokenizer};
use serde_json::json;

#[tokio::test]
async fn a_bias_bans_or_forces_a_token() {
    let server = server();
    let fields = json!({"max_tokens": 12, "return_token_ids": true});
    let plain = server.complete(fields.clone()).await;
    let first = plain["choices"][0]["token_ids"][0].as_u64().unwrap();

    let mut banned = fields.clone();
    banned["logit_bias"] = json!({first.to_string(): -100});
    let answer = server.complete(banned).await;
    let ids = answer["choices"][0]["token_ids"].as_array().unwrap();
    assert_eq!(ids.len(), 12);
    assert!(ids.iter().all(|id| *id != first), "{ids:?}");

    let mut forced = fields.clone();
    forced["logit_bias"] = json!({"77": 100, "5": 100.0});
    let answer = server.complete(forced).await;
    assert_eq!(answer["choices"][0]["token_ids"], json!(vec![77; 12]));

    let mut neutral = fields;
    neutral["logit_bias"] = json!({"77": 0});
    assert_eq!(server.complete(neutral).await["choices"], plain["choices"]);
}

#[tokio::test]
async fn a_bias_cannot_lift_a_ban() {
    let server = server();
    let fields = json!({"max_tokens": 60, "ignore_eos": true, "logit_bias": {"1": 100, "4": 100}});
    let answer = server.complete(fields).await;
    assert_eq!(answer["usage"]["completion_tokens"], 60);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn only_the_last_tokens_of_a_prompt_are_kept() {
    let server = server();
    let kept = json!([30, 40, 50]);
    let whole = server
        .complete(json!({"prompt": kept, "echo": true, "return_token_ids": true}))
        .await;
    let cut = json!({"prompt": [10, 20, 30, 40, 50], "truncate_prompt_tokens": 3, "echo": true,
        "return_token_ids": true});
    let answer = server.complete(cut).await;
    assert_eq!(answer["choices"], whole["choices"]);
    assert_eq!(answer["choices"][0]["prompt_token_ids"], kept);
    assert_eq!(answer["usage"]["prompt_tokens"], 3);

    // The removed tokens need not fit the context.
    let long = json!({"prompt": vec![10; 2000], "truncate_prompt_tokens": 7});
    assert_eq!(server.complete(long).await["usage"]["prompt_tokens"], 7);
    let short = json!({"prompt": [10, 20], "truncate_prompt_tokens": 7});
    assert_eq!(server.complete(short).await["usage"]["prompt_tokens"], 2);
    let chat = server.chat(json!({"truncate_prompt_tokens": 2})).await;
    assert_eq!(chat["usage"]["prompt_tokens"], 2);
}

#[tokio::test]
async fn a_final_message_is_continued() {
    let server = server();
    let open = "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
        <|start_header_id|>assistant<|end_header_id|>\n\n";
    for said in ["", ">", "Mia has", "<|eot_id|>"] {
        let messages = json!([{"role": "user", "content": "Hi"},
            {"role": "assistant", "content": said}]);
        let answer = server
            .chat(json!({"messages": messages, "continue_final_message": true,
                "return_token_ids": true}))
            .await;
        let expected = tokenizer().encode(&format!("{open}{said}"), false).unwrap();
        assert_eq!(
            answer["choices"][0]["prompt_token_ids"],
            json!(expected),
            "{said}"
        );
    }
}
