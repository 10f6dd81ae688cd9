//! DiffusionGemma on emulated kernels: near the official code and the CPU, and the same bits in every
//! batch, from a graph, and after page copies.

use crate::canvas::{Case, PAGES, TOLERANCE, canvas, encoded, scaled, steps};
use crate::canvas_dtypes::{self, by_token, correlation, second_step};
use crate::common::{execute, push};
use asynclane_model::{
    Checkpoint, Device, DeviceConfig, DeviceExecutor, DeviceModel, KvMemory, WeightDtype,
};
use step::{Batch, BatchOutput, Executor, PageCopy, PageId};

/// Dtypes with kernels, and the least correlation of the log-probabilities with those of f32 weights on
/// the CPU.
const BOUNDS: [(WeightDtype, f64); 4] = [
    (WeightDtype::F32, 0.999_999),
    (WeightDtype::Bf16, 0.99),
    (WeightDtype::Int8, 0.98),
    (WeightDtype::Int8w, 0.98),
];

pub(super) fn on_device(device: &Device, checkpoint: Checkpoint) -> DeviceExecutor {
    let model = DeviceModel::load(device, checkpoint).unwrap();
    let config = DeviceConfig {
        page_size: 8,
        rows: 64,
        positions: 64,
        sequences: 3,
        kv: KvMemory::Bytes(16 * 8 * model.kv_bytes_per_position() as u64),
    };
    DeviceExecutor::new(model, config).unwrap()
}

fn executor(checkpoint: Checkpoint) -> DeviceExecutor {
    on_device(&asynclane_cuda_lab::emulated(), checkpoint)
}

#[test]
fn steps_agree_with_the_official_code() {
    for case in Case::all() {
        let checkpoint = case.checkpoint().with_dtype(WeightDtype::F32);
        let found = steps(&mut executor(checkpoint), &case);
        println!("{found:?}");
        assert!(found.iter().all(|error| *error < TOLERANCE), "{found:?}");
    }
}

#[test]
fn every_dtype_stays_near_f32_on_the_cpu() {
    let mut cpu = canvas_dtypes::executor(WeightDtype::F32);
    let exact = by_token(&second_step(&mut cpu, false));
    for (dtype, bound) in BOUNDS {
        let mut device = executor(canvas_dtypes::checkpoint(dtype));
        let found = correlation(&exact, &by_token(&second_step(&mut device, false)));
        println!("{dtype:?}: {found}");
        assert!(found > bound, "{dtype:?}: {found}");
    }
}

/// No pass allocates memory.
#[test]
fn a_canvas_has_the_same_bits_in_every_batch() {
    for (dtype, _) in BOUNDS {
        let device = asynclane_cuda_lab::emulated();
        let mut executor = on_device(&device, canvas_dtypes::checkpoint(dtype));
        let free = device.memory().unwrap();
        let alone = second_step(&mut executor, false);
        assert_eq!(alone, second_step(&mut executor, true), "{dtype:?}");
        assert_eq!(device.memory().unwrap(), free);
    }
}

/// A prompt with a canvas, and two more steps of it.
fn three_steps(executor: &mut dyn Executor, case: &Case) -> Vec<BatchOutput> {
    let (prompt, b) = (case.tokens("prompt"), case.tokens("canvas_b"));
    let vocab = executor.spec().vocab_size as usize;
    let step = |conditioned: bool| {
        let given = match conditioned {
            true => Vec::new(),
            false => encoded(&prompt, 0),
        };
        let mut batch = Batch::default();
        let rows = [given, canvas(&b, prompt.len(), conditioned, vocab)].concat();
        push(&mut batch, rows, &PAGES, scaled(0.6));
        batch
    };
    let batches = [false, true, true].map(step);
    batches.iter().map(|batch| execute(executor, batch)).collect()
}

#[test]
fn steps_from_a_graph_have_the_same_bits() {
    let case = &Case::all()[0];
    for (dtype, _) in BOUNDS {
        let mut device = executor(case.checkpoint().with_dtype(dtype));
        let first = three_steps(&mut device, case);
        // The third step has the shape of the second one, but not its embeddings.
        assert_eq!(device.graphs(), 1, "{dtype:?}");
        assert_ne!(first[1], first[2]);
        for _ in 0..2 {
            assert_eq!(three_steps(&mut device, case), first, "{dtype:?}");
        }
        assert_eq!(device.graphs(), 2, "{dtype:?}");
    }
}

/// A copied page takes the mean embeddings of its slots along.
#[test]
fn copies_of_pages_take_mean_embeddings_along() {
    let case = &Case::all()[0];
    let (prompt, b) = (case.tokens("prompt"), case.tokens("canvas_b"));
    let mut device = executor(case.checkpoint().with_dtype(WeightDtype::F32));
    let vocab = device.spec().vocab_size as usize;
    let rows = canvas(&b, prompt.len(), true, vocab);
    let mut batch = Batch::default();
    let first = [encoded(&prompt, 0), canvas(&b, prompt.len(), false, vocab)].concat();
    push(&mut batch, first, &PAGES, scaled(0.6));
    execute(&mut device, &batch);
    let mut plain = Batch::default();
    push(&mut plain, rows.clone(), &PAGES, scaled(0.6));
    let mut copied = Batch::default();
    let copies = PAGES.map(|page| page + 8);
    push(&mut copied, rows, &copies, scaled(0.6));
    let pairs = PAGES.into_iter().zip(copies);
    copied.copies = pairs
        .map(|(source, destination)| PageCopy {
            source: PageId(source),
            destination: PageId(destination),
        })
        .collect();
    let got = execute(&mut device, &copied);
    assert_eq!(got, execute(&mut device, &plain));
}

/// Layers with full attention have wider heads than others.
#[test]
fn heads_without_kernels_are_refused_by_their_width() {
    let mut checkpoint = canvas_dtypes::checkpoint(WeightDtype::Bf16);
    let mut info = checkpoint.survey(WeightDtype::Bf16).unwrap().info;
    assert_eq!(DeviceModel::unfit(&info, None), None);
    let canvas = info.canvas.as_mut().unwrap();
    canvas.full_heads.head_width = 1024;
    let refusal = DeviceModel::unfit(&info, None).unwrap();
    assert!(refusal.contains("head width") && refusal.contains("1024"), "{refusal}");
}
