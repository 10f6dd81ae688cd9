//! Compiles the CUDA kernels of `crates/kernels` for the host, twice. In those of observed launches every
//! load and store calls a function of `observe.cpp`, so vectorization, which would merge them, is off.

use std::env;
use std::path::PathBuf;

const KERNELS: &str = "../../../crates/kernels/cuda";

fn main() {
    println!("cargo::rerun-if-changed=emulation");
    println!("cargo::rerun-if-changed={KERNELS}");
    // Files of the kernels' build script, of the feature `cuda`.
    for name in ["RESOURCES", "PTX"] {
        if let Ok(path) = env::var(format!("DEP_ASYNCLANE_KERNELS_{name}")) {
            println!("cargo::rustc-env=ASYNCLANE_CUDA_{name}={path}");
        }
    }
    if !is_linted() {
        emulation();
    }
}

/// True if clippy reads this crate: nothing is linked or run.
fn is_linted() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").map(PathBuf::from);
    wrapper.is_some_and(|path| path.file_stem().is_some_and(|name| name == "clippy-driver"))
}

fn emulation() {
    let build = || {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(3).flag_if_supported("-ffp-contract=off");
        build.include("emulation").include(KERNELS);
        build
    };
    let source = format!("{KERNELS}/kernels.cu");
    let kernels = |folder: &str| {
        let mut kernels = build();
        kernels
            .out_dir(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join(folder))
            .flag("-xc++")
            .flag_if_supported("-Wno-unknown-pragmas");
        kernels
    };
    let mut observed = kernels("observed");
    observed
        .define("ASYNCLANE_OBSERVED", None)
        .flag("-fsanitize=thread")
        .flag_if_supported("--param=tsan-instrument-func-entry-exit=0");
    for pass in ["tree-vectorize", "tree-slp-vectorize", "tree-loop-distribute-patterns"] {
        observed.flag_if_supported(format!("-fno-{pass}"));
    }
    observed.files([&source, "emulation/faulty.cu"]);
    let mut plain = kernels("plain");
    plain.files([&source, "emulation/faulty.cu"]);
    // Either takes a processor more than half a minute.
    let [observed, plain] = std::thread::scope(|scope| {
        [observed, plain]
            .map(|one| scope.spawn(move || one.compile_intermediates()))
            .map(|objects| objects.join().expect("the compiler's thread ends"))
    });
    // Kernels register themselves; nothing refers to their object files.
    build()
        .link_lib_modifier("+whole-archive")
        .objects(observed)
        .objects(plain)
        .files(["emulation/emulate.cpp", "emulation/observe.cpp"])
        .compile("asynclane_emulation");
}
