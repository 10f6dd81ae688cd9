//! The properties and the coming errors of the driver, read from a file; and its log.
//!
//! One instruction a line, in any order:
//!
//! | line | meaning | default |
//! |---|---|---|
//! | `version N` | what `cuDriverGetVersion` answers | 12080 |
//! | `devices N` | number of devices | 1 |
//! | `capability A B` | compute capability of the device | 9 0 |
//! | `memory N` | bytes of its memory | 256 MiB |
//! | `seed N` | chooses when waiting work runs | 1 |
//! | `fail F N C` | the N-th call of function F from now on fails with code C | |
//! | `fault N C` | the N-th kernel to run from now on ends with the asynchronous error C | |
//! | `hang` | no work is completed while the line is there | |
//!
//! "From now on" counts from the first call that finds the changed file.

use crate::Code;
use std::collections::BTreeMap;
use std::io::Write;

/// The settings, and the errors to come.
#[derive(Debug)]
pub struct Plan {
    text: String,
    pub version: i32,
    pub devices: i32,
    pub capability: (i32, i32),
    pub memory: u64,
    pub hangs: bool,
    pub random: u64,
    /// Calls of a function until it fails, and the code.
    fails: BTreeMap<String, (u64, Code)>,
    /// Kernels until one faults, and the code.
    fault: Option<(u64, Code)>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            text: String::new(),
            version: 12_080,
            devices: 1,
            capability: (9, 0),
            memory: 256 << 20,
            hangs: false,
            random: 1,
            fails: BTreeMap::new(),
            fault: None,
        }
    }
}

impl Plan {
    /// Reads the file again if it has changed.
    pub fn refresh(&mut self) {
        let Some(path) = std::env::var_os("FAKE_CUDA_PLAN") else {
            return;
        };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text == self.text {
            return;
        }
        let random = self.random;
        *self = Self { random, ..Self::default() };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let what = words.next().unwrap_or_default();
            let rest: Vec<&str> = words.collect();
            if self.take(what, &rest).is_none() {
                log(&format!("misuse: the plan says {line:?}"));
            }
        }
        self.text = text;
    }

    fn take(&mut self, what: &str, rest: &[&str]) -> Option<()> {
        let number = |index: usize| rest.get(index)?.parse::<u64>().ok();
        let small = |index: usize| i32::try_from(number(index)?).ok();
        match what {
            "" => {}
            "version" => self.version = small(0)?,
            "devices" => self.devices = small(0)?,
            "capability" => self.capability = (small(0)?, small(1)?),
            "memory" => self.memory = number(0)?,
            "seed" => self.random = number(0)?,
            "hang" => self.hangs = true,
            "fault" => self.fault = Some((number(0)?, number(1)? as Code)),
            "fail" => {
                let fail = (number(1)?, number(2)? as Code);
                self.fails.insert((*rest.first()?).to_owned(), fail);
            }
            _ => return None,
        }
        Some(())
    }

    /// The code with which this call of a function is to fail.
    pub fn failure(&mut self, function: &str) -> Option<Code> {
        let (left, code) = self.fails.get_mut(function)?;
        *left = left.saturating_sub(1);
        let code = (*left == 0).then_some(*code)?;
        self.fails.remove(function);
        Some(code)
    }

    /// The code with which the next kernel is to end.
    pub fn fault(&mut self) -> Option<Code> {
        let (left, code) = self.fault.as_mut()?;
        *left = left.saturating_sub(1);
        let code = (*left == 0).then_some(*code)?;
        self.fault = None;
        Some(code)
    }

    /// The next of a sequence of numbers.
    pub fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }
}

/// Adds a line to the log; without one, to standard error.
pub fn log(line: &str) {
    let file = std::env::var_os("FAKE_CUDA_LOG")
        .and_then(|path| std::fs::File::options().create(true).append(true).open(path).ok());
    match file {
        Some(mut file) => {
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
        None => eprintln!("fake driver: {line}"),
    }
}
