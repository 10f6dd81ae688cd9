//! Everything that a comparison asks, one target per kind, model and dtype.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use text::Tokenizer;
use tokio::runtime::Runtime;

use super::arm::{Arm, Place};
use super::report;
use super::tally::{Tally, resident};
use super::target::engine::Runner;
use super::target::executor;
use super::target::http::Server;
use super::target::idle::Crowd;
use super::target::server::Local;
use super::target::{Ask, Target};
use crate::args::{BenchArgs, BenchTarget};
use crate::config::Config;
use crate::hub;
use crate::load::{self, Loaded};

/// The targets.
pub struct Fleet {
    args: BenchArgs,
    config: Config,
    targets: BTreeMap<Place, Box<dyn Target>>,
    /// What multiplies the matrices, by target.
    kernels: Vec<String>,
    /// By model, as [`Decoder::model`](super::arm::Decoder::model).
    tokenizers: BTreeMap<Option<String>, Arc<Tokenizer>>,
    runtime: Arc<Runtime>,
}

impl Fleet {
    /// Loads what `arms` need.
    ///
    /// # Errors
    /// What keeps a model from loading or a server from starting.
    pub fn new(args: &BenchArgs, config: &Config, arms: &[Arm]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let mut fleet = Self {
            args: args.clone(),
            config: config.clone(),
            targets: BTreeMap::new(),
            kernels: Vec::new(),
            tokenizers: BTreeMap::new(),
            runtime: Arc::new(runtime),
        };
        for arm in arms {
            if !fleet.targets.contains_key(&arm.place()) {
                let target = fleet.start(arm)?;
                fleet.targets.insert(arm.place(), target);
            }
        }
        Ok(fleet)
    }

    /// Whether the row's target takes this question.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, arm: &Arm, ask: &Ask<'_>) -> Result<()> {
        let target = self.targets.get(&arm.place());
        target.map_or(Ok(()), |target| target.admits(ask))
    }

    /// Asks the row's target.
    ///
    /// # Errors
    /// A question that is refused, a failed step, a server that does not answer.
    pub fn answer(
        &mut self,
        arm: &Arm,
        asks: &[Ask<'_>],
        seed: u64,
    ) -> Result<(Tally, Vec<Vec<u32>>)> {
        let crowd = match arm.idle {
            0 => None,
            count => {
                let (loaded, config) = self.load(arm)?;
                Some(Crowd::open(&self.runtime, loaded, &config, count)?)
            }
        };
        let arrivals = arm.load.arrivals(asks.len(), seed);
        let target = self.targets.get_mut(&arm.place());
        let target = target.expect("every row's target is started");
        let (mut tally, answers) = target.answer(asks, arrivals)?;
        tally.resident = resident();
        if let Some(crowd) = crowd {
            tally.crowd = crowd.bytes();
            crowd.close(&self.runtime);
        }
        Ok((tally, answers))
    }

    /// Processor, threads, and what multiplies the matrices.
    pub fn machine(&self) -> String {
        format!("{}, {}", report::machine(), self.kernels.join(" / "))
    }

    /// The tokenizer of a row's model.
    pub fn tokenizer(&self, arm: &Arm) -> &Tokenizer {
        let tokenizer = self.tokenizers.get(&arm.decoder.model);
        tokenizer.expect("every started target has left its model's")
    }

    fn start(&mut self, arm: &Arm) -> Result<Box<dyn Target>> {
        let runtime = Arc::clone(&self.runtime);
        if let (BenchTarget::Http, Some(url)) = (arm.target, self.args.url.clone()) {
            let tokenizer = load::words(&hub::folder(&self.config_of(arm).model.path)?)?;
            self.keep(arm, &Arc::new(tokenizer));
            let server = Server::remote(runtime, &url)?;
            self.note(format!("{url} over HTTP"));
            return Ok(Box::new(server));
        }
        let (loaded, config) = self.load(arm)?;
        self.note(loaded.kernels.clone());
        self.keep(arm, &loaded.tokenizer);
        Ok(match arm.target {
            BenchTarget::Engine | BenchTarget::Sim => Box::new(Runner::new(loaded, &config)),
            BenchTarget::Http => {
                let local = Local::start(&runtime, loaded, &config)?;
                Box::new(Server::local(runtime, local)?)
            }
        })
    }

    /// Lists what computes, once.
    fn note(&mut self, kernels: String) {
        if !self.kernels.contains(&kernels) {
            self.kernels.push(kernels);
        }
    }

    fn keep(&mut self, arm: &Arm, tokenizer: &Arc<Tokenizer>) {
        let of = self.tokenizers.entry(arm.decoder.model.clone());
        of.or_insert_with(|| Arc::clone(tokenizer));
    }

    /// The configuration with the row's model and dtype.
    fn config_of(&self, arm: &Arm) -> Config {
        let mut config = match &arm.decoder.model {
            None => self.config.clone(),
            Some(model) => self.config.with_model(model),
        };
        config.model.dtype.clone_from(&arm.dtype);
        config
    }

    /// The model of a row, and its configuration.
    fn load(&self, arm: &Arm) -> Result<(Loaded, Config)> {
        let config = self.config_of(arm);
        let loaded = match arm.target {
            BenchTarget::Sim => executor::load_simulator(&config)?,
            BenchTarget::Engine | BenchTarget::Http => executor::load(&self.args, &config)?,
        };
        Ok((loaded, config))
    }
}
