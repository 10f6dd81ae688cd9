//! Draft models that are refused, each in one line, before any weight is read.

use clap::Parser;
use text::{Tokenizer, TokenizerFiles};

use super::*;
use crate::args::{Cli, Command};

fn config(arguments: &[&str]) -> Config {
    let cli = Cli::parse_from([&["asynclane", "serve"][..], arguments].concat());
    let Command::Serve(args) = cli.command else {
        panic!("not serve");
    };
    Config::resolve(&args.model, Some(&args)).expect("a valid configuration")
}

fn refusal(arguments: &[&str]) -> String {
    let config = config(arguments);
    let mut checkpoint = load::checkpoint(&config.model.path).expect("it is embedded");
    let dtype = *config.model.dtype;
    let info = checkpoint.survey(dtype).expect("it loads").info;
    match choose(&config, &config.model.path, &info) {
        Ok(_) => panic!("{arguments:?} was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_model_that_is_not_causal_verifies_nothing() {
    assert_eq!(
        refusal(&["demo", "--draft-model", "demo"]),
        "model.draft_model: expected a causal model as model.path, found demo with full attention"
    );
}

#[test]
fn a_decoder_that_does_not_go_with_the_draft_model_is_refused() {
    let pair = ["demo-wedlm", "--draft-model", "demo", "--draft-decoder"];
    assert_eq!(
        refusal(&[&pair[..], &["wedlm"]].concat()),
        "model.draft_decoder: cache: exact does not go with this model's full attention: use preset balanced"
    );
    let unknown = refusal(&[&pair[..], &["balanced,treshold=1"]].concat());
    assert!(unknown.starts_with("model.draft_decoder: treshold is not known"), "{unknown}");
}

#[test]
fn a_missing_draft_model_is_named() {
    let line = refusal(&["demo-wedlm", "--draft-model", "/nowhere"]);
    assert!(line.starts_with("/nowhere: no such file or folder"), "{line}");
}

#[test]
fn the_demo_pair_is_chosen() {
    let config = config(&["demo-wedlm", "--draft-model", "demo"]);
    let mut checkpoint = load::checkpoint("demo-wedlm").expect("it is embedded");
    let dtype = *config.model.dtype;
    let info = checkpoint.survey(dtype).expect("it loads").info;
    let chosen = choose(&config, &config.model.path, &info).expect("they share a tokenizer");
    let chosen = chosen.expect("one is configured");
    assert_eq!(chosen.decoding.label, "block_wise+top_k+none");
    assert!(chosen.bytes > 1 << 20);
}

/// Two tokenizers of words; the second has them in another order from id 2 on.
#[test]
fn the_first_token_that_differs_is_named() {
    let tokenizer = |words: &[&str]| {
        let vocab: serde_json::Map<String, serde_json::Value> =
            (0..).zip(words).map(|(id, word): (u32, _)| ((*word).to_owned(), id.into())).collect();
        let file = serde_json::json!({
            "version": "1.0",
            "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"},
        });
        let files = TokenizerFiles {
            tokenizer: Some(file.to_string().into_bytes()),
            ..TokenizerFiles::default()
        };
        Tokenizer::new(&files).expect("a tokenizer")
    };
    let words = tokenizer(&["?", "a", "b", "c"]);
    assert_eq!(difference(&words, &tokenizer(&["?", "a", "b", "c"])), None);
    assert_eq!(difference(&words, &tokenizer(&["?", "a", "b", "c", "d"])), None);
    assert_eq!(
        difference(&words, &tokenizer(&["?", "a", "c", "b"])).as_deref(),
        Some(r#"token 2 is "b" and "c""#)
    );
}

const PAIR: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/model/fixtures/dflash/qwen3");

/// The arguments of the tiny pair.
fn pair(more: &[&str]) -> Config {
    let [target, drafter] = ["target", "drafter"].map(|part| format!("{PAIR}/{part}"));
    config(&[&[&*target, "--draft-model", &*drafter], more].concat())
}

#[test]
fn a_dflash_drafter_joins_the_layers_of_its_target() {
    let config = pair(&[]);
    let place = &config.model.path;
    let mut checkpoint = load::configured(place, &config).expect("they go together");
    let info = checkpoint.survey(*config.model.dtype).expect("it loads").info;
    assert_eq!(info.rows.drafter.map(|drafter| drafter.block), Some(8));
    let chosen = choose(&config, place, &info).expect("it is no second model");
    assert!(chosen.is_none());
    let weights = config.weights(&info);
    let decoders = config.decoders(weights).expect("the default goes with the weights");
    let default = decoders.resolve(&decoders.blank()).expect("it resolves");
    assert_eq!((&*default.label, default.window()), ("streaming+block_check+exact", Some(8)));
    let presets: Vec<&str> = weights.presets().map(|preset| preset.name).collect();
    assert_eq!(presets, ["autoregressive", "self_speculation", "prompt_lookup"]);
    let plain = decoders.default_for(&[decode::Feature::Grammar]).expect("it resolves");
    assert_eq!((&*plain.label, plain.window()), ("streaming+entropy+exact", Some(1)));
}

#[test]
fn a_decoder_for_a_dflash_drafter_is_refused() {
    let config = pair(&["--draft-decoder", "vanilla"]);
    let refused = load::configured(&config.model.path, &config).err().expect("it is refused");
    let expected = "model.draft_decoder: expected auto beside a DFlash drafter, which fills a block in one \
                    pass, found vanilla";
    assert_eq!(refused.to_string(), expected);
}

/// A drafter is no model of its own.
#[test]
fn a_dflash_drafter_alone_is_refused() {
    let config = config(&[&format!("{PAIR}/drafter")]);
    let mut checkpoint = load::configured(&config.model.path, &config).expect("it opens");
    let refused = checkpoint.survey(*config.model.dtype).expect_err("it is refused").to_string();
    let expected = "config.json: dflash_config: expected none: a drafter runs behind its target, as \
                    model.draft_model, found ";
    assert!(refused.starts_with(expected), "{refused}");
}
