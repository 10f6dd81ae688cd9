//! The attention of every family in the executor: pieces, neighbours, reordered rows.

use crate::common::{assert_candidate, execute, push, row, single, sized, with};
use crate::official::Case;
use asynclane_model::{
    Checkpoint, ExpertSharing, Family, Files, Model, ModelExecutor, WeightDtype,
};
use safetensors::{SafeTensors, serialize};
use serde_json::{Value, json};
use step::{Attention, Batch, Candidate, Executor, Row, Sampling, Slot};

/// An executor with pages of 8 slots.
pub fn executor(model: Model) -> ModelExecutor {
    sized(model, 40, 2)
}

/// The number of rows that row `i` of `count` sees.
fn visible(attention: Attention, i: usize, count: usize) -> usize {
    match attention {
        Attention::Full | Attention::BlocksAfterPrompt(_) => count,
        Attention::Blocks(length) => (i / length as usize + 1) * length as usize,
        Attention::Causal | Attention::OpenBlock(_) | Attention::Canvas(_) => i + 1,
    }
    .min(count)
}

/// The rows of a case with its own attention.
pub fn rows(case: &Case, attention: Attention) -> Vec<Row> {
    let count = case.tokens.len() as u32;
    let see = |i| visible(attention, i as usize, count as usize) as u32;
    let tokens = (0..count).zip(&case.tokens);
    tokens.map(|(i, token)| row(*token, i, see(i))).collect()
}

/// Pages of a sequence of up to 48 slots, out of order.
fn pages(sequence: u32) -> [u32; 6] {
    [5, 2, 0, 3, 1, 4].map(|page| sequence * 6 + page)
}

/// The candidates of one sequence, alone in its batch.
fn alone(executor: &mut ModelExecutor, rows: &[Row]) -> Vec<Candidate> {
    execute(executor, &single(rows.to_vec(), &pages(0))).candidates
}

/// The candidates of the case alone; checks that other sequences in the batch do not change them.
pub fn undisturbed(executor: &mut ModelExecutor, case: &Case, what: &str) -> Vec<Candidate> {
    let rows = rows(case, executor.spec().attention);
    let want = alone(executor, &rows);
    let mut batch = Batch::default();
    for sequence in 0..6 {
        // The other sequences have other lengths and tokens.
        let rows = match sequence {
            3 => rows.clone(),
            _ => (0..7 * sequence + 1)
                .map(|i| row((i * 5 + sequence) % 40, i, 7 * sequence + 1))
                .collect(),
        };
        push(&mut batch, rows, &pages(sequence), Sampling::GREEDY);
    }
    let start = batch.segments[3].rows.start as usize;
    let crowd = execute(executor, &batch).candidates;
    assert_eq!(crowd[start..start + want.len()], want, "{} {what}", case.name);
    want
}

#[test]
fn neighbours_change_no_bit() {
    for case in Case::all() {
        // The rows of these checkpoints are no whole groups of 4-bit codes.
        for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
            let mut executor = executor(case.model(dtype));
            undisturbed(&mut executor, &case, dtype.name());
        }
    }
}

#[test]
fn experts_are_shared_within_a_sequence_only() {
    let mut shared = 0;
    for case in Case::all() {
        let plain = case.model(WeightDtype::F32);
        if plain.info().experts.is_none() {
            continue;
        }
        let rows = rows(&case, plain.info().rows.attention);
        let own = alone(&mut executor(plain), &rows);
        for sharing in [ExpertSharing::Vote(0.0), ExpertSharing::Sequence(1)] {
            let checkpoint = case.checkpoint();
            let model = Model::load(checkpoint.with_expert_sharing(Some(sharing))).unwrap();
            let what = format!("{sharing:?}");
            let agreed = undisturbed(&mut executor(model), &case, &what);
            let own = agreed != own;
            assert!(own, "{} {what}: rows agree on fewer experts", case.name);
            shared += 1;
        }
    }
    assert!(shared >= 8, "{shared}");
}

#[test]
fn finished_blocks_and_causal_prefixes_are_exact() {
    let mut compared = 0;
    for case in Case::all() {
        let mut executor = executor(case.model(WeightDtype::F32));
        let block = match executor.spec().attention {
            Attention::Full | Attention::BlocksAfterPrompt(_) => continue,
            Attention::Blocks(length) => length as usize,
            Attention::Causal | Attention::OpenBlock(_) | Attention::Canvas(_) => 1,
        };
        let rows = rows(&case, executor.spec().attention);
        let whole = alone(&mut executor, &rows);
        let mut pieces = Vec::new();
        let mut start = 0;
        for blocks in [1, 2, 3, 1].into_iter().cycle() {
            let end = (start + blocks * block).min(rows.len());
            pieces.extend(alone(&mut executor, &rows[start..end]));
            start = end;
            if start == rows.len() {
                break;
            }
        }
        assert_eq!(pieces, whole, "{}", case.name);
        compared += 1;
    }
    assert!(compared >= 6, "only {compared} checkpoints");
}

#[test]
fn reordered_rows_see_what_is_before_them_at_their_own_positions() {
    let mut compared = 0;
    for case in Case::all() {
        let Some((order, logits)) = &case.reordered else {
            continue;
        };
        let mut executor = executor(case.model(WeightDtype::F32));
        assert_eq!(executor.spec().attention, Attention::Causal);
        let rows = (0u32..).zip(order).map(|(slot, &position)| Row {
            slot: Slot::new(slot),
            ..row(case.tokens[position as usize], position, slot + 1)
        });
        let rows: Vec<Row> = rows.collect();
        let got = alone(&mut executor, &rows);
        for ((candidate, row), want) in got.iter().zip(&rows).zip(logits.chunks(47)) {
            let want: Vec<f64> = want.iter().map(|&x| f64::from(x)).collect();
            assert_candidate(candidate, &want, row.token);
        }
        compared += 1;
    }
    assert_eq!(compared, 3);
}

/// An open block: its rows see all of it and the causal context, in one batch with the context or behind
/// it.
#[test]
fn rows_of_an_open_block_see_it_whole() {
    let case = Case::named("nemotron-labs");
    let want = case.block.as_ref().unwrap();
    let mut executor = executor(case.model(WeightDtype::F32));
    let Attention::OpenBlock(length) = executor.spec().attention else { unreachable!() };
    let mut rows = rows(&case, executor.spec().attention);
    let (count, start) = (rows.len(), rows.len() - length as usize);
    rows[start..].iter_mut().for_each(|row| row.visible_end = Slot::new(count as u32));
    let whole = alone(&mut executor, &rows);
    alone(&mut executor, &rows[..start]);
    assert_eq!(alone(&mut executor, &rows[start..]), whole[start..]);
    for ((candidate, row), want) in whole[start..].iter().zip(&rows[start..]).zip(want.chunks(47)) {
        let want: Vec<f64> = want.iter().map(|&x| f64::from(x)).collect();
        assert_candidate(candidate, &want, row.token);
    }
}

/// CoDA's configuration names no head: a stored one is used, and without one the embedding.
#[test]
fn a_head_is_the_embedding_only_where_none_is_stored() {
    let case = Case::named("coda");
    let bytes = std::fs::read(case.folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let info = |weights: Vec<u8>| {
        let config = case.config().to_string().into_bytes();
        let files = Files::memory([("config.json", config), ("model.safetensors", weights)]);
        Model::load(Checkpoint::open(&files).unwrap()).unwrap().info().clone()
    };
    let (whole, less) = (info(bytes.clone()), {
        let tensors = file.tensors().into_iter();
        info(serialize(tensors.filter(|(name, _)| name != "lm_head.weight"), None).unwrap())
    });
    assert!(!whole.vocabulary.tied && less.vocabulary.tied);
    assert_eq!(whole.parameters - less.parameters, 47 * 24);
}

#[test]
fn the_readme_lists_every_family() {
    let readme = include_str!("../../README.md");
    for family in Family::ALL {
        let (architectures, types) = (family.architectures, family.model_types);
        let names = [architectures.join(", "), types.join(", ")].join(" | ");
        let row = format!("| {} | {names} | {} |", family.name, family.about);
        assert!(readme.lines().any(|line| line == row), "expected {row}");
    }
}

/// Family, attention, logit_shift, mask token and end tokens of a configuration with these keys.
fn facts(keys: &Value) -> String {
    let config = json!({"vocab_size": 157_184, "hidden_size": 4, "intermediate_size": 2,
        "head_dim": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
        "max_position_embeddings": 64, "num_experts": 2, "num_experts_per_tok": 1, "n_group": 1,
        "topk_group": 1, "moe_intermediate_size": 2, "expert_intermediate_size": 2,
        "dense_intermediate_size": 2, "moe_layer_freq": [1]});
    let config = with(config, keys).to_string();
    let model = Model::load(Checkpoint::synthetic(&config, 1).unwrap()).unwrap();
    let info = model.info();
    let (attention, logit_shift) = (info.rows.attention, info.rows.logit_shift);
    let mask = info.vocabulary.mask.map_or("none".to_owned(), |mask| mask.to_string());
    format!("{} {attention:?} {logit_shift:?} {mask} {:?}", info.family, info.vocabulary.end)
}

/// A configuration without token ids and block length, and its facts.
const FACTS: &str = r#"
{"architectures": ["DreamModel"]} | dream Full One 151666 [151643]
{"architectures": ["WeDLMForCausalLM"]} | wedlm Causal None 151665 [151643]
{"architectures": ["SDARForCausalLM"]} | sdar Blocks(4) None 151669 [151643]
{"model_type": "sdar", "block_length": 16} | sdar Blocks(16) None 151669 [151643]
{"architectures": ["Fast_dLLM_QwenForCausalLM"], "eos_token_id": [7, 9]} | fast-dllm-v2 Blocks(32) One 151665 [7, 9]
{"architectures": ["A2DQwen3LMHeadModel"]} | a2d Full None 151669 [151645]
{"model_type": "CoDA"} | coda Full One 151669 [151645]
{"model_type": "rnd1", "rope_scaling": false, "sliding_window": false} | rnd1 Full One 151669 [151645]
{"architectures": ["StableDiffcoderForCausalLM"], "model_type": "llama"} | stable-diffcoder Blocks(4) None 5 [2]
{"architectures": ["MinistralDiffEncoderModel"], "rope_parameters": {"rope_theta": 1000}} | nemotron-labs OpenBlock(32) None 100 [11]
{"architectures": ["LLaDA2MoeModelLM"]} | llada2 Blocks(32) None 156895 [156892]
{"architectures": ["LLaDAMoEModelLM"], "model_type": "llada"} | llada-moe Full None 156895 [156892]
{"architectures": ["Qwen2ForCausalLM"]} | qwen2 Causal One none [151643]
{"model_type": "sdar", "use_regular_causal": true} | sdar Causal One 151669 [151643]
{"model_type": "qwen3"} | qwen3 Causal One none [151643]
{"architectures": ["SDARMoeForCausalLM"]} | sdar Blocks(4) None 151669 [151643]
{"architectures": ["Qwen3MoeForCausalLM"]} | qwen3-moe Causal One none [151643]
{"architectures": ["LlamaForCausalLM"]} | llama Causal One none [2]
"#;

/// `architectures` takes precedence over `model_type`, as LLaDA-MoE is published.
#[test]
fn families_define_attention_logit_shift_and_default_ids() {
    for case in FACTS.lines().skip(1) {
        let (keys, expected) = case.split_once(" | ").unwrap();
        assert_eq!(facts(&serde_json::from_str(keys).unwrap()), expected);
    }
}
