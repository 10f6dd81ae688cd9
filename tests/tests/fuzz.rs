//! Every fuzz target over its corpus and over mutations of it.

use asynclane_tests::fuzz::{self, drive::drive};

#[test]
fn framing() {
    drive(&fuzz::framing::TARGET);
}

#[test]
fn request() {
    drive(&fuzz::request::TARGET);
}

#[test]
fn grammar() {
    drive(&fuzz::grammar::TARGET);
}

#[test]
fn template() {
    drive(&fuzz::template::TARGET);
}

#[test]
fn gguf() {
    drive(&fuzz::gguf::TARGET);
}

#[test]
fn index() {
    drive(&fuzz::index::TARGET);
}

#[test]
fn config() {
    drive(&fuzz::config::TARGET);
}
