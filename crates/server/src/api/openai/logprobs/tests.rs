//! The JSON of both shapes, and the offsets of tokens in a text.

use engine::TokenLogprob;
use serde_json::{Value, json};
use step::{TokenId, TopToken};
use text::{SpecialTokens, Tokenizer, TokenizerFiles};

use super::{AnswerLogprobs, ChatLogprobs, CompletionLogprobs};
use crate::pipeline::logprobs::{ScoredToken, Scorer};

fn tokenizer() -> Tokenizer {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/checkpoint");
    let files = TokenizerFiles::read(std::path::Path::new(folder)).expect("the files are readable");
    Tokenizer::new(&files).expect("the files are in order")
}

fn id(tokenizer: &Tokenizer, text: &str) -> TokenId {
    let ids = tokenizer.encode(text, false).expect("a text");
    assert_eq!(ids.len(), 1, "{text:?} is one token");
    ids[0]
}

fn scored(token: TokenId, logprob: f32, top: &[(TokenId, f32)], offset: usize) -> ScoredToken {
    let top = top.iter().map(|&(token, logprob)| TopToken { token, logprob });
    let logprob = TokenLogprob { logprob, top: top.collect() };
    ScoredToken { token, logprob, offset }
}

fn completion(scored: &[ScoredToken], tokenizer: &Tokenizer) -> Value {
    let logprobs = AnswerLogprobs { scored, tokenizer, by_id: false };
    serde_json::to_value(CompletionLogprobs(logprobs)).expect("keys are strings")
}

fn chat(scored: &[ScoredToken], tokenizer: &Tokenizer) -> Value {
    let logprobs = AnswerLogprobs { scored, tokenizer, by_id: false };
    serde_json::to_value(ChatLogprobs(logprobs)).expect("keys are strings")
}

#[test]
fn completions_have_parallel_lists() {
    let tokenizer = tokenizer();
    let [a, b, c] = ["a", "b", "c"].map(|text| id(&tokenizer, text));
    let tokens = [
        scored(b, -1.5, &[(a, -0.5), (b, -1.5)], 0),
        scored(c, -4.0, &[(a, -0.25), (b, -2.0)], 3),
        scored(a, 0.0, &[(a, 0.0), (b, f32::NEG_INFINITY)], 4),
    ];
    let expected = json!({
        "tokens": ["b", "c", "a"],
        "token_logprobs": [-1.5, -4.0, 0.0],
        "top_logprobs": [{"a": -0.5, "b": -1.5}, {"a": -0.25, "b": -2.0, "c": -4.0}, {"a": 0.0}],
        "text_offset": [0, 3, 4],
    });
    assert_eq!(completion(&tokens, &tokenizer), expected);
    let none = json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    assert_eq!(completion(&[], &tokenizer), none);
}

#[test]
fn chats_have_one_object_a_token() {
    let tokenizer = tokenizer();
    let [a, b] = ["a", "b"].map(|text| id(&tokenizer, text));
    let tokens = [scored(b, -1.5, &[(a, -0.5), (b, f32::NEG_INFINITY)], 0)];
    let expected = json!({"content": [{"token": "b", "logprob": -1.5, "bytes": [98],
        "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}]}]});
    assert_eq!(chat(&tokens, &tokenizer), expected);
    let none = json!({"content": []});
    assert_eq!(chat(&[], &tokenizer), none);
}

#[test]
fn values_are_finite_and_never_a_negative_zero() {
    let tokenizer = tokenizer();
    let a = id(&tokenizer, "a");
    let tokens =
        [-0.0, f32::NEG_INFINITY, -20_000.0, -9998.5, 1e-7].map(|value| scored(a, value, &[], 0));
    let answer = completion(&tokens, &tokenizer);
    let expected = "[0.0,-9999.0,-9999.0,-9998.5,0.0]";
    assert_eq!(answer["token_logprobs"].to_string(), expected);
}

#[test]
fn of_tokens_with_one_text_the_chosen_counts() {
    let tokenizer = tokenizer();
    let texts = |id: &TokenId| tokenizer.token_text(*id) == "\u{FFFD}";
    let size = TokenId::try_from(tokenizer.vocab_size()).expect("a small vocabulary");
    let parts: Vec<TokenId> = (0..size).filter(texts).take(3).collect();
    let [first, second, third] = parts[..] else {
        panic!("the vocabulary has single bytes");
    };
    let tops = [(first, -0.5), (second, -1.0), (third, -3.0)];
    let tokens = [scored(second, -1.0, &tops, 0), scored(third, -3.0, &tops, 0)];
    let answer = completion(&tokens, &tokenizer);
    assert_eq!(answer["top_logprobs"], json!([{"\u{FFFD}": -1.0}, {"\u{FFFD}": -3.0}]));
    let answer = chat(&tokens, &tokenizer);
    let tops = answer["content"][0]["top_logprobs"].as_array();
    assert_eq!(tops.map(Vec::len), Some(3));
}

#[test]
fn offsets_count_characters_that_are_complete() {
    let tokenizer = tokenizer();
    let mut ids = tokenizer.encode("aé", false).expect("a text");
    ids.extend(tokenizer.eos_id());
    ids.extend(tokenizer.encode("b", false).expect("a text"));
    ids.extend([ids[1], ids[0]]);
    let entry = TokenLogprob { logprob: -1.0, top: Box::default() };
    let offsets = |specials| {
        let mut scorer = Scorer::new(tokenizer.detokenizer(specials));
        let mut offsets = Vec::new();
        for id in &ids {
            let scored = scorer.push(&[*id], vec![entry.clone()].into());
            offsets.extend(scored.iter().map(|one| one.offset));
        }
        let together = scorer_all(&tokenizer, specials, &ids, &entry);
        assert_eq!(offsets, together);
        offsets
    };
    // "é" has two bytes, which are a token each in this vocabulary; after "b" stands the first
    // of them alone.
    assert_eq!(ids.len(), 7);
    assert_eq!(offsets(SpecialTokens::Skip), [0, 1, 1, 2, 2, 3, 4]);
    let eos = tokenizer.eos_token().map_or(0, |text| text.chars().count());
    assert_eq!(offsets(SpecialTokens::KeepButMask), [0, 1, 1, 2, 2 + eos, 3 + eos, 4 + eos]);
}

fn scorer_all(
    tokenizer: &Tokenizer,
    specials: SpecialTokens,
    ids: &[TokenId],
    entry: &TokenLogprob,
) -> Vec<usize> {
    let mut scorer = Scorer::new(tokenizer.detokenizer(specials));
    let scored = scorer.push(ids, vec![entry.clone(); ids.len()].into());
    scored.iter().map(|one| one.offset).collect()
}
