//! The seeded loop: a target over its corpus and over mutations of it.
//!
//! `FUZZ_SECONDS` and `FUZZ_INPUTS` set where it ends, `FUZZ_FROM` the first seed, `FUZZ_SEED` repeats
//! the input of one seed, `FUZZ_INPUT` the input in a file. A failure prints its seed and its bytes; an
//! input that takes the process down lies in the file that the first line names.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::mutate::Mutator;
use super::{Outcome, Target};
use crate::memory::Memory;

/// The end of the loop: a number of inputs or a time, whichever comes first.
const INPUTS: u64 = 5_000;
const TIME: Duration = Duration::from_secs(20);
/// An input that takes longer ends the process: far more than the slowest takes on a machine that
/// does other work beside.
const LONG: Duration = Duration::from_secs(60);
/// Most bytes of an input that a failure prints.
const SHOWN: usize = 4_000;

/// Runs `target` and prints counts. Panics at the first input that violates an oracle.
pub fn drive(target: &Target) {
    let mutator = Mutator::new(corpus(target.name), target.words);
    let mut run = Run::new(target);
    if let Some(file) = std::env::var_os("FUZZ_INPUT") {
        let input = std::fs::read(&file).expect("the file of FUZZ_INPUT is readable");
        println!("{}: {:?}", target.name, run.one("a file", &input));
        return;
    }
    if let Some(seed) = setting("FUZZ_SEED") {
        let outcome = run.one(&format!("seed {seed}"), &mutator.input(seed));
        println!("{}: seed {seed}: {outcome:?}", target.name);
        return;
    }
    for (number, seed) in mutator.seeds().iter().enumerate() {
        run.one(&format!("file {number} of the corpus"), seed);
    }
    let inputs = setting("FUZZ_INPUTS").unwrap_or(INPUTS);
    let time = setting("FUZZ_SECONDS").map_or(TIME, Duration::from_secs);
    let (begin, first) = (Instant::now(), setting("FUZZ_FROM").unwrap_or(0));
    let (mut done, mut accepted) = (0, 0);
    while done < inputs && begin.elapsed() < time {
        let seed = first + done;
        let outcome = run.one(&format!("seed {seed}"), &mutator.input(seed));
        done += 1;
        accepted += u64::from(outcome == Outcome::Accepted);
    }
    let (files, seconds) = (mutator.seeds().len(), begin.elapsed().as_secs_f64());
    let Run { slowest, most, .. } = &run;
    println!(
        "{}: {files} files and {done} inputs in {seconds:.1} s, {accepted} accepted; slowest \
         {slowest:?}, at most {most} KiB more memory",
        target.name
    );
    let least = done * target.accepted as u64 / 1_000;
    assert!(accepted >= least, "{accepted} of {done} accepted");
}

/// A number in the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}: expected a number, found {text}")))
}

/// The files of a corpus, by name.
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/fuzz");
    let folder = folder.join(name);
    let entries = std::fs::read_dir(&folder).expect("a target has a corpus");
    let files = entries.map(|entry| entry.expect("the folder is readable").path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    assert!(!files.is_empty(), "no file in {}", folder.display());
    let read = |file: &PathBuf| std::fs::read(file).expect("the file is readable");
    files.iter().map(read).collect()
}

/// The oracles of time and memory around a target.
struct Run<'a> {
    target: &'a Target,
    /// Holds the present input.
    file: PathBuf,
    /// Names of inputs, for a thread that ends the process if an input takes too long; an empty name ends
    /// an input.
    watch: Sender<String>,
    slowest: Duration,
    /// The most memory that one input took, in KiB.
    most: u64,
}

impl<'a> Run<'a> {
    fn new(target: &'a Target) -> Self {
        let name = format!("asynclane-fuzz-{}-{}", target.name, std::process::id());
        let file = std::env::temp_dir().join(name);
        let shown = file.display();
        println!("{}: the present input is in {shown}", target.name);
        Self { target, watch: watch(file.clone()), file, slowest: Duration::ZERO, most: 0 }
    }

    /// Runs `input`, which a failure calls `name`.
    fn one(&mut self, name: &str, input: &[u8]) -> Outcome {
        std::fs::write(&self.file, input).expect("the folder of temporary files is writable");
        let shown = Shown(self.target.name, name, input);
        let say = |name: &str| self.watch.send(name.to_owned()).expect("the watch runs");
        let memory = Memory::own();
        memory.begin_peak();
        let before = memory.resident();
        let begin = Instant::now();
        say(name);
        let outcome = (self.target.run)(input);
        say("");
        let more = memory.peak().saturating_sub(before);
        (self.slowest, self.most) = (self.slowest.max(begin.elapsed()), self.most.max(more));
        let allowed = self.target.memory << 10;
        assert!(more <= allowed, "{more} KiB of memory, {allowed} are allowed");
        drop(shown);
        outcome
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // The file may be gone.
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

/// Prints an input if its target panics.
struct Shown<'a>(&'a str, &'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(target, name, input) = self;
            let (length, bytes) = (input.len(), &input[..input.len().min(SHOWN)]);
            eprintln!("{target}: {name}, {length} bytes: {}", bytes.escape_ascii());
        }
    }
}

/// Starts a thread that ends the process if an input takes too long; it ends with the sender.
fn watch(file: PathBuf) -> Sender<String> {
    let (names, ends) = channel::<String>();
    std::thread::spawn(move || {
        let mut name = String::new();
        loop {
            let next = match name.is_empty() {
                true => ends.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => ends.recv_timeout(LONG),
            };
            match next {
                Ok(next) => name = next,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("{name} takes over {LONG:?}: {}", file.display());
                    std::process::abort();
                }
            }
        }
    });
    names
}
