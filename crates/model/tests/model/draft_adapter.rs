//! Nemotron-Labs-Diffusion's adapter for drafts: it changes the rows of open blocks, and no others.

use crate::common::{Noise, execute, refusal, row, single};
use crate::families::executor;
use crate::official::Case;
use asynclane_model::{Checkpoint, Files, Model, ModelExecutor, RowGate, WeightDtype};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::json;
use step::{Candidate, Row, Slot};

const RANK: usize = 3;
/// Rows of an open block.
const BLOCK: usize = 8;

/// An adapter of the outputs of attention in these layers, as published: `o_proj` alone.
fn adapter(case: &Case, layers: std::ops::Range<usize>) -> Files {
    let config = case.config();
    let size = |key: &str| config[key].as_u64().expect(key) as usize;
    let shape = [size("hidden_size"), size("num_attention_heads") * size("head_dim")];
    let mut noise = Noise(11);
    let mut tensor = |shape: [usize; 2]| {
        let numbers = (0..shape[0] * shape[1]).map(|_| 0.5 * noise.next());
        let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        TensorView::new(Dtype::F32, shape.to_vec(), bytes.leak()).expect("a tensor")
    };
    let views: Vec<(String, TensorView<'_>)> = layers
        .flat_map(|layer| {
            let name = format!("base_model.model.encoder.layers.{layer}.self_attn.o_proj.lora_");
            [
                (format!("{name}A.weight"), tensor([RANK, shape[1]])),
                (format!("{name}B.weight"), tensor([shape[0], RANK])),
            ]
        })
        .collect();
    let config = json!({"peft_type": "LORA", "r": RANK, "lora_alpha": 6,
        "target_modules": ["o_proj"]});
    Files::memory([
        ("adapter_config.json", config.to_string().into_bytes()),
        ("adapter_model.safetensors", serialize(views, None).expect("it serialises")),
    ])
}

fn loaded(checkpoint: Checkpoint, dtype: WeightDtype) -> ModelExecutor {
    executor(Model::load(checkpoint.with_dtype(dtype)).expect("it loads"))
}

/// The candidates of final tokens and an open block behind them.
fn candidates(executor: &mut ModelExecutor, rows: &[Row]) -> Vec<Candidate> {
    execute(executor, &single(rows.to_vec(), &[5, 2, 0, 3, 1, 4])).candidates
}

/// `count` rows, the last [`BLOCK`] of them an open block.
fn rows(case: &Case, count: usize) -> Vec<Row> {
    let tokens = (0_u32..).zip(&case.tokens[..count]);
    let mut rows: Vec<Row> = tokens.map(|(i, token)| row(*token, i, i + 1)).collect();
    for row in &mut rows[count - BLOCK..] {
        (row.open, row.visible_end) = (true, Slot::new(count as u32));
    }
    rows
}

fn distance(a: &[Candidate], b: &[Candidate]) -> f64 {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| (a.present - b.present).abs()).fold(0.0, f64::max)
}

#[test]
fn final_tokens_keep_their_bits() {
    let case = Case::named("nemotron-labs");
    let (count, files) = (2 * BLOCK + 5, adapter(&case, 0..2));
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let mut plain = loaded(case.checkpoint(), dtype);
        let gated = case.checkpoint().with_lora(&files, Some(RowGate::OpenBlocks));
        let mut gated = loaded(gated.expect("it opens"), dtype);
        let rows = rows(&case, count);
        let (found, base) = (candidates(&mut gated, &rows), candidates(&mut plain, &rows));
        let (text, block) = found.split_at(count - BLOCK);
        assert_eq!(text, &base[..count - BLOCK], "{dtype:?}");
        assert!(distance(block, &base[count - BLOCK..]) > 1e-3, "{dtype:?}");
        // The block as final tokens, as when drafts are checked.
        let closed: Vec<Row> = (rows.into_iter()).map(|row| Row { open: false, ..row }).collect();
        assert_eq!(candidates(&mut gated, &closed), candidates(&mut plain, &closed), "{dtype:?}");
    }
}

/// An open block is computed by merged weights, over keys and values of the plain ones: where no layer
/// follows the adapter, and where nothing lies before the block, merged weights alone give the same.
#[test]
fn open_blocks_are_those_of_merged_weights() {
    let case = Case::named("nemotron-labs");
    for (layers, count) in [(1..2, 2 * BLOCK + 5), (0..2, BLOCK)] {
        let files = adapter(&case, layers);
        let load = |gate| {
            let opened = case.checkpoint().with_lora(&files, gate);
            loaded(opened.expect("it opens"), WeightDtype::F32)
        };
        let (mut gated, mut merged) = (load(Some(RowGate::OpenBlocks)), load(None));
        let rows = rows(&case, count);
        let (found, whole) = (candidates(&mut gated, &rows), candidates(&mut merged, &rows));
        let near = distance(&found[count - BLOCK..], &whole[count - BLOCK..]);
        assert!(near < 1e-5, "{near:e}");
    }
}

#[test]
fn only_weights_with_open_blocks_take_it() {
    let files = adapter(&Case::named("nemotron-labs"), 0..2);
    let opened = Case::named("qwen3").checkpoint().with_lora(&files, Some(RowGate::OpenBlocks));
    assert_eq!(
        refusal(opened.and_then(|checkpoint| Model::load(checkpoint).map(|_| ()))),
        "config.json: model_type: expected nemotron_labs_diffusion, for an adapter for drafts, found \"qwen3\""
    );
}
