//! Encoding: decoding returns every text, including special tokens.

use asynclane_text::{Tokenizer, TokenizerFiles};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE, alone, byte_level};
use crate::fixtures::{byte_level_with, bytes, config, texts};

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn every_text_comes_back(text in prop_oneof![texts(), any::<String>()]) {
        for pair in [&*DEMO_PAIR, &*BYTE_LEVEL] {
            let ids = pair.ours.encode(&text, false).unwrap();
            prop_assert_eq!(&pair.ours.decode(&ids, false), &text);
            let theirs = pair.theirs.encode(text.as_str(), false).unwrap();
            prop_assert_eq!(ids.as_slice(), theirs.get_ids());
            let bytes = ids.iter().flat_map(|id| pair.ours.token_bytes(*id).unwrap());
            prop_assert_eq!(bytes.collect::<Vec<u8>>(), text.as_bytes());
        }
    }

    /// Like Llama's, its normalizer turns `▁` into a blank and adds a blank after special tokens.
    #[test]
    fn every_text_without_these_comes_back_from_metaspace(
        text in prop_oneof![texts(), any::<String>()],
    ) {
        let text = text.replace(['<', '▁'], "");
        let tokenizer = &METASPACE[LLAMA].ours;
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert_eq!(&tokenizer.decode(&ids, false), &text);
    }

    /// No text is longer than its tokens can be.
    #[test]
    fn a_text_has_as_many_tokens_as_its_bytes_need(text in prop_oneof![texts(), any::<String>()]) {
        for pair in [&*DEMO_PAIR, &*BYTE_LEVEL, &METASPACE[LLAMA]] {
            let longest = pair.ours.longest_token_bytes().unwrap();
            let tokens = pair.ours.encode(&text, false).unwrap().len();
            prop_assert!(text.len() <= tokens * longest, "{} > {tokens} * {longest}", text.len());
        }
    }
}

/// A byte-level tokenizer with other stages: a normalizer, a pre-tokenizer, added tokens.
fn with_stages(normalizer: Value, pre_tokenizer: Value, added: Value) -> Tokenizer {
    let mut tokenizer = byte_level_with(&[], &[]);
    tokenizer["added_tokens"] = added;
    tokenizer["normalizer"] = normalizer;
    tokenizer["pre_tokenizer"] =
        json!({"type": "Sequence", "pretokenizers": [pre_tokenizer, byte_level()]});
    alone(&tokenizer).unwrap()
}

#[test]
fn the_longest_token_is_known_where_no_stage_drops_text() {
    let (none, nfc) = (Value::Null, json!({"type": "NFC"}));
    let split = |behavior: &str| json!({"type": "Split", "pattern": {"Regex": " +"}, "behavior": behavior, "invert": false});
    let token = |lstrip: bool| {
        json!([{"id": 256, "content": "<|eight|>", "single_word": false, "lstrip": lstrip,
            "rstrip": false, "normalized": false, "special": true}])
    };
    let replace =
        |content: &str| json!({"type": "Replace", "pattern": {"String": "ab"}, "content": content});
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    for (normalizer, pre_tokenizer, added, longest) in [
        (&none, byte_level(), json!([]), Some(1)),
        (&nfc, byte_level(), json!([]), Some(3)),
        (&none, byte_level(), token(false), Some(9)),
        (&none, byte_level(), token(true), None),
        (&none, split("Isolated"), json!([]), Some(1)),
        (&none, split("Removed"), json!([]), None),
        (&replace("cd"), byte_level(), json!([]), Some(1)),
        (&replace("c"), byte_level(), json!([]), None),
        (&strip, byte_level(), json!([]), None),
    ] {
        let name = format!("{normalizer} {pre_tokenizer} {added}");
        let tokenizer = with_stages(normalizer.clone(), pre_tokenizer, added);
        assert_eq!(tokenizer.longest_token_bytes(), longest, "{name}");
    }
    // Signs of three bytes that compose to a character of one byte.
    let composed = with_stages(nfc, byte_level(), json!([]));
    for text in ["\u{212a}", "\u{1fef}"] {
        let tokens = composed.encode(text, false).unwrap().len();
        assert_eq!(text.len(), 3 * tokens);
    }
}

#[test]
fn special_tokens_in_a_text_become_their_ids() {
    let tokenizer = &DEMO_PAIR.ours;
    let text = "<|startoftext|>a<|mdm_mask|>";
    let ids = tokenizer.encode(text, true).unwrap();
    assert_eq!(ids, [0, 70, 5]);
    assert_eq!(tokenizer.decode(&ids, false), text);
    assert_eq!(tokenizer.decode(&ids, true), "a");
    assert_eq!(tokenizer.encode("", true).unwrap(), [0_u32; 0]);
    assert_eq!(tokenizer.decode(&[], false), "");
}

#[test]
fn the_demo_knows_its_special_tokens() {
    let tokenizer = &DEMO_PAIR.ours;
    let (end, mask) = ("<|endoftext|>", "<|mdm_mask|>");
    let begin = "<|startoftext|>";
    for (token, id, expected) in [
        (tokenizer.bos_token(), tokenizer.bos_id(), (begin, 0)),
        (tokenizer.eos_token(), tokenizer.eos_id(), (end, 1)),
        (tokenizer.pad_token(), tokenizer.pad_id(), (end, 1)),
        (tokenizer.mask_token(), tokenizer.mask_id(), (mask, 5)),
    ] {
        assert_eq!((token, id), (Some(expected.0), Some(expected.1)));
    }
    assert_eq!(tokenizer.eos_ids(), [1]);
    assert_eq!(tokenizer.vocab_size(), 842);
    assert!((0..900).all(|id| tokenizer.is_special(id) == (id < 6)));
    assert_eq!(tokenizer.token_text(900), "");
    assert_eq!(tokenizer.token_bytes(900), None);
}

/// A tokenizer with the 256 byte tokens and `config`.
fn configured(config: Value) -> Tokenizer {
    let mut tokenizer = byte_level_with(&[], &[]);
    tokenizer["truncation"] = json!({"max_length": 2, "strategy": "LongestFirst", "stride": 0,
        "direction": "Right"});
    let generation = json!({"eos_token_id": [256, 65], "pad_token_id": 66});
    let files = TokenizerFiles {
        tokenizer: Some(bytes(&tokenizer)),
        config: Some(bytes(&config)),
        generation_config: Some(bytes(&generation)),
        ..Default::default()
    };
    Tokenizer::new(&files).unwrap()
}

#[test]
fn the_config_adds_tokens_and_puts_them_around_a_text() {
    let token = |content: &str| json!({"content": content, "special": true});
    let tokenizer = configured(json!({"added_tokens_decoder": {"257": token("<b>"),
        "256": token("<e>")}, "bos_token": "<b>", "eos_token": {"content": "<e>"},
        "add_bos_token": true, "additional_special_tokens": ["Z"]}));
    let ids = tokenizer.encode("ab<e>c", true).unwrap();
    assert_eq!(ids, [257, 97, 98, 256, 99]);
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [97, 98]);
    assert_eq!(tokenizer.eos_ids(), [256, 65]);
    let pad = (tokenizer.pad_token(), tokenizer.pad_id());
    assert_eq!(pad, (Some("B"), Some(66)));
    assert_eq!(tokenizer.decode(&[257, 97, 90, 256], true), "a");
    assert_eq!(tokenizer.mask_id(), None);
}

#[test]
fn a_mask_named_later_is_special_and_hidden() {
    let mut tokenizer = configured(json!({}));
    tokenizer.set_mask_id(90);
    let mask = (tokenizer.mask_token(), tokenizer.mask_id());
    assert_eq!(mask, (Some("Z"), Some(90)));
    assert!(tokenizer.is_special(90));
    assert_eq!(tokenizer.decode(&[97, 90], true), "a");
}
