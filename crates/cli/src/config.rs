//! Configuration files: TOML, unknown keys refused, every problem named at once.

use std::path::{Path, PathBuf};

use anyhow::Result;
use engine::decoding::DecodingSpec;
use model::{ExpertSharing, WeightDtype};
use serde::{Deserialize, Serialize};
use step::{Attention, Readout};

use crate::args::{CheckConfigArgs, ModelArgs, ServeArgs};
use crate::device::DeviceChoice;
use crate::exit;

/// The decoder that suits the model.
const AUTO: &str = "auto";

/// Everything a server can be told, with its defaults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub server: Server,
    pub model: Model,
    pub engine: Engine,
}

/// `[server]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port.
    pub listen: String,
    /// Seconds after SIGTERM in which requests are still taken while `/ready` says 503.
    pub drain_delay: u64,
    /// Seconds that accepted requests have to finish once new ones are refused after SIGTERM.
    pub drain_timeout: u64,
    /// Most bytes of a request body.
    pub max_body_bytes: usize,
    /// File with the API keys that are accepted; empty = everybody may use the server.
    pub api_keys_file: String,
    /// Whether browsers of any origin may read answers.
    pub cors: bool,
    /// Whether the playground is served at `/`.
    pub playground: bool,
    /// Whether metrics are exported under vLLM's names too.
    pub vllm_metrics: bool,
}

/// `[model]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// `demo`, a Hugging Face folder, or an id on the hub.
    pub path: String,
    /// The name that requests give; empty = the id, or the folder's name.
    pub served_name: String,
    /// How matrices are kept and multiplied: `f32`, `bf16` or `int8`.
    pub dtype: String,
    /// What computes: `auto`, `cpu` or `cuda`.
    pub device: String,
    /// How rows of a block agree on experts: empty = not at all, `vote=0.15` (a share of all
    /// experts) or `seq=2` (what each row has among its first so many).
    pub expert_sharing: String,
    /// Most positions of a sequence; 0 = what the model was built for.
    pub max_model_len: u32,
    /// Decoder of a request that names none.
    pub decoder: String,
    /// Safetensors file with the filter of the commit rule `learned_filter`; empty = the demo
    /// model's own, none for other models.
    pub filter: String,
}

/// `[engine]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// Most rows of a step.
    pub row_budget: u32,
    /// Rows of a step that prefills and refreshes take on average while other sequences decode;
    /// 0 = half of the row budget.
    pub long_quantum: u32,
    /// Whether requests that begin with the same tokens share their K/V, where they can.
    pub prefix_cache: bool,
    /// Most sequences in the batch.
    pub max_running: u32,
    /// Most sequences that wait.
    pub max_waiting: u32,
    /// Slots per KV page.
    pub page_size: u32,
    /// Memory for KV pages.
    pub kv_memory: String,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8000".to_owned(),
            drain_delay: 0,
            drain_timeout: 50,
            max_body_bytes: 16 << 20,
            api_keys_file: String::new(),
            cors: false,
            playground: true,
            vllm_metrics: true,
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            path: "demo".to_owned(),
            served_name: String::new(),
            dtype: WeightDtype::F32.name().to_owned(),
            device: DeviceChoice::Auto.name().to_owned(),
            expert_sharing: String::new(),
            max_model_len: 0,
            decoder: AUTO.to_owned(),
            filter: String::new(),
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            row_budget: 2048,
            long_quantum: 0,
            prefix_cache: true,
            max_running: 64,
            max_waiting: 1024,
            page_size: 16,
            kv_memory: "512MiB".to_owned(),
        }
    }
}

impl Config {
    /// Files, then environment and flags over them; refuses what cannot work.
    ///
    /// # Errors
    /// One line per problem.
    pub fn resolve(args: &ModelArgs, serve: Option<&ServeArgs>) -> Result<Self> {
        let mut config = Self::read(&args.config)?;
        config.apply_model(args);
        if let Some(serve) = serve {
            config.apply_serve(serve);
        }
        config.validate()?;
        Ok(config)
    }

    /// The files merged, later ones winning key by key.
    fn read(files: &[PathBuf]) -> Result<Self> {
        let mut merged = toml::Table::new();
        let mut problems = Vec::new();
        for file in files {
            match read_file(file) {
                Ok(table) => merge(&mut merged, table),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return merged.try_into().map_err(|error: toml::de::Error| {
                exit::failure(exit::CONFIG, error.message().to_owned())
            });
        }
        let code = if problems.iter().any(|p| p.missing) {
            exit::NO_INPUT
        } else {
            exit::CONFIG
        };
        let lines: Vec<_> = problems.into_iter().map(|problem| problem.line).collect();
        Err(exit::failure(code, lines.join("\n")))
    }

    fn apply_model(&mut self, args: &ModelArgs) {
        set(&mut self.model.path, &args.model);
        set(&mut self.model.decoder, &args.decoder);
        set(&mut self.model.filter, &args.filter);
        set(&mut self.model.dtype, &args.dtype);
        set(&mut self.model.device, &args.device);
        set(&mut self.model.expert_sharing, &args.expert_sharing);
        set(&mut self.model.max_model_len, &args.max_model_len);
        set(&mut self.engine.kv_memory, &args.kv_memory);
        set(&mut self.engine.row_budget, &args.row_budget);
        set(&mut self.engine.long_quantum, &args.long_quantum);
        set(&mut self.engine.max_running, &args.max_running);
        self.engine.prefix_cache &= !args.no_prefix_cache;
    }

    fn apply_serve(&mut self, args: &ServeArgs) {
        set(&mut self.model.served_name, &args.served_model_name);
        set(&mut self.server.listen, &args.listen);
        set(&mut self.engine.max_waiting, &args.max_waiting);
        set(&mut self.server.drain_delay, &args.drain_delay);
        set(&mut self.server.drain_timeout, &args.drain_timeout);
        set(&mut self.server.api_keys_file, &args.api_keys_file);
    }

    fn validate(&self) -> Result<()> {
        let mut problems = Vec::new();
        let mut at_least_one = |key: &str, value: u64| {
            if value == 0 {
                problems.push(format!("{key}: expected at least 1, found 0"));
            }
        };
        at_least_one("engine.row_budget", u64::from(self.engine.row_budget));
        at_least_one("engine.max_running", u64::from(self.engine.max_running));
        at_least_one("engine.max_waiting", u64::from(self.engine.max_waiting));
        at_least_one("engine.page_size", u64::from(self.engine.page_size));
        at_least_one("server.max_body_bytes", self.server.max_body_bytes as u64);
        if self.engine.long_quantum > self.engine.row_budget {
            problems.push(format!(
                "engine.long_quantum: expected at most engine.row_budget ({}), found {}",
                self.engine.row_budget, self.engine.long_quantum
            ));
        }
        if let Err(problem) = bytes(&self.engine.kv_memory) {
            problems.push(format!("engine.kv_memory: {problem}"));
        }
        if let Err(problem) = dtype(&self.model.dtype) {
            problems.push(format!("model.dtype: {problem}"));
        }
        if let Err(problem) = DeviceChoice::named(&self.model.device) {
            problems.push(format!("model.device: {problem}"));
        }
        if let Err(problem) = expert_sharing(&self.model.expert_sharing) {
            problems.push(format!("model.expert_sharing: {problem}"));
        }
        let kinds = [Attention::Full, Attention::Causal, Attention::Blocks(32)];
        let decoders =
            kinds.map(|kind| Ok::<_, anyhow::Error>(self.decoding(kind, Readout::Own)?.resolve()?));
        // A setting may belong to one kind of weights, and they are not loaded yet.
        if let [Err(error), Err(_), Err(_)] = decoders {
            problems.push(format!("model.decoder: {error}"));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(exit::failure(exit::CONFIG, problems.join("\n")))
    }

    /// The decoder of a request that names none, for weights trained with `attention` and read at
    /// `readout`.
    ///
    /// # Errors
    /// A setting that is unknown or out of range.
    pub fn decoding(&self, attention: Attention, readout: Readout) -> Result<DecodingSpec> {
        let named = match self.model.decoder.as_str() {
            AUTO => "",
            named => named,
        };
        Ok(DecodingSpec::parse(named)?.suited_to(attention, readout))
    }

    /// How matrices are kept and multiplied.
    ///
    /// # Errors
    /// No such dtype.
    pub fn dtype(&self) -> Result<WeightDtype> {
        dtype(&self.model.dtype)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.dtype: {problem}")))
    }

    /// What computes.
    ///
    /// # Errors
    /// No such device.
    pub fn device(&self) -> Result<DeviceChoice> {
        DeviceChoice::named(&self.model.device)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("model.device: {problem}")))
    }

    /// How rows of a block agree on experts.
    ///
    /// # Errors
    /// No such way, or a number out of range.
    pub fn expert_sharing(&self) -> Result<Option<ExpertSharing>> {
        expert_sharing(&self.model.expert_sharing).map_err(|problem| {
            exit::failure(exit::CONFIG, format!("model.expert_sharing: {problem}"))
        })
    }

    /// Rows of a step for prefills and refreshes, `>= 1`.
    pub fn long_quantum(&self) -> u32 {
        match self.engine.long_quantum {
            0 => self.engine.row_budget.div_ceil(2),
            rows => rows,
        }
    }

    /// Bytes for KV pages.
    ///
    /// # Errors
    /// Not a size.
    pub fn kv_bytes(&self) -> Result<u64> {
        bytes(&self.engine.kv_memory)
            .map_err(|problem| exit::failure(exit::CONFIG, format!("engine.kv_memory: {problem}")))
    }
}

/// `asynclane check-config`: prints the configuration that the files resolve to.
///
/// # Errors
/// Every problem of the files.
pub fn check(args: &CheckConfigArgs) -> Result<()> {
    let model = ModelArgs {
        config: args.files.clone(),
        ..ModelArgs::default()
    };
    let config = Config::resolve(&model, None)?;
    print!("{}", toml::to_string(&config)?);
    Ok(())
}

struct Problem {
    line: String,
    missing: bool,
}

/// Reads one file and checks it alone, so that a message can name its line.
fn read_file(path: &Path) -> Result<toml::Table, Problem> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Problem {
        line: format!("{name}: {error}"),
        missing: error.kind() == std::io::ErrorKind::NotFound,
    })?;
    let problem = |error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let before = &text[..at.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let message = error.message().replace('\n', " ");
        Problem {
            line: format!("{name}:{line}:{column} {message}"),
            missing: false,
        }
    };
    toml::from_str::<Config>(&text).map_err(problem)?;
    toml::from_str(&text).map_err(problem)
}

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn set<T: Clone>(target: &mut T, value: &Option<T>) {
    if let Some(value) = value {
        target.clone_from(value);
    }
}

fn dtype(name: &str) -> Result<WeightDtype, String> {
    WeightDtype::named(name).ok_or_else(|| {
        let names = WeightDtype::ALL.map(WeightDtype::name).join(", ");
        format!("expected one of {names}, found {name:?}")
    })
}

/// `vote=0.15`, `seq=2`, or nothing.
fn expert_sharing(text: &str) -> Result<Option<ExpertSharing>, String> {
    let sharing = match text.split_once('=') {
        None if text.is_empty() => return Ok(None),
        Some(("vote", share)) => {
            let share = share
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share));
            share.map(ExpertSharing::Vote)
        }
        Some(("seq", first)) => {
            let first = first.parse().ok().filter(|first| *first > 0);
            first.map(ExpertSharing::Sequence)
        }
        _ => None,
    };
    let expected = "expected vote=SHARE with a share in 0..1, seq=COUNT with a count >= 1, or \
                    nothing";
    sharing
        .map(Some)
        .ok_or_else(|| format!("{expected}, found {text:?}"))
}

/// `512MiB`, `4GiB`, `1000000`.
fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => {
            return Err(format!(
                "expected a size such as 512MiB or 4GiB, found unit {other}"
            ));
        }
    };
    let number = text[..digits].parse::<u64>().ok();
    let size = number.and_then(|number| number.checked_mul(unit));
    size.filter(|size| *size > 0)
        .ok_or_else(|| format!("expected a size such as 512MiB or 4GiB, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config")
    }

    #[test]
    fn every_file_in_config_loads() {
        let mut files = 0;
        for entry in std::fs::read_dir(folder()).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let args = ModelArgs {
                    config: vec![path.clone()],
                    ..ModelArgs::default()
                };
                Config::resolve(&args, None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                files += 1;
            }
        }
        assert!(files >= 3, "{files} files");
    }

    #[test]
    fn the_reference_names_every_key_and_equals_the_defaults() {
        let text = std::fs::read_to_string(folder().join("reference.toml")).unwrap();
        let given: toml::Table = toml::from_str(&text).unwrap();
        let defaults = toml::Table::try_from(Config::default()).unwrap();
        assert_eq!(given, defaults);
    }

    #[test]
    fn later_files_win_key_by_key() {
        let mut base = toml::from_str("[engine]\nrow_budget = 1\npage_size = 8").unwrap();
        merge(
            &mut base,
            toml::from_str("[engine]\nrow_budget = 2").unwrap(),
        );
        let config: Config = base.try_into().unwrap();
        assert_eq!((config.engine.row_budget, config.engine.page_size), (2, 8));
    }

    #[test]
    fn problems_are_named_together() {
        let mut config = Config::default();
        config.engine.row_budget = 0;
        config.engine.long_quantum = 7;
        config.engine.kv_memory = "much".to_owned();
        config.model.decoder = "balanced,treshold=0.5".to_owned();
        config.model.dtype = "fp8".to_owned();
        config.model.expert_sharing = "vote=1.5".to_owned();
        let message = config.validate().unwrap_err().to_string();
        for key in [
            "engine.row_budget: expected at least 1, found 0",
            "engine.long_quantum: expected at most engine.row_budget (0), found 7",
            "engine.kv_memory",
            "model.decoder: treshold",
            "model.dtype: expected one of f32, bf16, int8, found \"fp8\"",
            "model.expert_sharing: expected vote=SHARE",
        ] {
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn prefills_and_refreshes_have_half_of_the_rows_unless_told_otherwise() {
        let mut config = Config::default();
        assert_eq!(config.long_quantum(), 1024);
        config.engine.row_budget = 1;
        assert_eq!(config.long_quantum(), 1);
        config.engine.row_budget = 100;
        config.engine.long_quantum = 100;
        assert_eq!(config.long_quantum(), 100);
        assert!(config.validate().is_ok());
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("7"), Ok(7));
        assert!(bytes("0GiB").is_err() && bytes("4GB").is_err() && bytes("").is_err());
        assert!(bytes("99999999999GiB").is_err());
    }
}
