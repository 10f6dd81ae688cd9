//! Log-probabilities: shapes, values, one entry per delivered token.

use crate::common::{Server, chat, completion, events, server};
use axum::http::StatusCode;
use serde_json::{Value, json};
use step::TokenId;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn ids(choice: &Value) -> Vec<TokenId> {
    let ids = choice["token_ids"].as_array().expect("ids were asked for");
    ids.iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

fn numbers(list: &Value) -> Vec<f64> {
    let list = list.as_array().expect("a list");
    list.iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Checks the lists of a completion's choice against its ids and its text.
fn assert_lists(server: &Server, choice: &Value, tops: usize) {
    let logprobs = &choice["logprobs"];
    let ids = ids(choice);
    let texts: Vec<_> = ids
        .iter()
        .map(|id| server.tokenizer.token_text(*id))
        .collect();
    assert_eq!(logprobs["tokens"], json!(texts));
    let values = numbers(&logprobs["token_logprobs"]);
    assert_eq!(values.len(), ids.len());
    assert!(
        values.iter().all(|value| (-9999.0..=0.0).contains(value)),
        "{values:?}"
    );
    let tables = logprobs["top_logprobs"].as_array().unwrap();
    assert_eq!(tables.len(), ids.len());
    for ((table, value), text) in tables.iter().zip(&values).zip(&texts) {
        let table = table.as_object().unwrap();
        assert!((1..=tops + 1).contains(&table.len()), "{table:?}");
        assert_eq!(table[text].as_f64(), Some(*value), "{table:?}");
        let ranked: Vec<_> = table
            .values()
            .map(|value| value.as_f64().unwrap())
            .collect();
        assert!(ranked.is_sorted_by(|a, b| a >= b), "{ranked:?}");
    }
    let offsets = logprobs["text_offset"].as_array().unwrap();
    assert_eq!(offsets.len(), ids.len());
    let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    let mut shown = 0;
    for (offset, id) in offsets.iter().zip(&ids) {
        let offset = usize::try_from(offset.as_u64().unwrap()).unwrap();
        let token = server.tokenizer.token_text(*id);
        if server.tokenizer.is_special(*id) || token.contains('\u{FFFD}') {
            continue;
        }
        let here: String = text[offset..].iter().take(token.chars().count()).collect();
        assert_eq!(here, token, "at {offset}");
        shown += 1;
    }
    assert!(shown > 0, "no token shows as itself");
}

#[tokio::test]
async fn completions_list_chosen_and_most_probable_tokens() {
    let server = server();
    let fields = json!({"max_tokens": 24, "seed": 1, "return_token_ids": true});
    let plain = server.complete(fields.clone()).await;
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
    for tops in [0, 1, 5, 20] {
        let mut asked = fields.clone();
        asked["logprobs"] = json!(tops);
        let answer = server.complete(asked).await;
        assert_eq!(answer["usage"], plain["usage"]);
        let choice = &answer["choices"][0];
        assert_eq!(choice["text"], plain["choices"][0]["text"]);
        assert_lists(&server, choice, tops);
        // Greedy: the chosen token is the most probable one, and every rank has an entry.
        let values = numbers(&choice["logprobs"]["token_logprobs"]);
        let tables = choice["logprobs"]["top_logprobs"].as_array().unwrap();
        for (table, value) in tables.iter().zip(values) {
            let table = table.as_object().unwrap();
            assert_eq!(table.values().next().unwrap().as_f64(), Some(value));
            if tops <= 1 {
                assert_eq!(table.len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn a_sampled_token_has_its_own_entry() {
    let server = server();
    let fields = json!({"max_tokens": 40, "ignore_eos": true, "temperature": 2, "seed": 11,
        "return_token_ids": true, "logprobs": 1});
    let answer = server.complete(fields).await;
    let choice = &answer["choices"][0];
    assert_lists(&server, choice, 1);
    let tables = choice["logprobs"]["top_logprobs"].as_array().unwrap();
    let two = tables
        .iter()
        .filter(|table| table.as_object().unwrap().len() == 2);
    assert!(two.count() > 0, "every token was the most probable one");
}

#[tokio::test]
async fn chats_list_tokens_as_objects() {
    let server = server();
    let fields = json!({"max_tokens": 20, "return_token_ids": true, "logprobs": true});
    for tops in [0, 3] {
        let mut asked = fields.clone();
        asked["top_logprobs"] = json!(tops);
        let answer = server.chat(asked).await;
        let choice = &answer["choices"][0];
        let logprobs = choice["logprobs"].as_object().unwrap();
        assert_eq!(logprobs.len(), 1);
        let content = logprobs["content"].as_array().unwrap();
        let ids = ids(choice);
        assert_eq!(content.len(), ids.len());
        for (entry, id) in content.iter().zip(ids) {
            assert_eq!(entry.as_object().unwrap().len(), 4);
            assert_eq!(entry["token"], server.tokenizer.token_text(id));
            assert_eq!(
                entry["bytes"],
                json!(server.tokenizer.token_bytes(id).unwrap())
            );
            let ranked = entry["top_logprobs"].as_array().unwrap();
            assert_eq!(ranked.len(), tops);
            if let Some(first) = ranked.first() {
                assert_eq!(first.as_object().unwrap().len(), 3);
                assert_eq!(first["token"], entry["token"]);
                assert_eq!(first["logprob"], entry["logprob"]);
            }
        }
    }
    let answer = server
        .chat(json!({"max_tokens": 4, "logprobs": false}))
        .await;
    assert_eq!(answer["choices"][0]["logprobs"], Value::Null);
    let answer = server.chat(fields).await;
    assert_eq!(
        answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"],
        json!([])
    );
}

/// The joined logprobs of every choice of a stream; checks that ids are in the same chunks.
fn joined(stream: &str, choices: usize) -> Vec<Value> {
    let mut all = vec![Value::Null; choices];
    for event in events(stream) {
        for choice in event["choices"].as_array().unwrap() {
            let known = &mut all[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()];
            let logprobs = choice.get("logprobs").expect("the key is in every chunk");
            let count = choice
                .get("token_ids")
                .map_or(0, |ids| ids.as_array().unwrap().len());
            let Some(lists) = logprobs.as_object() else {
                assert_eq!(count, 0, "{choice}");
                continue;
            };
            for (name, list) in lists {
                let list = list.as_array().unwrap();
                assert_eq!(list.len(), count, "{choice}");
                if known[name].is_null() {
                    known[name] = json!([]);
                }
                known[name]
                    .as_array_mut()
                    .unwrap()
                    .extend(list.iter().cloned());
            }
        }
    }
    all
}

#[tokio::test]
async fn streamed_logprobs_equal_those_of_the_plain_answer() {
    let server = server();
    let fields = [
        json!({"max_tokens": 40, "n": 2, "temperature": 1, "seed": 3}),
        json!({"max_tokens": 60, "stop": ["a", "e"], "ignore_eos": true}),
        json!({"max_tokens": 60, "stop": ["zz"], "ignore_eos": true,
            "skip_special_tokens": false}),
        json!({"max_tokens": 30, "stop": ["i"], "include_stop_str_in_output": true}),
    ];
    for (path, body) in fields.iter().flat_map(|fields| {
        let (mut c, mut h) = (completion(fields.clone()), chat(fields.clone()));
        c["logprobs"] = json!(2);
        (h["logprobs"], h["top_logprobs"]) = (json!(true), json!(2));
        [(COMPLETIONS, c), (CHAT, h)]
    }) {
        let mut body = body;
        body["return_token_ids"] = json!(true);
        let (status, plain) = server.post(path, &body).await;
        assert_eq!(status, StatusCode::OK, "{plain}");
        body["stream"] = json!(true);
        let choices = plain["choices"].as_array().unwrap();
        let streamed = joined(&server.stream(path, &body).await, choices.len());
        for (choice, streamed) in choices.iter().zip(streamed) {
            assert_eq!(choice["logprobs"], streamed, "{body}");
            let lists = choice["logprobs"].as_object().unwrap();
            let tokens = ids(choice).len();
            assert!(
                lists
                    .values()
                    .all(|list| list.as_array().unwrap().len() == tokens)
            );
        }
        let total: usize = choices.iter().map(|choice| ids(choice).len()).sum();
        assert_eq!(plain["usage"]["completion_tokens"], total);
    }
}

#[tokio::test]
async fn an_answer_without_tokens_has_empty_lists() {
    let server = server();
    let answer = server
        .complete(json!({"max_tokens": 0, "logprobs": 3}))
        .await;
    let empty = json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    assert_eq!(answer["choices"][0]["logprobs"], empty);
}
