//! Every fuzz target over its corpus and over mutations of it.

use asynclane_tests::fuzz::{self, drive::drive};

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                drive(&fuzz::$name::TARGET);
            }
        )*
    };
}

targets!(framing request grammar template gguf index config);
