//! Logits compared with the official PyTorch code of every family, on tiny checkpoints.
//!
//! `fixtures/families.py` generates the checkpoints and the references. The metadata of each
//! reference names repository and commit.

use crate::common::Named;
use asynclane_model::{Checkpoint, Family, Files, Model, WeightDtype};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Largest accepted difference of a logit in f32, relative to the largest of its row.
const TOLERANCE_F32: f64 = 1e-4;
/// Largest accepted root mean square of the differences in bf16, see [`spread`].
const TOLERANCE_BF16: f64 = 2e-2;

/// The checkpoints with a reference.
const FAMILIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/families");

/// The files of a folder.
pub fn files(folder: &Path) -> Named {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

/// The configuration of a checkpoint.
pub fn config(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
}

/// A checkpoint of `fixtures/families` and its reference from the official code.
pub struct Case {
    pub name: String,
    pub folder: PathBuf,
    pub tokens: Vec<u32>,
    logits: Vec<f32>,
    /// Logits of the official code in bf16, for a checkpoint in bf16.
    logits_bf16: Option<Vec<f32>>,
    /// Under causal attention: an order of the tokens and the logits in this order.
    pub reordered: Option<(Vec<u32>, Vec<f32>)>,
    /// With an open block: logits of the last tokens, a block behind a causal context.
    pub block: Option<Vec<f32>>,
}

impl Case {
    fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join("reference.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tokens = file.tensor("tokens").unwrap();
        Self {
            name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
            folder: folder.to_owned(),
            tokens: words(&tokens).map(u32::from_le_bytes).collect(),
            logits: floats(&file.tensor("logits").unwrap()),
            logits_bf16: file.tensor("logits_bf16").ok().map(|t| floats(&t)),
            reordered: file.tensor("order").ok().map(|order| {
                let logits = floats(&file.tensor("logits_reordered").unwrap());
                (words(&order).map(u32::from_le_bytes).collect(), logits)
            }),
            block: file.tensor("logits_block").ok().map(|t| floats(&t)),
        }
    }

    /// Every checkpoint of the fixtures.
    pub fn all() -> Vec<Self> {
        let folders = std::fs::read_dir(FAMILIES).unwrap();
        let mut folders: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        folders.iter().map(|folder| Self::read(folder)).collect()
    }

    /// The checkpoint of this name.
    pub fn named(name: &str) -> Self {
        Self::read(&Path::new(FAMILIES).join(name))
    }

    /// Its configuration.
    pub fn config(&self) -> Value {
        config(&self.folder)
    }

    /// Opens the checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::open(&Files::folder(&self.folder)).unwrap()
    }

    /// Loads the checkpoint.
    pub fn model(&self, dtype: WeightDtype) -> Model {
        let model = Model::load(self.checkpoint().with_dtype(dtype)).unwrap();
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

/// Root mean square of the differences, relative to the root mean square of the logits. In bf16, the difference of
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
    let mut seen = BTreeSet::new();
    for case in Case::all() {
        let (name, model) = (&case.name, case.model(WeightDtype::F32));
        seen.insert(model.info().family);
        let got = model.logits(&case.tokens).unwrap();
        let off = error(&got, &case.logits, model.info().vocabulary.size);
        assert!(off < TOLERANCE_F32, "{name} in f32: {off:.1e}");
        if let Some(want) = &case.logits_bf16 {
            let got = case.model(WeightDtype::Bf16).logits(&case.tokens);
            let off = spread(&got.unwrap(), want);
            assert!(off < TOLERANCE_BF16, "{name} in bf16: {off:.1e}");
        }
    }
    // `canvas.rs` compares canvas models.
    let every = Family::ALL.iter().map(|family| family.name);
    let every: BTreeSet<_> = every.filter(|name| *name != "diffusion-gemma").collect();
    assert_eq!(seen, every, "every family has a reference");
}
