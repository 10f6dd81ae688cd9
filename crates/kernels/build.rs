//! Compiles the kernels in `cuda/`: with the feature `cuda` for GPUs by nvcc (`cuda/toolkit` provides
//! it without an installation), with the feature `emulation` for the host.

#[cfg(feature = "cuda")]
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Compute capabilities with their own machine code. Later devices use the PTX of the last one.
#[cfg(feature = "cuda")]
const CAPABILITIES: [&str; 4] = ["80", "86", "89", "90"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=cuda");
    #[cfg(feature = "emulation")]
    emulation();
    #[cfg(feature = "cuda")]
    gpu();
}

/// Compiles the kernels for the host. Every load and store of a kernel calls a function of
/// `observe.cpp`, so vectorization, which would merge them, is off.
#[cfg(feature = "emulation")]
fn emulation() {
    let build = || {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2);
        build
    };
    let mut kernels = build();
    kernels
        .flag("-xc++")
        .flag("-fsanitize=thread")
        .flag_if_supported("--param=tsan-instrument-func-entry-exit=0")
        .flag_if_supported("-Wno-unknown-pragmas");
    for pass in [
        "tree-vectorize",
        "tree-slp-vectorize",
        "tree-loop-distribute-patterns",
    ] {
        kernels.flag_if_supported(format!("-fno-{pass}"));
    }
    kernels.files(["cuda/kernels.cu", "cuda/faulty.cu"]);
    // Kernels register themselves; nothing refers to their object files.
    build()
        .link_lib_modifier("+whole-archive")
        .objects(kernels.compile_intermediates())
        .files(["cuda/emulate.cpp", "cuda/observe.cpp"])
        .compile("asynclane_emulation");
}

/// Builds one image with machine code and PTX, and the compiler's report of registers and spills.
#[cfg(feature = "cuda")]
fn gpu() {
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let last = CAPABILITIES[CAPABILITIES.len() - 1];
    let (image, ptx) = (out.join("kernels.fatbin"), out.join("kernels.ptx"));
    let mut codes = CAPABILITIES
        .map(|at| format!("-gencode=arch=compute_{at},code=sm_{at}"))
        .to_vec();
    codes.push(format!("-gencode=arch=compute_{last},code=compute_{last}"));
    codes.extend(["-Xptxas=-v", "-fatbin", "--threads=2"].map(str::to_owned));
    let report = nvcc(&codes, &image);
    nvcc(&[format!("-arch=compute_{last}"), "-ptx".to_owned()], &ptx);
    let path = out.join("resources.txt");
    std::fs::write(&path, report).expect("OUT_DIR can be written");
    println!(
        "cargo::rustc-env=ASYNCLANE_CUDA_RESOURCES={}",
        path.display()
    );
    println!("cargo::rustc-env=ASYNCLANE_CUDA_PTX={}", ptx.display());
}

/// Runs nvcc and returns its messages.
#[cfg(feature = "cuda")]
fn nvcc(arguments: &[String], out: &Path) -> String {
    let home = env::var_os("CUDA_HOME");
    let program = home.map_or("nvcc".into(), |home| Path::new(&home).join("bin/nvcc"));
    let run = Command::new(&program)
        .args(["-O3", "-std=c++17"])
        .args(arguments)
        .arg("-o")
        .arg(out)
        .arg("cuda/kernels.cu")
        .output();
    let run = run.unwrap_or_else(|error| {
        panic!(
            "{}: {error}. Set CUDA_HOME to a CUDA toolkit of version 13 or later; \
             `export CUDA_HOME=\"$(crates/kernels/cuda/toolkit)\"` downloads one",
            program.display()
        )
    });
    let messages = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{}: {messages}", program.display());
    messages
}
