//! Rotary tables compared with those of transformers, and refused scalings.

use super::*;
use candle_core::{Device, Tensor};
use kernels::{Rope, RopeTable};
use serde_json::json;

/// Tables of transformers (`rope.py`).
const TABLES: &str = include_str!("../../../tests/model/fixtures/rope.json");

/// Cosines and sines at positions: what rotates `(1, 0)`.
fn table(spec: &kernels::RopeSpec, positions: &[u32]) -> Vec<Vec<f32>> {
    let half = spec.width / 2;
    let row = [vec![1.0_f32; half], vec![0.0; half]].concat();
    let x =
        Tensor::from_vec(row.repeat(positions.len()), (positions.len(), 2 * half), &Device::Cpu);
    let (x, table) = (x.unwrap(), RopeTable::new(spec));
    let rope = Rope { table: &table, positions, heads: 1, queries: 1, width: 2 * half };
    x.inplace_op1(&rope).unwrap();
    x.to_vec2().unwrap()
}

#[test]
fn tables_are_those_of_transformers() {
    let tables: Vec<Value> = serde_json::from_str(TABLES).unwrap();
    assert_eq!(tables.len(), 10);
    for case in tables {
        let config = Keys::new("config.json", case["config"].as_object().unwrap().clone());
        let RopeSpec { theta, scaling, magnitude, .. } = rope(&config).unwrap();
        let plain = kernels::RopeSpec::plain(theta, 12, 256);
        let spec = kernels::RopeSpec { scaling, magnitude, ..plain };
        let positions: Vec<u32> = serde_json::from_value(case["positions"].clone()).unwrap();
        let rows =
            |key: &str| -> Vec<Vec<f32>> { serde_json::from_value(case[key].clone()).unwrap() };
        let (cos, sin) = (rows("cos"), rows("sin"));
        let frequencies = spec.frequencies();
        for (i, got) in table(&spec, &positions).iter().enumerate() {
            for (j, (got, want)) in got.iter().zip([&cos[i][..], &sin[i]].concat()).enumerate() {
                // The powers of the two libraries differ in the last bits of a frequency.
                let angle = positions[i] as f32 * frequencies[j % 6];
                let off = (got - want).abs();
                assert!(off <= 1e-6 + angle * 2e-7, "{:?}: {got}, {want}", case["config"]);
            }
        }
    }
}

fn refused(object: Value) -> String {
    let config = json!({"max_position_embeddings": 64, "rope_scaling": object});
    let Value::Object(map) = config else { unreachable!() };
    rope(&Keys::new("config.json", map)).unwrap_err().to_string()
}

/// The object, and the error without its beginning.
const REFUSED: &str = r#"
{"factor": 2, "type": "dynamic"} | : expected nothing or the type "default", "linear", "llama3", "yarn" or "longrope", found {"factor":2,"type":"dynamic"}
{"type": "linear"} | : factor: expected a number from 1 to 1000000, found nothing
{"type": "linear", "factor": 0.5} | : factor: expected a number from 1 to 1000000, found 0.5
{"type": "yarn", "factor": 4} | : original_max_position_embeddings: expected 1 to 1048576 positions, found nothing
{"type": "yarn", "original_max_position_embeddings": 16} | : factor: expected a number from 1 to 1000000, found nothing
{"type": "yarn", "original_max_position_embeddings": 16, "factor": 4, "beta_slow": 40} | : beta_fast: expected more than beta_slow 40, found nothing
{"type": "yarn", "original_max_position_embeddings": 16, "factor": 1e9} | : factor: expected a positive number below 1000000, found 1000000000.0
{"type": "llama3", "factor": 4, "low_freq_factor": 4, "high_freq_factor": 4} | : high_freq_factor: expected more than low_freq_factor, found 4
{"type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1], "long_factor": [0]} | : long_factor: expected a list of positive numbers below 1000000, found [0]
"#;

#[test]
fn other_scalings_are_refused_by_key() {
    for case in REFUSED.lines().skip(1) {
        let (object, expected) = case.split_once(" | ").unwrap();
        let error = refused(serde_json::from_str(object).unwrap());
        assert_eq!(error, format!("config.json: rope_scaling{expected}"));
    }
}
