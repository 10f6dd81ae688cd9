//! DFlash drafters: their logits are those of the published code, and a drafter of another target is
//! refused.

use crate::common::{execute, push, refusal, row, sized};
use crate::gguf_files;
use asynclane_model::{Checkpoint, DeviceModel, Files, LoadError, Model, WeightDtype};
use candle_core::quantized::GgmlDType;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use step::{Attention, Batch, Executor, LogitShift, Row, Sampling, Score, TopToken};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures");

fn read(path: &str) -> Vec<u8> {
    std::fs::read(format!("{FIXTURES}/{path}")).unwrap()
}

fn target(pair: &str) -> Checkpoint {
    Checkpoint::open(&Files::folder(format!("{FIXTURES}/dflash/{pair}/target"))).unwrap()
}

fn pair(pair: &str) -> Checkpoint {
    let drafter = Files::folder(format!("{FIXTURES}/dflash/{pair}/drafter"));
    target(pair).with_drafter(&drafter).unwrap()
}

/// The pages of a sequence of up to 32 slots.
const PAGES: [u32; 4] = [3, 0, 2, 1];

/// A row whose log-probabilities are wanted.
fn scored(row: Row, vocabulary: usize) -> Row {
    Row { score: Score::Top((vocabulary - 1) as u8), ..row }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let all: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    logits.iter().map(|x| f64::from(x - most) - all.ln()).collect()
}

/// In one pass with the prompt, in a pass of its own, and beside another sequence.
#[test]
fn logits_are_the_published_ones() {
    for name in ["qwen3", "llama"] {
        let file = read(&format!("dflash/{name}/logits.safetensors"));
        let stored = SafeTensors::deserialize(&file).unwrap();
        let bytes = |name: &str| stored.tensor(name).unwrap().data().to_vec();
        let numbers = |name: &str| -> Vec<u32> {
            let bytes = bytes(name);
            bytes.chunks_exact(4).map(|x| u32::from_le_bytes(x.try_into().unwrap())).collect()
        };
        let floats: Vec<f32> = numbers("logits").into_iter().map(f32::from_bits).collect();
        let (tokens, block) = (numbers("tokens"), numbers("block"));
        let vocabulary = floats.len() / (block.len() - 1);
        let (count, end) = (tokens.len() as u32, (tokens.len() + block.len()) as u32);
        let context = (0..).zip(&tokens);
        let context = context.map(|(position, token)| Row {
            score: Score::None,
            ..row(*token, position, position + 1)
        });
        let context: Vec<Row> = context.collect();
        let open = (count..).zip(&block).map(|(position, token)| {
            let score = if position == count { Score::None } else { Score::Candidate };
            let open = Row { open: true, score, ..row(*token, position, end) };
            if open.score.is_wanted() { scored(open, vocabulary) } else { open }
        });
        let open: Vec<Row> = open.collect();
        let compare = |tops: &[TopToken], what: &str| {
            let mut most: f64 = 0.0;
            for (tops, logits) in tops.chunks(vocabulary - 1).zip(floats.chunks(vocabulary)) {
                let expected = log_softmax(logits);
                for top in tops {
                    let expected = expected[top.token as usize];
                    let error = (f64::from(top.logprob) - expected).abs();
                    most = most.max(error / expected.abs().max(1.0));
                }
            }
            assert_eq!(tops.len(), (block.len() - 1) * (vocabulary - 1), "{name}, {what}");
            println!("{name}, {what}: {most:e}");
            assert!(most < 1e-5, "{name}, {what}: {most}");
        };
        let mut executor = sized(Model::load(pair(name)).unwrap(), 16, 2);
        let mut together = Batch::default();
        push(&mut together, [&*context, &*open].concat(), &PAGES, Sampling::GREEDY);
        let whole = execute(&mut executor, &together).tops;
        compare(&whole, "one pass");
        let mut before = Batch::default();
        push(&mut before, context.clone(), &PAGES, Sampling::GREEDY);
        execute(&mut executor, &before);
        // The other sequence's rows are the target's, before and behind those of the drafter.
        let others: Vec<Row> = (0..9)
            .map(|position| scored(row(7 + position, position, position + 1), vocabulary))
            .collect();
        let mut beside = Batch::default();
        push(&mut beside, others.clone(), &[4, 5], Sampling::GREEDY);
        push(&mut beside, open.clone(), &PAGES, Sampling::GREEDY);
        push(&mut beside, others.clone(), &[6, 7], Sampling::GREEDY);
        let found = execute(&mut executor, &beside).tops;
        let each = others.len() * (vocabulary - 1);
        assert_eq!(found[each..][..whole.len()], whole, "{name}");
        assert_eq!(found[..each], found[each + whole.len()..], "{name}");
        let mut alone = Batch::default();
        push(&mut alone, others, &[8, 9], Sampling::GREEDY);
        assert_eq!(execute(&mut executor, &alone).tops, found[..each], "{name}");
        let mut plain = sized(Model::load(target(name)).unwrap(), 16, 2);
        assert_eq!(execute(&mut plain, &alone).tops, found[..each], "{name}");
    }
}

#[test]
fn a_pair_is_described_and_its_memory_is_counted() {
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
        let mut planned = pair("llama").with_dtype(dtype);
        let survey = planned.survey(dtype).unwrap();
        let alone = target("llama").survey(dtype).unwrap();
        let model = Model::load(planned).unwrap();
        assert_eq!((model.info(), model.memory()), (&survey.info, survey.memory));
        assert_eq!(model.warnings(), &[] as &[String]);
        assert!(survey.memory.weights > alone.memory.weights);
        // Two layers of one head of 12, beside seven of four heads of 6.
        let bytes = |info: &asynclane_model::ModelInfo| info.kv_bytes_per_position();
        assert_eq!((bytes(&alone.info), bytes(&survey.info)), (1344, 1344 + 192));
        let rows = survey.info.rows;
        let expected = (Attention::OpenBlock(5), LogitShift::None);
        assert_eq!((rows.attention, rows.logit_shift), expected);
        let unfit = DeviceModel::unfit(&survey.info, None);
        assert_eq!(unfit.as_deref(), Some("a DFlash drafter with other heads than its target's"));
        let words = survey.info.describe();
        assert!(words.ends_with("; DFlash drafter of 2 layers for blocks of 5"), "{words}");
    }
    let executor = sized(Model::load(pair("llama")).unwrap(), 4, 1);
    // The target's own distribution: no token is banned as the mask.
    assert_eq!((executor.spec().mask, executor.model().info().vocabulary.mask), (Some(45), None));
    assert_eq!(executor.spec().vocab_size, 47);
}

/// Log-probabilities of a text of the target, and of the open block behind it.
fn rows_of_both(checkpoint: Checkpoint) -> Vec<TopToken> {
    let text = (0..9).map(|position| scored(row(7 + 3 * position, position, position + 1), 47));
    let open = (9..14).map(|position| {
        let token = if position == 9 { 7 } else { 45 };
        let open = Row { open: true, ..row(token, position, 14) };
        if position == 9 { Row { score: Score::None, ..open } } else { scored(open, 47) }
    });
    let mut executor = sized(Model::load(checkpoint).unwrap(), 16, 1);
    let mut batch = Batch::default();
    push(&mut batch, text.chain(open).collect(), &PAGES, Sampling::GREEDY);
    execute(&mut executor, &batch).tops
}

#[test]
fn a_target_may_be_a_gguf_file_and_have_an_adapter() {
    let drafter = Files::folder(format!("{FIXTURES}/dflash/qwen3/drafter"));
    let folder = format!("{FIXTURES}/dflash/qwen3/target");
    let config: Value = serde_json::from_slice(&read("dflash/qwen3/target/config.json")).unwrap();
    let tensors = gguf_files::tensors(folder.as_ref());
    let metadata = gguf_files::metadata("qwen3", &config);
    let file = gguf_files::File::write("dflash", &metadata, &tensors, GgmlDType::F32);
    let gguf = file.checkpoint().unwrap().with_dtype(WeightDtype::F32);
    let plain = rows_of_both(pair("qwen3").with_dtype(WeightDtype::F32));
    assert_eq!(rows_of_both(gguf.with_drafter(&drafter).unwrap()), plain);

    let adapted = || target("qwen3").with_lora(&adapter(), None).unwrap();
    let both = rows_of_both(adapted().with_drafter(&drafter).unwrap());
    let executor = &mut sized(Model::load(adapted()).unwrap(), 4, 1);
    let mut batch = Batch::default();
    let text = (0..9).map(|position| scored(row(7 + 3 * position, position, position + 1), 47));
    push(&mut batch, text.collect(), &[0, 1], Sampling::GREEDY);
    let alone = execute(executor, &batch).tops;
    assert_eq!(both[..alone.len()], alone);
    assert_ne!(plain[..alone.len()], alone);
    assert_ne!(plain[alone.len()..], both[alone.len()..]);
}

/// An adapter of rank 1 for a matrix of the target `qwen3`.
fn adapter() -> Files {
    let config =
        json!({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]});
    let ones = |count: usize| 0.3_f32.to_le_bytes().repeat(count).leak();
    let name =
        |end: &str| format!("base_model.model.model.layers.1.self_attn.q_proj.lora_{end}.weight");
    let factors = [
        (name("A"), TensorView::new(Dtype::F32, vec![1, 24], ones(24)).unwrap()),
        (name("B"), TensorView::new(Dtype::F32, vec![32, 1], ones(32)).unwrap()),
    ];
    Files::memory([
        ("adapter_config.json", config.to_string().into_bytes()),
        ("adapter_model.safetensors", serialize(factors, None).unwrap()),
    ])
}

/// The drafter `qwen3` with other keys, for a target.
fn changed(target: Checkpoint, keys: &Value) -> Result<Model, LoadError> {
    let config: Value = serde_json::from_slice(&read("dflash/qwen3/drafter/config.json")).unwrap();
    let config = crate::common::with(config, keys);
    let weights = read("dflash/qwen3/drafter/model.safetensors");
    let files = [("config.json", config.to_string().into_bytes()), ("model.safetensors", weights)];
    Model::load(target.with_drafter(&Files::memory(files))?)
}

#[test]
fn a_drafter_for_another_target_is_refused() {
    let file = "the embedded files/config.json: ";
    let object = |more: Value| {
        let object = json!({"mask_token_id": 45, "target_layer_ids": [1, 2, 4]});
        json!({"dflash_config": crate::common::with(object, &more)})
    };
    for (keys, expected) in [
        (
            json!({"num_target_layers": 36}),
            "num_target_layers: expected 7, that of the target, found 36",
        ),
        (json!({"hidden_size": 32}), "hidden_size: expected 24, that of the target, found 32"),
        (json!({"vocab_size": 48}), "vocab_size: expected 47, that of the target, found 48"),
        (json!({"block_size": 1}), "block_size: expected 2 to 64, found 1"),
        (json!({"block_size": 65}), "block_size: expected 2 to 64, found 65"),
        (
            json!({"architectures": ["DFlash2DraftModel"]}),
            "architectures: expected DFlashDraftModel, found [\"DFlash2DraftModel\"]",
        ),
        (
            json!({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
            "layer_types: expected \"full_attention\" in every layer, found",
        ),
        (
            object(json!({"causal": true})),
            "dflash_config: causal: expected no keys but target_layer_ids, mask_token_id, block_size, \
             found true",
        ),
        (
            object(json!({"mask_token_id": 47})),
            "dflash_config: mask_token_id: expected a token id below 47, found 47",
        ),
        (
            object(json!({"mask_token_id": null})),
            "dflash_config: mask_token_id: expected a token id below 47, found nothing",
        ),
        (
            object(json!({"target_layer_ids": [1, 2, 6]})),
            "dflash_config: target_layer_ids: expected rising numbers of layers below 6, found [1,2,6]",
        ),
    ] {
        let error = refusal(changed(target("qwen3"), &keys));
        let (name, said) = error.split_at(file.len().min(error.len()));
        assert_eq!(name, file, "{error}");
        assert!(said.starts_with(expected), "{error}");
    }
    // Fewer taps than the projection has columns for, and a layer more than is read.
    let error = refusal(changed(target("qwen3"), &object(json!({"target_layer_ids": [1, 2]}))));
    let expected = "model.safetensors: fc.weight: expected shape [24, 48], found [24, 72]";
    assert_eq!(error, expected);
    let two = json!({"num_hidden_layers": 2, "layer_types": null});
    let error = refusal(changed(target("qwen3"), &two));
    let expected =
        "dflash_config: expected a drafter with the tensors of DFlash alone, found layers.2.";
    assert!(error.starts_with(&format!("{file}{expected}")), "{error}");
    let folder = format!("{FIXTURES}/families/sdar-4");
    let blocks = Checkpoint::open(&Files::folder(folder)).unwrap();
    let error = refusal(changed(blocks, &json!({})));
    let expected =
        "dflash_config: expected a causal target that predicts the next token, found sdar";
    assert_eq!(error, format!("{file}{expected}"));
    assert!(changed(target("qwen3"), &json!({})).is_ok());
}
