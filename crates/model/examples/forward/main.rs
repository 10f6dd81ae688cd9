//! Measures forward passes.
//!
//! ```text
//! cargo run --release -p asynclane-model --example forward -- \
//!     [demo | llada-300m] [f32 | bf16 | int8 | int4] [--rows N,N] [--json FILE]
//!     [--slots N,N [--kv f32,bf16,int8]]
//! ```
//! Uses random weights. `--rows` measures one sequence with the given numbers of rows only. `--slots` measures
//! steps whose rows (32 by default) see these numbers of slots, with keys and values in each number format,
//! beside the bytes that such a step must read.

mod contexts;
mod measure;

use asynclane_model::{ExecutorConfig, Geometry, KvDtype, Model, ModelExecutor, WeightDtype};
use measure::{Measured, batch, measure, occupancy};
use serde_json::{Map, Value, json};
use std::error::Error;

/// Positions that each sequence of a profile sees.
const CONTEXT: u32 = 192;
/// Number of sequences of a profile and rows of each: a single sequence, and many sequences under a
/// row budget.
const PROFILES: [(u32, u32); 2] = [(1, 40), (64, 8)];
/// Default numbers of rows of the measured sequence.
const ROWS: &[u32] = &[1, 4, 16, 32, 64, 128, 256];

/// Command-line options.
pub struct Options {
    geometry: Geometry,
    dtype: WeightDtype,
    rows: Option<Vec<u32>>,
    slots: Vec<u32>,
    kv: Vec<KvDtype>,
    json: Option<String>,
}

impl Options {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            geometry: Geometry::ALL[0],
            dtype: WeightDtype::default(),
            rows: None,
            slots: Vec::new(),
            kv: KvDtype::ALL.to_vec(),
            json: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word}: a value is missing"));
            match word.as_str() {
                "--rows" => options.rows = Some(numbers(&value()?)?),
                "--slots" => options.slots = numbers(&value()?)?,
                "--kv" => {
                    let named = |name| KvDtype::named(name).ok_or(format!("--kv: {name}"));
                    options.kv = value()?.split(',').map(named).collect::<Result<_, _>>()?;
                }
                "--json" => options.json = Some(value()?),
                name => match (Geometry::named(name), WeightDtype::named(name)) {
                    (Some(geometry), _) => options.geometry = geometry,
                    (_, Some(dtype)) => options.dtype = dtype,
                    _ => return Err(format!("{name}: expected a geometry or a dtype").into()),
                },
            }
        }
        Ok(options)
    }
}

/// Numbers separated by commas.
fn numbers(text: &str) -> Result<Vec<u32>, std::num::ParseIntError> {
    text.split(',').map(str::parse).collect()
}

fn executor(options: &Options) -> Result<ModelExecutor, Box<dyn Error>> {
    let checkpoint = options.geometry.checkpoint(5, 1)?.with_dtype(options.dtype);
    let config = ExecutorConfig {
        page_size: measure::PAGE,
        pages: 64 * CONTEXT.div_ceil(measure::PAGE),
        threads: None,
    };
    Ok(ModelExecutor::new(Model::load(checkpoint)?, config)?)
}

/// Rounds `value` to `digits` decimals.
fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

fn figures(measured: &Measured) -> Map<String, Value> {
    let figures = [("ms", round(measured.time, 3)), ("gflop_per_second", round(measured.rate, 1))];
    let figures = figures.map(|(name, value)| (name.to_owned(), json!(value)));
    figures.into_iter().collect()
}

/// Measures one sequence with each number of rows.
fn ladder(executor: &mut ModelExecutor, rows: &[u32], operations: f64) -> Vec<Value> {
    let of_rows = |rows: &u32| {
        let measured = measure(executor, &batch(1, *rows, *rows), operations);
        println!("{rows:4} rows: {:.1} GFLOP/s, {:.3} ms", measured.rate, measured.time);
        let mut row = figures(&measured);
        row.insert("rows".to_owned(), json!(rows));
        Value::Object(row)
    };
    rows.iter().map(of_rows).collect()
}

/// Measures a step of several sequences.
fn profile(executor: &mut ModelExecutor, (sequences, rows): (u32, u32), operations: f64) -> Value {
    let batch = batch(sequences, rows, CONTEXT);
    let measured = measure(executor, &batch, operations);
    println!("{sequences} x {rows} rows: {:.2} ms", measured.time);
    let mut profile = figures(&measured);
    let mut insert = |name: &str, value: Value| profile.insert(name.to_owned(), value);
    insert("sequences", json!(sequences));
    insert("rows", json!(rows));
    if let Some(busy) = occupancy(executor, &batch) {
        println!("  {:.2} threads busy, {:.1} % of it system time", busy.threads, busy.system);
        insert("threads_busy", json!(round(busy.threads, 2)));
        insert("system", json!(round(busy.system, 1)));
    }
    Value::Object(profile)
}

/// Processor, number of threads and instruction set.
fn machine(executor: &ModelExecutor, dtype: WeightDtype) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    format!(
        "{}, {} threads, {} by {}",
        name.unwrap_or(std::env::consts::ARCH).trim(),
        executor.threads(),
        dtype.name(),
        executor.instructions()
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    let mut result = match options.slots.is_empty() {
        true => passes(&options)?,
        false => contexts::contexts(&options)?,
    };
    if let Some(file) = options.json {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let command = "cargo run --release -p asynclane-model --example forward --";
        result["command"] = json!(format!("{command} {}", arguments.join(" ")));
        std::fs::write(file, serde_json::to_string_pretty(&result)? + "\n")?;
    }
    Ok(())
}

/// Measures passes of short contexts.
fn passes(options: &Options) -> Result<Value, Box<dyn Error>> {
    let mut executor = executor(options)?;
    let (machine, operations) =
        (machine(&executor, options.dtype), executor.model().info().operations());
    println!(
        "{}, {:.1} M parameters; {machine}",
        options.geometry.name,
        1e-6 * executor.model().info().parameters as f64,
    );
    let rows = ladder(&mut executor, options.rows.as_deref().unwrap_or(ROWS), operations);
    let profiles = match options.rows {
        Some(_) => Vec::new(),
        None => PROFILES.map(|shape| profile(&mut executor, shape, operations)).to_vec(),
    };
    Ok(json!({
        "machine": machine,
        "geometry": options.geometry.name,
        "dtype": options.dtype.name(),
        "context": CONTEXT,
        "forward": rows,
        "profiles": profiles,
    }))
}
