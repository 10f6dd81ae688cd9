//! Weights equal those that each format's own library expands the files to.

use crate::weights::Weights;
use crate::{Checkpoint, Files};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/quantized");

#[test]
fn weights_are_those_of_the_formats_libraries() {
    let mut cases = 0;
    for entry in std::fs::read_dir(CASES).unwrap() {
        let folder = entry.unwrap().path();
        let files = Files::folder(folder.clone());
        let mut expanded = Weights::open_single(&files, "expanded.safetensors").unwrap();
        let mut weights = Checkpoint::open(&files).unwrap().weights;
        let names = expanded.unused();
        assert!(names.len() >= 3, "{}", folder.display());
        for name in names {
            let shape = expanded.shape(&name).unwrap().to_vec();
            let want = expanded.tensor(&name, &shape).unwrap();
            assert!(weights.has(&name, &shape));
            let mut got = Vec::new();
            weights.append(&name, &shape, &mut got).unwrap();
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&want), "{}: {name}", folder.display());
        }
        cases += 1;
    }
    assert_eq!(cases, 20);
}
