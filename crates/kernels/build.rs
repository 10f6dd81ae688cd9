//! With the feature `cuda` compiles the kernels in `cuda/` for GPUs by nvcc, which `cuda/toolkit` provides
//! without an installation.

#[cfg(feature = "cuda")]
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Compute capabilities that the kernels are compiled for, each with those whose machine code is
/// assembled from its PTX. The sources ask for `90a` only, which has products of warpgroups and runs on
/// no later device. Later devices use the PTX for 9.0.
#[cfg(feature = "cuda")]
const CAPABILITIES: [(&str, &[&str]); 3] =
    [("80", &["80", "86", "89"]), ("90a", &["90a"]), ("90", &[])];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The documents and scripts of the folder are not compiled.
    let sources = std::fs::read_dir("cuda").expect("the folder of the kernels");
    for source in sources.map(|entry| entry.expect("an entry of it").path()) {
        let kind = source.extension().and_then(|kind| kind.to_str());
        if matches!(kind, Some("cu" | "cuh" | "h")) {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    #[cfg(feature = "cuda")]
    gpu();
}

/// True if clippy reads this crate: the files must exist, and nothing is linked or run. Cargo gives it
/// an `OUT_DIR` of its own.
#[cfg(feature = "cuda")]
fn linted() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").map(PathBuf::from);
    wrapper.is_some_and(|path| path.file_stem().is_some_and(|name| name == "clippy-driver"))
}

/// Builds machine code for each capability, PTX of the last one, and the assembler's report of
/// registers and spills, or takes them from the folder `CUDA_KERNELS_CACHE`.
///
/// The assembler is `ptxas-12` beside nvcc if it is there (`cuda/toolkit` unpacks one), because drivers
/// load machine code of their own major version and later ones.
#[cfg(feature = "cuda")]
fn gpu() {
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    println!("cargo::rerun-if-env-changed=CUDA_KERNELS_CACHE");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let older = tool("ptxas-12");
    let lowered = older.exists();
    let ptxas = if lowered { older } else { tool("ptxas") };
    let report = run(&ptxas, &["--version".to_owned()]);
    let cache = env::var_os("CUDA_KERNELS_CACHE").filter(|_| !linted()).map(PathBuf::from);
    let key = key(&report);
    let is_ours =
        |cache: &PathBuf| std::fs::read_to_string(cache.join(KEY)).is_ok_and(|it| it == key);
    if let Some(cache) = cache.as_ref().filter(|cache| is_ours(cache)) {
        copy(cache, &out);
    } else {
        assemble((&ptxas, lowered), &out);
        if let Some(cache) = cache {
            let _ = std::fs::remove_dir_all(&cache);
            copy(&out, &cache);
            std::fs::write(cache.join(KEY), key).expect("the cache can be written");
        }
    }
    let (last, _) = CAPABILITIES[CAPABILITIES.len() - 1];
    let (ptx, path) = (out.join(format!("kernels_{last}.ptx")), out.join("resources.txt"));
    let release = report.split("release ").nth(1).and_then(|rest| rest.split(',').next());
    let release = release.unwrap_or_default();
    println!("cargo::rustc-env=ASYNCLANE_CUDA_ASSEMBLER={release}");
    println!("cargo::metadata=RESOURCES={}", path.display());
    println!("cargo::metadata=PTX={}", ptx.display());
}

/// The file of a cache that says what it is of. Workspaces that share a cache compile the kernels once.
#[cfg(feature = "cuda")]
const KEY: &str = "key.txt";

/// The hash of the sources, this file and the assembler's version.
#[cfg(feature = "cuda")]
fn key(version: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let files = std::fs::read_dir("cuda").expect("the folder of the kernels");
    let mut files: Vec<_> = files.map(|file| file.expect("an entry of it").path()).collect();
    files.sort();
    files.push("build.rs".into());
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    for file in files {
        std::fs::read(file).expect("it can be read").hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// Copies the files of a folder into another.
#[cfg(feature = "cuda")]
fn copy(from: &Path, target: &Path) {
    let copied = std::fs::create_dir_all(target).and_then(|()| {
        std::fs::read_dir(from)?.try_for_each(|file| {
            let file = file?;
            std::fs::copy(file.path(), target.join(file.file_name())).map(drop)
        })
    });
    copied.unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), target.display()));
}

/// Writes the machine code, the PTX and the report.
#[cfg(feature = "cuda")]
fn assemble((ptxas, lowered): (&Path, bool), out: &Path) {
    let reports = std::thread::scope(|scope| {
        CAPABILITIES
            .map(|(generation, all)| {
                scope.spawn(move || compile((generation, all), (ptxas, lowered), out))
            })
            .map(|one| one.join().expect("the assembler's thread ends"))
    });
    let (last, _) = CAPABILITIES[CAPABILITIES.len() - 1];
    // The driver takes PTX as text that ends with a zero byte.
    let mut text = std::fs::read(out.join(format!("kernels_{last}.ptx"))).expect("nvcc wrote it");
    text.push(0);
    let text = std::fs::write(out.join("kernels.ptx.0"), text);
    text.and_then(|()| std::fs::write(out.join("resources.txt"), reports.concat()))
        .expect("OUT_DIR can be written");
}

/// Compiles the kernels for one capability and assembles them for `all`. Returns the assembler's
/// reports.
#[cfg(feature = "cuda")]
fn compile(
    (generation, all): (&str, &[&str]),
    (ptxas, lowered): (&Path, bool),
    out: &Path,
) -> String {
    let ptx = out.join(format!("kernels_{generation}.ptx"));
    let source = ["-O3", "-std=c++17", "-ptx", "cuda/kernels.cu"].map(str::to_owned);
    let target =
        [format!("-arch=compute_{generation}"), format!("--output-file={}", ptx.display())];
    run(&tool("nvcc"), &[source.to_vec(), target.to_vec()].concat());
    if lowered {
        let text = std::fs::read_to_string(&ptx).expect("nvcc wrote it");
        std::fs::write(&ptx, older(&text)).expect("OUT_DIR can be written");
    }
    let assemble = |capability: &&str| {
        let code = out.join(format!("kernels_{capability}.cubin"));
        let arguments = [
            "-O3".to_owned(),
            "-v".to_owned(),
            format!("-arch=sm_{capability}"),
            format!("--output-file={}", code.display()),
            ptx.display().to_string(),
        ];
        run(ptxas, &arguments)
    };
    all.iter().map(assemble).collect()
}

/// The same PTX in the version of CUDA 12.8, the first that knows compute capability 12.0. The
/// assembler refuses what that version does not have.
#[cfg(feature = "cuda")]
fn older(ptx: &str) -> String {
    let lines = ptx.lines().map(|line| match line.starts_with(".version ") {
        true => ".version 8.7\n".to_owned(),
        false => format!("{line}\n"),
    });
    lines.collect()
}

/// A program of the toolkit.
#[cfg(feature = "cuda")]
fn tool(name: &str) -> PathBuf {
    let home = env::var_os("CUDA_HOME");
    home.map_or(name.into(), |home| Path::new(&home).join("bin").join(name))
}

/// Runs a program of the toolkit and returns what it prints. For clippy, leaves an empty output file
/// instead.
#[cfg(feature = "cuda")]
fn run(program: &Path, arguments: &[String]) -> String {
    if linted() {
        let mut files = arguments.iter();
        if let Some(file) = files.find_map(|one| one.strip_prefix("--output-file=")) {
            std::fs::write(file, "").expect("OUT_DIR can be written");
        }
        return String::new();
    }
    let run = Command::new(program).args(arguments).output();
    let run = run.unwrap_or_else(|error| {
        panic!(
            "{}: {error}. Set CUDA_HOME to a CUDA toolkit of version 12.8 or later; \
             `export CUDA_HOME=\"$(crates/kernels/cuda/toolkit)\"` downloads one",
            program.display()
        )
    });
    let messages = [run.stdout, run.stderr].concat();
    let messages = String::from_utf8_lossy(&messages).into_owned();
    assert!(run.status.success(), "{}: {messages}", program.display());
    messages
}
