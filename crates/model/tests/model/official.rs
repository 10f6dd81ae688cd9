//! Logits compared with the official PyTorch code of every family, on tiny checkpoints.
//!
//! `fixtures/families.py` generates the checkpoints and the references. The metadata of each
//! reference names repository and commit.

use asynclane_model::{Checkpoint, Family, Files, Model, WeightDtype};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Accepted difference from the official code.
struct Tolerance {
    /// Largest difference of a logit, relative to the largest of its row.
    f32: f64,
    /// Root mean square of all differences, see [`spread`].
    bf16: f64,
}

const TOLERANCE: Tolerance = Tolerance {
    f32: 1e-4,
    bf16: 2e-2,
};

/// A checkpoint of `fixtures/families` and its reference from the official code.
pub struct Case {
    pub name: String,
    pub folder: PathBuf,
    source: String,
    pub tokens: Vec<u32>,
    logits: Vec<f32>,
    /// Logits of the official code in bf16, for a checkpoint in bf16.
    logits_bf16: Option<Vec<f32>>,
    /// Under causal attention: an order of the tokens and the logits in this order.
    pub reordered: Option<(Vec<u32>, Vec<f32>)>,
}

impl Case {
    fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join("reference.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header
            .metadata()
            .as_ref()
            .expect("metadata with the origin");
        let origin: Value = serde_json::from_str(&metadata["origin"]).unwrap();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let tokens = file.tensor("tokens").unwrap();
        Self {
            name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
            folder: folder.to_owned(),
            source: format!(
                "{} at {:.7}",
                text(&origin["source"]),
                text(&origin["commit"])
            ),
            tokens: words(&tokens).map(u32::from_le_bytes).collect(),
            logits: floats(&file.tensor("logits").unwrap()),
            logits_bf16: file.tensor("logits_bf16").ok().map(|t| floats(&t)),
            reordered: file.tensor("order").ok().map(|order| {
                let logits = floats(&file.tensor("logits_reordered").unwrap());
                (words(&order).map(u32::from_le_bytes).collect(), logits)
            }),
        }
    }

    /// Every checkpoint of the fixtures.
    pub fn all() -> Vec<Self> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/families");
        let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        folders.sort();
        folders.iter().map(|folder| Self::read(folder)).collect()
    }

    /// Loads the checkpoint.
    pub fn model(&self, dtype: WeightDtype) -> Model {
        let checkpoint = Checkpoint::open(&Files::folder(&self.folder)).unwrap();
        let model = Model::load(checkpoint.with_dtype(dtype)).unwrap();
        assert_eq!(model.warnings(), [] as [&str; 0], "{}", self.name);
        model
    }
}

fn words(tensor: &TensorView<'_>) -> impl Iterator<Item = [u8; 4]> {
    tensor.data().as_chunks().0.iter().copied()
}

fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    words(tensor).map(f32::from_le_bytes).collect()
}

/// Largest difference, relative to the row's largest logit.
pub fn error(got: &[f32], want: &[f32], vocab: usize) -> f64 {
    assert_eq!(got.len(), want.len());
    let rows = got.chunks(vocab).zip(want.chunks(vocab));
    rows.map(|(got, want)| {
        let scale = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let differences = got.iter().zip(want).map(|(g, w)| f64::from((g - w).abs()));
        differences.fold(0.0, f64::max) / f64::from(scale)
    })
    .fold(0.0, f64::max)
}

/// Root mean square of the differences, relative to that of the logits. In bf16, the difference of
/// a single logit of random weights varies too much with the order of rounding.
fn spread(got: &[f32], want: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|x| f64::from(x) * f64::from(x)).sum()
    };
    let differences = squares(&mut got.iter().zip(want).map(|(g, w)| g - w));
    (differences / squares(&mut want.iter().copied())).sqrt()
}

#[test]
fn logits_match_the_official_code() {
    let cases = Case::all();
    let mut worst = Tolerance {
        f32: 0.0,
        bf16: 0.0,
    };
    let mut seen = BTreeSet::new();
    for case in &cases {
        let model = case.model(WeightDtype::F32);
        let family = model.info().family;
        seen.insert(family);
        let got = model.logits(&case.tokens).unwrap();
        let exact = error(&got, &case.logits, model.info().vocabulary.size);
        println!("{} ({family}): f32 {exact:.1e}, {}", case.name, case.source);
        worst.f32 = worst.f32.max(exact);
        if let Some(want) = &case.logits_bf16 {
            let model = case.model(WeightDtype::Bf16);
            let near = spread(&model.logits(&case.tokens).unwrap(), want);
            println!("{} ({family}): bf16 {near:.1e}", case.name);
            worst.bf16 = worst.bf16.max(near);
        }
    }
    println!(
        "largest error: f32 {:.1e}, bf16 {:.1e}",
        worst.f32, worst.bf16
    );
    assert!(worst.f32 < TOLERANCE.f32 && worst.bf16 < TOLERANCE.bf16);
    // `canvas.rs` compares canvas models.
    let every = Family::ALL.iter().map(|family| family.name);
    let every: BTreeSet<_> = every.filter(|name| *name != "diffusion-gemma").collect();
    assert_eq!(seen, every, "every family has a reference");
}
