//! Log-probabilities: shapes, values, one entry per delivered token.

use crate::common::*;

fn numbers(list: &Value) -> Vec<f64> {
    serde_json::from_value(list.clone()).unwrap()
}

/// Checks the lists of a completion's choice against its ids and its text.
fn assert_lists(server: &Server, choice: &Value, tops: usize) {
    let logprobs = &choice["logprobs"];
    let ids = ids(&choice["token_ids"]);
    let tokenizer = &server.tokenizer;
    let texts: Vec<_> = ids.iter().map(|id| tokenizer.token_text(*id)).collect();
    assert_eq!(logprobs["tokens"], json!(texts));
    let values = numbers(&logprobs["token_logprobs"]);
    assert_eq!(values.len(), ids.len());
    assert!(values.iter().all(|value| (-9999.0..=0.0).contains(value)));
    let tables = items(&logprobs["top_logprobs"]);
    assert_eq!(tables.len(), ids.len());
    for ((table, value), text) in tables.iter().zip(&values).zip(&texts) {
        let ranked = table.as_object().unwrap().values();
        let ranked: Vec<_> = ranked.map(|value| value.as_f64().unwrap()).collect();
        assert!((1..=tops + 1).contains(&ranked.len()), "{table:?}");
        assert_eq!(table[text].as_f64(), Some(*value), "{table:?}");
        assert!(ranked.is_sorted_by(|a, b| a >= b), "{ranked:?}");
    }
    let offsets = numbers(&logprobs["text_offset"]);
    assert_eq!(offsets.len(), ids.len());
    let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    let mut shown = 0;
    for ((offset, id), token) in offsets.into_iter().zip(ids).zip(texts) {
        if tokenizer.is_special(id) || token.contains('\u{FFFD}') {
            continue;
        }
        let rest = text[offset as usize..].iter();
        let here: String = rest.take(token.chars().count()).collect();
        assert_eq!(here, token, "at {offset}");
        shown += 1;
    }
    assert!(shown > 0, "no token shows as itself");
}

#[tokio::test]
async fn completions_list_chosen_and_most_probable_tokens() {
    let server = server();
    let sampled = ask!(server, COMPLETIONS {"max_tokens": 40, "ignore_eos": true, "temperature": 2,
        "seed": 11, "return_token_ids": true, "logprobs": 1});
    let choice = &sampled["choices"][0];
    assert_lists(&server, choice, 1);
    let mut tables = items(&choice["logprobs"]["top_logprobs"]).iter();
    let has_two = tables.any(|table| table.as_object().unwrap().len() == 2);
    assert!(has_two, "a sampled token has its own entry");
    let fields = json!({"max_tokens": 24, "seed": 1, "return_token_ids": true});
    let plain = server.complete(fields.clone()).await;
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
    let none = ask!(server, COMPLETIONS {"max_tokens": 0, "logprobs": 3});
    let empty = json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    assert_eq!(none["choices"][0]["logprobs"], empty);
    for tops in [0, 1, 5, 20] {
        let asked = merge(fields.clone(), json!({"logprobs": tops}));
        let answer = server.complete(asked).await;
        assert_eq!(answer["usage"], plain["usage"]);
        let choice = &answer["choices"][0];
        assert_eq!(choice["text"], plain["choices"][0]["text"]);
        assert_lists(&server, choice, tops);
        // Greedy: the chosen token is the most probable one, and every rank has an entry.
        let values = numbers(&choice["logprobs"]["token_logprobs"]);
        let tables = items(&choice["logprobs"]["top_logprobs"]).iter();
        for (table, value) in tables.zip(values) {
            let table = table.as_object().unwrap();
            assert_eq!(table.values().next().unwrap().as_f64(), Some(value));
            assert!(tops > 1 || table.len() == 1);
        }
    }
}

#[tokio::test]
async fn chats_list_tokens_as_objects() {
    let server = server();
    for (tops, count) in [(json!(0), 0), (json!(3), 3), (json!(null), 0)] {
        let answer = ask!(server, CHAT {"max_tokens": 20, "return_token_ids": true,
            "logprobs": true, "top_logprobs": tops});
        let choice = &answer["choices"][0];
        let content = &choice["logprobs"]["content"];
        assert_eq!(choice["logprobs"], json!({"content": content}));
        let ids = ids(&choice["token_ids"]);
        assert_eq!(items(content).len(), ids.len());
        for (entry, id) in items(content).iter().zip(ids) {
            let ranked = items(&entry["top_logprobs"]);
            assert_eq!(ranked.len(), count);
            let bytes = server.tokenizer.token_bytes(id).unwrap();
            let first = json!({"token": server.tokenizer.token_text(id),
                "logprob": entry["logprob"], "bytes": bytes});
            let expected = merge(first.clone(), json!({"top_logprobs": ranked}));
            assert_eq!(*entry, expected);
            assert!(ranked.first().is_none_or(|found| *found == first));
        }
    }
    let answer = ask!(server, CHAT {"max_tokens": 4, "logprobs": false});
    has!(answer, {"choices": [{"logprobs": null}]});
}

/// The joined logprobs of every choice of a stream; checks that ids are in the same chunks.
fn joined(stream: &str, choices: usize) -> Vec<Value> {
    let mut all = vec![json!({}); choices];
    for event in events(stream) {
        for choice in items(&event["choices"]) {
            let known = &mut all[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()];
            let logprobs = choice.get("logprobs").expect("the key is in every chunk");
            let count = choice["token_ids"].as_array().map_or(0, Vec::len);
            let Some(lists) = logprobs.as_object() else {
                assert_eq!(count, 0, "{choice}");
                continue;
            };
            for (name, list) in lists {
                assert_eq!(items(list).len(), count, "{choice}");
                let before = known[name].as_array().cloned().unwrap_or_default();
                known[name] = json!([&before, items(list)].concat());
            }
        }
    }
    all
}

#[tokio::test]
async fn streamed_logprobs_equal_those_of_the_plain_answer() {
    let server = server();
    let tops = rows! {
        COMPLETIONS, json!({"logprobs": 2, "return_token_ids": true});
        CHAT, json!({"logprobs": true, "top_logprobs": 2, "return_token_ids": true});
    };
    for fields in [
        json!({"max_tokens": 40, "n": 2, "temperature": 1, "seed": 3}),
        json!({"max_tokens": 60, "stop": ["a", "e"], "ignore_eos": true}),
        json!({"max_tokens": 60, "stop": ["zz"], "ignore_eos": true,
            "skip_special_tokens": false}),
        json!({"max_tokens": 30, "stop": ["i"], "include_stop_str_in_output": true}),
        json!({"max_tokens": 60, "response_format": {"type": "json_object"}, "seed": 9}),
    ] {
        for (path, tops) in &tops {
            let fields = merge(fields.clone(), tops.clone());
            let plain = server.ask(path, fields.clone()).await;
            let choices = items(&plain["choices"]);
            let streamed = joined(&server.stream(path, fields).await, choices.len());
            let mut total = 0;
            for (choice, streamed) in choices.iter().zip(streamed) {
                assert_eq!(choice["logprobs"], streamed, "{path}");
                let tokens = ids(&choice["token_ids"]).len();
                let mut lists = streamed.as_object().unwrap().values();
                assert!(lists.all(|list| items(list).len() == tokens));
                total += tokens;
            }
            assert_eq!(plain["usage"]["completion_tokens"], total);
        }
    }
}
