//! Filters of the token choice on the real model: narrowed to one token, sampling is greedy at any
//! temperature.

use asynclane_tests::client::Client;
use asynclane_tests::reply::with;
use asynclane_tests::served::{MODEL, Served};
use serde_json::{Value, json};

const SEEDS: u64 = 3;

/// The token ids of an answer with these fields.
fn ids(client: Client, fields: &Value) -> Value {
    let body = json!({"model": MODEL, "prompt": "Mia has 12 eggs.", "max_tokens": 24,
        "ignore_eos": true, "return_token_ids": true});
    let answer = client.json("/v1/completions", &with(body, fields));
    answer["choices"][0]["token_ids"].clone()
}

#[test]
fn the_choice_is_narrowed_to_the_best_token() {
    let served = Served::start();
    let client = served.client();
    let greedy = ids(client, &json!({"temperature": 0}));
    for seed in 0..SEEDS {
        let cold = json!({"temperature": 0, "seed": seed});
        assert_eq!(ids(client, &cold), greedy);
        let hot = json!({"temperature": 2, "seed": seed});
        let free = ids(client, &hot);
        assert_ne!(free, greedy, "seed {seed}");
        assert_eq!(ids(client, &hot), free, "seed {seed} says the same again");
        for narrow in [json!({"top_k": 1}), json!({"top_p": 1e-6}), json!({"min_p": 1})] {
            let fields = with(hot.clone(), &narrow);
            assert_eq!(ids(client, &fields), greedy, "{fields}");
        }
        for off in [-1, 0] {
            let fields = with(hot.clone(), &json!({"top_k": off, "top_p": 1}));
            assert_eq!(ids(client, &fields), free, "{fields}");
        }
    }
}
