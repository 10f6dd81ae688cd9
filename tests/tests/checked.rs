//! Checked guesses and predicted answers on real weights. A prediction changes no token.
//! `wedlm_exact` writes what `autoregressive` writes, in fewer forwards,
//! and `wedlm_next` what it writes itself with a window of one position; so do tiny checkpoints of random
//! weights, whatever is guessed.

use std::path::Path;

use asynclane_tests::run::{self, Outcome, tiny};
use demo::checkpoint::{BLOCK_CAUSAL, DEMO, Embedded, WEDLM};
use engine::Request;
use model::{Checkpoint, Cpu, Files, Model, RowGate};
use problems::{Split, Task, generate};
use step::{Bias, Executor};
use text::{Conversation, Message, Tokenizer, TokenizerFiles};

const FAMILIES: &str = "../crates/model/tests/model/fixtures/families";

fn forwards(outcomes: &[Outcome]) -> u32 {
    let ends = outcomes.iter().filter_map(|outcome| outcome.finished);
    ends.map(|end| end.stats.forwards()).sum()
}

/// Random weights: guesses are right by chance alone.
#[test]
fn tiny_checkpoints_write_what_one_position_writes() {
    for name in ["wedlm-7b", "wedlm-8b", "wedlm-8b-bf16"] {
        let families = Path::new(env!("CARGO_MANIFEST_DIR")).join(FAMILIES);
        let files = Files::folder(families.join(name));
        let mut executor = tiny(Cpu::default(), &files, (4, 2048), None);
        let mask = executor.spec().mask;
        let requests = |settings: &str| -> Vec<Request> {
            let request = |number: u32| {
                let tokens = (0..number + 3).map(|index| 6 + (7 * index + number) % 40);
                let prompt: Vec<u32> = tokens.collect();
                let mut request = run::request(&prompt, 40, &[], settings);
                request.logits.biases.extend(mask.map(Bias::ban));
                request
            };
            (0..8).map(request).collect()
        };
        let alone = run::run(&mut executor, requests("autoregressive"));
        for settings in ["entropy_threshold=9", "window=9,entropy_threshold=9"] {
            let found = run::run(&mut executor, requests(&format!("wedlm_exact,{settings}")));
            for (ours, theirs) in found.iter().zip(&alone) {
                assert_eq!(ours.tokens, theirs.tokens, "{name}, {settings}");
            }
            let (fewer, all) = (forwards(&found), forwards(&alone));
            assert!(fewer < all, "{name}, {settings}: {fewer} of {all} forwards");
        }
    }
}

/// I-DLM: the weights of a language model that know a mask write what the language model writes.
#[test]
fn strictly_causal_masks_write_what_the_language_model_writes() {
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join(FAMILIES);
    let read = |name: &str| std::fs::read(families.join("qwen3").join(name)).expect(name);
    let mut config: serde_json::Value =
        serde_json::from_slice(&read("config.json")).expect("a configuration");
    let plain = Files::folder(families.join("qwen3"));
    for (key, value) in [
        ("architectures", serde_json::json!(["SDARForCausalLM"])),
        ("use_regular_causal", true.into()),
        ("mask_token_id", 5.into()),
    ] {
        config[key] = value;
    }
    let masked = Files::memory([
        ("config.json", config.to_string().into_bytes()),
        ("model.safetensors", read("model.safetensors")),
    ]);
    let requests = |settings: &str| -> Vec<Request> {
        let request = |number: u32| {
            let tokens = (0..number + 3).map(|index| 6 + (7 * index + number) % 40);
            let mut request = run::request(&tokens.collect::<Vec<_>>(), 40, &[], settings);
            // The language model knows no mask.
            request.logits.biases.push(Bias::ban(5));
            request
        };
        (0..8).map(request).collect()
    };
    let mut executor = tiny(Cpu::default(), &plain, (4, 2048), None);
    let alone = run::run(&mut executor, requests("autoregressive"));
    let mut executor = tiny(Cpu::default(), &masked, (4, 2048), None);
    for settings in ["autoregressive", "introspective", "introspective,window=15,stale=keep"] {
        let found = run::run(&mut executor, requests(settings));
        for (ours, theirs) in found.iter().zip(&alone) {
            assert_eq!(ours.tokens, theirs.tokens, "{settings}");
        }
        let (ours, all) = (forwards(&found), forwards(&alone));
        assert!(ours < all || settings == "autoregressive", "{settings}: {ours} of {all}");
    }
}

/// An adapter of Nemotron-Labs-Diffusion's drafts: random factors of every `o_proj`, `[24, 48]`.
fn draft_adapter() -> Files {
    const RANK: u32 = 2;
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (layer, (factor, shape)) in [0, 1]
        .iter()
        .flat_map(|layer| [("A", [RANK, 48]), ("B", [24, RANK])].map(|factor| (layer, factor)))
    {
        let name =
            format!("base_model.model.encoder.layers.{layer}.self_attn.o_proj.lora_{factor}");
        let start = data.len();
        let numbers = (0..shape[0] * shape[1]).map(|number| (number * 37 % 19) as f32 / 19.0 - 0.5);
        data.extend(numbers.flat_map(f32::to_le_bytes));
        let tensor = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(format!("{name}.weight"), tensor);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend(header.as_bytes());
    weights.extend(data);
    let config = serde_json::json!({"peft_type": "LORA", "r": RANK, "lora_alpha": 8,
        "target_modules": ["o_proj"]});
    Files::memory([
        ("adapter_config.json", config.to_string().into_bytes()),
        ("adapter_model.safetensors", weights),
    ])
}

/// The drafts are others, the texts are the same.
#[test]
fn an_adapter_for_drafts_changes_no_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FAMILIES).join("nemotron-labs");
    let texts = |gate: Option<RowGate>| {
        let mut checkpoint = Checkpoint::open(&Files::folder(&folder)).expect("a checkpoint");
        if gate.is_some() {
            checkpoint = checkpoint.with_lora(&draft_adapter(), gate).expect("an adapter");
        }
        let mut executor = run::sized(Model::load(checkpoint).expect("it loads"), (4, 2048), None);
        let request = |number: u32| {
            let tokens = (0..number + 3).map(|index| 6 + (7 * index + number) % 40);
            run::request(&tokens.collect::<Vec<_>>(), 60, &[], "self_speculation,window=8")
        };
        let found = run::run(&mut executor, (0..12).map(request).collect());
        let spent = forwards(&found);
        (found.into_iter().map(|outcome| outcome.tokens).collect::<Vec<_>>(), spent)
    };
    let (plain, adapted) = (texts(None), texts(Some(RowGate::OpenBlocks)));
    assert_eq!(plain.0, adapted.0);
    assert_ne!(plain.1, adapted.1, "no draft changed");
}

fn demo_tokenizer(model: &Embedded) -> Tokenizer {
    let file = |name| model.file(name).map(<[u8]>::to_vec);
    let files = TokenizerFiles {
        tokenizer: file("tokenizer.json"),
        config: file("tokenizer_config.json"),
        special_tokens_map: file("special_tokens_map.json"),
        generation_config: file("generation_config.json"),
        ..TokenizerFiles::default()
    };
    Tokenizer::new(&files).expect("the embedded tokenizer loads")
}

/// Problems of the three families as chats.
fn problems(tokenizer: &Tokenizer) -> Vec<Vec<u32>> {
    let template = tokenizer.chat_template().expect("a template");
    let tasks = [Task::Sums, Task::Snippets, Task::Lists];
    let problems = tasks.map(|task| generate(task, Split::Eval, 77, 12));
    let ids = |prompt: &str| {
        let chat = Conversation::new(vec![Message::new("user", prompt)]);
        let text = template.render_conversation(&chat, true);
        let text = text.expect("the template renders");
        tokenizer.encode(&text, false).expect("it encodes")
    };
    let problems = problems.iter().flatten();
    problems.map(|problem| ids(&problem.prompt)).collect()
}

/// On trained weights most guesses are right: three quarters of the forwards are saved at least.
#[test]
fn the_causal_demo_model_writes_what_one_position_writes() {
    let tokenizer = demo_tokenizer(&WEDLM);
    let files = Files::memory(WEDLM.files());
    let mut executor = tiny(Cpu::default(), &files, (16, 2048), None);
    let prompts = problems(&tokenizer);
    let mut decoded = |settings: &str| {
        let stops = tokenizer.eos_ids();
        let prompts = prompts.iter();
        let requests = prompts.map(|ids| run::request(ids, 160, stops, settings));
        run::run(&mut executor, requests.collect())
    };
    for (one_by_one, decoder) in
        [("autoregressive", "wedlm_exact"), ("wedlm_next,window=1", "wedlm_next")]
    {
        let (alone, found) = (decoded(one_by_one), decoded(decoder));
        for (number, (ours, theirs)) in found.iter().zip(&alone).enumerate() {
            assert_eq!(ours.tokens, theirs.tokens, "{decoder}, problem {number}");
        }
        let (fewer, all) = (forwards(&found), forwards(&alone));
        assert!(fewer * 4 < all, "{decoder}: {fewer} of {all} forwards");
    }
}

/// A predicted answer is verified by the rule of the decoder: with the answer itself and with another
/// token in place of every tenth, the text is the one without a prediction.
#[test]
fn a_prediction_changes_no_token_of_the_demo_models() {
    let cases = [
        (&DEMO, "fast_dllm_dual", false),
        (&BLOCK_CAUSAL, "block_causal,block_length=8", false),
        (&WEDLM, "wedlm_next", true),
    ];
    for (model, settings, checks) in cases {
        let tokenizer = demo_tokenizer(model);
        let mut executor = tiny(Cpu::default(), &Files::memory(model.files()), (16, 4096), None);
        let prompts = problems(&tokenizer);
        let prompts = prompts.iter().step_by(4);
        let ask = |ids: &Vec<u32>| run::request(ids, 96, tokenizer.eos_ids(), settings);
        let plain = run::run(&mut executor, prompts.clone().map(ask).collect());
        let mut costs = vec![forwards(&plain)];
        for others in [0, usize::MAX] {
            let predicted = prompts.clone().zip(&plain).map(|(ids, answer)| {
                let mut request = ask(ids);
                let mut text = answer.tokens.clone();
                let others = text.iter_mut().skip(4).step_by(10).take(others);
                others.for_each(|token| *token = 5);
                request.given.prediction = text;
                request.decoding = request.decoding.expecting().expect("a decoder that verifies");
                request
            });
            let found = run::run(&mut executor, predicted.collect());
            for (ours, theirs) in found.iter().zip(&plain) {
                assert_eq!(ours.tokens, theirs.tokens, "{settings}");
            }
            let ends = found.iter().filter_map(|outcome| outcome.finished);
            let counts = ends.map(|end| end.stats.draft_model);
            assert!(
                counts.clone().all(|draft_model| draft_model.verified <= draft_model.drafted),
                "{settings}"
            );
            assert!(counts.map(|draft_model| draft_model.verified).sum::<u32>() > 0, "{settings}");
            costs.push(forwards(&found));
        }
        assert!(costs[1] < costs[0], "{settings}: {costs:?}");
        assert!(checks || costs[2] < costs[0], "{settings}: {costs:?}");
        assert!(!checks || costs[1] * 3 < costs[0], "{settings}: {costs:?}");
    }
}
