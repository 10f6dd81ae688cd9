//! Configurations that no model could have are refused by name.

use asynclane_sim::{ConfidenceLaw, SimConfig, SimExecutor};

#[test]
fn every_field_is_checked() {
    let law = ConfidenceLaw::default();
    let good = SimConfig::default();
    let broken = [
        ("page_size", SimConfig { page_size: 0, ..good.clone() }),
        ("pages", SimConfig { pages: 0, ..good.clone() }),
        ("vocab_size", SimConfig { vocab_size: 3, ..good.clone() }),
        ("max_positions", SimConfig { max_positions: 0, ..good.clone() }),
        ("period_every", SimConfig { period_every: 1, ..good.clone() }),
        ("mask", SimConfig { mask: 512, ..good.clone() }),
        ("stop_token", SimConfig { stop_token: 0, ..good.clone() }),
        ("period", SimConfig { period: Some(1), ..good.clone() }),
        ("text_len", SimConfig { text_len: 9..9, ..good.clone() }),
        ("words", SimConfig { words: vec![5, 0], ..good.clone() }),
        ("law", SimConfig { law: ConfidenceLaw { left: f64::NAN, ..law }, ..good.clone() }),
        ("law.decay", SimConfig { law: ConfidenceLaw { decay: 1.0, ..law }, ..good.clone() }),
        ("law.least", SimConfig { law: ConfidenceLaw { least: 0.0, ..law }, ..good.clone() }),
    ];
    for (key, config) in broken {
        assert_eq!(SimExecutor::new(config).unwrap_err().key, key);
    }
    assert!(SimExecutor::new(good).is_ok());
}
