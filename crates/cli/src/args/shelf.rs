//! Arguments of `models` and `pull`.

use clap::{Args, Subcommand};

use super::ModelArgs;

#[derive(Args, Debug)]
pub struct ModelsArgs {
    #[command(subcommand)]
    pub what: Option<ModelsCommand>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Remove a model from the hub's cache, in all its revisions.
    Rm {
        /// A short name or an id: `org/name`.
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
pub struct PullArgs {
    /// The model: a short name or an id on the hub.
    #[arg(value_name = "MODEL")]
    pub name: String,
    #[command(flatten)]
    pub model: ModelArgs,
}
