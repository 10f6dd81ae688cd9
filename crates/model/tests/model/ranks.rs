//! A model that several ranks hold together, compared with the same model on one.

use crate::backends::{PAGES, batch, shapes};
use crate::common::{Noise, Tiny, execute, push, row};
use crate::official::Case;
use asynclane_model::{
    Checkpoint, Cpu, Exchanged, ExecutorConfig, Files, LoadError, Model, ModelExecutor, Ranks,
    WeightDtype,
};
use serde_json::json;
use step::{
    Attention, Batch, BatchOutput, Bias, Executor, PageCopy, PageId, Readout, Sampling, Score,
};

/// Sizes of the executors here.
pub const SIZES: ExecutorConfig = ExecutorConfig {
    page_size: 8,
    pages: PAGES,
    threads: std::num::NonZeroUsize::new(1),
};
/// Tokens of a prompt, and of the text that is decoded behind it.
const PROMPT: usize = 9;
const TEXT: usize = 9;
/// Page table of a sequence.
const TABLE: [u32; 3] = [7, 2, 11];

/// The tokens of a text that is decoded greedily, and the outputs of all passes.
pub type Decoded = (Vec<u32>, Vec<BatchOutput>);

/// Decodes a text: the three most probable masks a pass, or token by token under causal attention.
pub fn decode(executor: &mut dyn Executor) -> Decoded {
    let spec = executor.spec();
    let mut noise = Noise(51);
    let token = |noise: &mut Noise| match noise.below(40) as u32 {
        token if Some(token) == spec.mask => token + 1,
        token => token,
    };
    let prompt = (0..PROMPT).map(|_| token(&mut noise)).collect();
    match (spec.attention, spec.mask) {
        (Attention::Causal, _) | (_, None) => decode_causal(executor, prompt),
        (_, Some(mask)) => decode_masks(executor, prompt, mask),
    }
}

fn decode_causal(executor: &mut dyn Executor, mut tokens: Vec<u32>) -> Decoded {
    let (mut done, mut outputs) = (0, Vec::new());
    while tokens.len() < PROMPT + TEXT {
        let rows = tokens.iter().enumerate().skip(done);
        let rows = rows.map(|(i, token)| row(*token, i as u32, i as u32 + 1));
        let mut batch = Batch::default();
        push(&mut batch, rows.collect(), &TABLE, Sampling::GREEDY);
        done = tokens.len();
        let output = execute(executor, &batch);
        tokens.extend(output.candidates.last().map(|last| last.token));
        outputs.push(output);
    }
    (tokens, outputs)
}

fn decode_masks(executor: &mut dyn Executor, mut tokens: Vec<u32>, mask: u32) -> Decoded {
    let spec = executor.spec();
    let shift = usize::from(spec.readout == Readout::Previous);
    let count = PROMPT + TEXT;
    tokens.resize(count, mask);
    let mut outputs = Vec::new();
    while tokens.contains(&mask) {
        let seen = |i: usize| match spec.attention {
            Attention::Blocks(length) => (i / length as usize + 1) * length as usize,
            _ => count,
        };
        let rows = tokens.iter().enumerate();
        let rows = rows.map(|(i, token)| row(*token, i as u32, seen(i).min(count) as u32));
        let mut batch = Batch::default();
        push(&mut batch, rows.collect(), &TABLE, Sampling::GREEDY);
        let output = execute(executor, &batch);
        let candidate = |at: &usize| output.candidates[at - shift];
        let mut open: Vec<usize> = (0..count).filter(|at| tokens[*at] == mask).collect();
        open.sort_by(|a, b| {
            let [a, b] = [a, b].map(|at| candidate(at).probability);
            b.total_cmp(&a)
        });
        for at in open.iter().take(3) {
            tokens[*at] = candidate(at).token;
        }
        outputs.push(output);
    }
    (tokens, outputs)
}

/// The outputs of batches of several sequences: with samples, filters, biases and most probable tokens,
/// then with page copies.
pub fn several(executor: &mut dyn Executor) -> Vec<BatchOutput> {
    let sampling = Sampling {
        temperature: 0.8,
        seed: 5,
        top_p: 0.9,
        ..Sampling::GREEDY
    };
    let mut first = batch(&mut Noise(9), &[30, 3, 17], sampling);
    first.biases = vec![Bias::add(7, 2.5), Bias::ban(8)];
    first.rows[1].biases = 0..2;
    first.rows[2].score = Score::Top(5);
    first.rows[3].score = Score::None;
    first.rows[32].score = Score::Top(2);
    let mut second = Batch::default();
    second.copies.push(PageCopy {
        from: first.pages[0],
        to: PageId(0),
    });
    let rest = first.pages[1..4].iter().map(|page| page.0);
    let table: Vec<u32> = [0].into_iter().chain(rest).collect();
    let rows = vec![row(9, 3, 30), row(11, 12, 30)];
    push(&mut second, rows, &table, Sampling::GREEDY);
    [first, second, Batch::default()]
        .iter()
        .map(|batch| execute(executor, batch))
        .collect()
}

/// A model on so many ranks of the processor.
fn on_ranks(count: usize, checkpoint: Checkpoint) -> Result<Model<Ranks<Cpu>>, LoadError> {
    let ranks = (0..count).map(|_| Cpu::default()).collect();
    Model::load_on(Ranks::new(ranks).unwrap(), checkpoint)
}

/// Asserts that ranks of the processor have the bits of one.
fn check(what: &str, ranks: usize, open: impl Fn() -> Checkpoint) {
    let tokens = [3, 9, 27, 14, 30, 2, 11];
    let one = Model::load(open()).unwrap();
    let all = on_ranks(ranks, open()).unwrap();
    assert_eq!(all.info(), one.info());
    let bits = |logits: Vec<f32>| -> Vec<u32> { logits.into_iter().map(f32::to_bits).collect() };
    let [got, want] = [all.logits(&tokens), one.logits(&tokens)].map(|of| bits(of.unwrap()));
    assert!(got == want, "{what}: logits on {ranks} ranks");
    let mut one = ModelExecutor::new(one, SIZES).unwrap();
    let mut all = ModelExecutor::new(all, SIZES).unwrap();
    assert_eq!(all.instructions(), one.instructions());
    assert_eq!(decode(&mut all), decode(&mut one), "{what}: {ranks} ranks");
}

#[test]
fn ranks_of_the_processor_change_no_bit_of_any_family() {
    let mut families = Vec::new();
    for case in Case::all() {
        let open = || Checkpoint::open(&Files::folder(&case.folder)).unwrap();
        let Ok(model) = on_ranks(2, open()) else {
            continue;
        };
        check(&case.name, 2, open);
        families.push(model.info().family);
    }
    families.sort_unstable();
    families.dedup();
    // All but those whose layers have experts.
    let dense = [
        "dream",
        "fast-dllm-v2",
        "llada",
        "llama",
        "qwen2",
        "qwen3",
        "sdar",
        "wedlm",
    ];
    assert_eq!(families, dense);
}

#[test]
fn ranks_of_the_processor_change_no_bit_in_any_dtype() {
    // Whole groups of 4-bit codes.
    let wide = json!({"d_model": 128, "n_heads": 8, "n_kv_heads": 4, "mlp_hidden_size": 224,
        "include_bias": true, "bias_for_layer_norm": false});
    let tiny = Tiny::new(17, &wide);
    for dtype in WeightDtype::ALL {
        for ranks in [1, 2, 4] {
            check(dtype.name(), ranks, || tiny.checkpoint().with_dtype(dtype));
        }
    }
}

#[test]
fn samples_and_page_copies_are_the_same_on_ranks() {
    let tiny = Tiny::new(4, &shapes()[1]);
    let ranks = on_ranks(2, tiny.checkpoint()).unwrap();
    let mut ranks = ModelExecutor::new(ranks, SIZES).unwrap();
    assert_eq!(several(&mut ranks), several(&mut tiny.executor(PAGES, 1)));
}

/// The formula in the documentation of [`Ranks`].
#[test]
fn a_layer_gathers_four_arrays() {
    let tiny = Tiny::new(
        4,
        &json!({"d_model": 64, "n_kv_heads": 4, "mlp_hidden_size": 80}),
    );
    let (d, m, layers, rows) = (64, 80, 2, 7);
    for ranks in [1, 2, 4] {
        let model = on_ranks(ranks as usize, tiny.checkpoint()).unwrap();
        model.logits(&[3, 9, 27, 14, 30, 2, 11]).unwrap();
        let share = |numbers: u64| rows * numbers * (ranks - 1) / ranks;
        let want = Exchanged {
            // Attention's result has `h c = d` columns.
            inputs: share(layers * (d + m)),
            sums: share(layers * 2 * d + d),
        };
        assert_eq!(model.backend().exchanged(), want, "{ranks} ranks");
    }
}

#[test]
fn models_that_ranks_cannot_divide_are_refused() {
    let tiny = |keys| Tiny::new(1, &keys).checkpoint();
    let case = |name: &str| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures");
        Checkpoint::open(&Files::folder(format!("{root}/{name}"))).unwrap()
    };
    for (ranks, checkpoint, expected) in [
        (
            3,
            tiny(json!({})),
            "executor: 3 ranks: expected a multiple of 3 query heads, found 4",
        ),
        (
            4,
            tiny(json!({"n_kv_heads": 2})),
            "executor: 4 ranks: expected a multiple of 4 key/value heads, found 2",
        ),
        (
            3,
            tiny(json!({"n_heads": 3, "d_model": 48, "mlp_hidden_size": 80})),
            "executor: 3 ranks: expected a multiple of 3 columns of the MLP width, found 80",
        ),
        (
            2,
            case("families/qwen3-moe"),
            "executor: 2 ranks: expected layers without experts, found qwen3-moe with 6 experts in a layer",
        ),
        (
            2,
            case("canvas/diffusion-gemma"),
            "executor: 2 ranks: expected a model without canvases of noise, found diffusion-gemma",
        ),
    ] {
        let error = on_ranks(ranks, checkpoint).err().expect(expected);
        assert_eq!(error.to_string(), expected);
    }
    let none = Ranks::<Cpu>::new(Vec::new()).err().unwrap();
    let expected = "expected at least one rank, found none";
    assert!(none.to_string().starts_with(expected), "{none}");
}
