//! All targets of a comparison: one per kind, model and dtypes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use text::Tokenizer;
use tokio::runtime::Runtime;

use super::row::{BenchRow, TargetKey};
use super::tally::{Tally, resident};
use super::target::engine::Runner;
use super::target::executor;
use super::target::http::Server;
use super::target::server::Local;
use super::target::{Ask, Target};
use crate::args::{BenchArgs, BenchTarget};
use cli::config::{Config, Text};
use cli::exit;
use cli::hub;
use cli::load::{self, LoadedModel};

/// The targets.
pub struct Fleet {
    args: BenchArgs,
    config: Config,
    targets: BTreeMap<TargetKey, Box<dyn Target>>,
    /// The instructions for matrix products, by target.
    kernels: Vec<String>,
    /// By model, as [`Decoder::model`](super::row::Decoder::model).
    tokenizers: BTreeMap<Option<String>, Arc<Tokenizer>>,
    runtime: Arc<Runtime>,
}

impl Fleet {
    /// Starts the targets of `rows`.
    ///
    /// # Errors
    /// A model that does not load, a server that does not start.
    pub fn new(args: &BenchArgs, config: &Config, rows: &[BenchRow]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut fleet = Self {
            args: args.clone(),
            config: config.clone(),
            targets: BTreeMap::new(),
            kernels: Vec::new(),
            tokenizers: BTreeMap::new(),
            runtime: Arc::new(runtime),
        };
        for row in rows {
            if !fleet.targets.contains_key(&row.target_key()) {
                let target = fleet.start(row)?;
                fleet.targets.insert(row.target_key(), target);
            }
        }
        Ok(fleet)
    }

    /// Checks that the row's target accepts a request.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn admits(&self, row: &BenchRow, ask: &Ask<'_>) -> Result<()> {
        let target = self.targets.get(&row.target_key());
        target.map_or(Ok(()), |target| target.admits(ask))
    }

    /// Sends requests to the row's target and waits for all answers.
    ///
    /// # Errors
    /// A refused request, a failed step, a server that does not answer.
    pub fn answer(
        &mut self,
        row: &BenchRow,
        asks: &[Ask<'_>],
        seed: u64,
    ) -> Result<(Tally, Vec<Vec<u32>>)> {
        let arrivals = row.load.arrivals(asks.len(), seed);
        let target = self.targets.get_mut(&row.target_key());
        let target = target.expect("every row's target is started");
        let (mut tally, answers) = target.answer(asks, arrivals)?;
        tally.resident = resident();
        Ok((tally, answers))
    }

    /// Processor, threads and the instructions for matrix products.
    pub fn machine(&self) -> String {
        format!("{}, {}", cli::device::processor(), self.kernels.join(" / "))
    }

    /// The tokenizer of a row's model.
    pub fn tokenizer(&self, row: &BenchRow) -> &Tokenizer {
        let tokenizer = self.tokenizers.get(&row.decoder.model);
        tokenizer.expect("a started target stores its tokenizer")
    }

    fn start(&mut self, row: &BenchRow) -> Result<Box<dyn Target>> {
        let runtime = Arc::clone(&self.runtime);
        if let (BenchTarget::Http, Some(url)) = (row.target, self.args.url.clone()) {
            let tokenizer = load::tokenizer(&hub::folder(&self.config_of(row)?.model.path)?)?;
            self.keep(row, &Arc::new(tokenizer));
            let server = Server::remote(runtime, &url)?;
            self.note(format!("{url} over HTTP"));
            return Ok(Box::new(server));
        }
        let (loaded, config) = self.load(row)?;
        self.note(loaded.hardware.kernels.clone());
        self.keep(row, &loaded.tokenizer);
        Ok(match row.target {
            BenchTarget::Engine | BenchTarget::Sim => Box::new(Runner::new(loaded, &config)?),
            BenchTarget::Http => {
                let local = Local::start(&runtime, loaded, &config)?;
                Box::new(Server::local(runtime, local)?)
            }
        })
    }

    /// Records the instructions of a target, each once.
    fn note(&mut self, kernels: String) {
        if !self.kernels.contains(&kernels) {
            self.kernels.push(kernels);
        }
    }

    fn keep(&mut self, row: &BenchRow, tokenizer: &Arc<Tokenizer>) {
        let entry = self.tokenizers.entry(row.decoder.model.clone());
        entry.or_insert_with(|| Arc::clone(tokenizer));
    }

    /// The configuration with the row's model and dtypes.
    fn config_of(&self, row: &BenchRow) -> Result<Config> {
        let mut config = match &row.decoder.model {
            None => self.config.clone(),
            Some(model) => self.config.with_model(model),
        };
        let refused = |key: &str, problem| exit::failure(exit::CONFIG, format!("{key}: {problem}"));
        config.model.dtype =
            Text::read(&row.dtype).map_err(|problem| refused("model.dtype", problem))?;
        config.engine.kv_dtype =
            Text::read(&row.kv_dtype).map_err(|problem| refused("engine.kv_dtype", problem))?;
        Ok(config)
    }

    /// Loads the model of a row; returns it with its configuration.
    fn load(&self, row: &BenchRow) -> Result<(LoadedModel, Config)> {
        let config = self.config_of(row)?;
        let loaded = match row.target {
            BenchTarget::Sim => executor::load_simulator(&config)?,
            BenchTarget::Engine | BenchTarget::Http => executor::load(&self.args, &config)?,
        };
        Ok((loaded, config))
    }
}
