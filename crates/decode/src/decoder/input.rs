//! The facts of a sequence that its decoder needs.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::candidate::TokenId;
use crate::canvas::Pin;
use crate::constraint::Constraint;
use crate::filter::Filter;
use crate::token_class::TokenClasses;

/// The facts of a sequence that its decoder needs.
#[derive(Debug)]
pub struct Input<'a> {
    /// L: number of offsets to generate.
    pub budget: u32,
    /// The text ends after this number of offsets, although the last canvas may be longer.
    pub limit: u32,
    /// E: the stop set.
    pub stops: &'a [TokenId],
    /// The tokens that stand on the canvas from the start.
    pub pins: &'a [Pin],
    /// Delimiter classes of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// True if the prompt looks like code.
    pub code_prompt: bool,
    /// Positions left of offset 0 in its block, where blocks are counted from the prompt's first
    /// token. The first block of the block-wise schedule is shorter by this number.
    pub phase: u32,
    /// Length of the model's blocks, `>= 1`, for models that predict the first token of a block at
    /// the last row of the block before: the block-wise schedule commits that token before the
    /// rest of its block. `None` for other models.
    pub lead: Option<u32>,
    /// True if the first step of every lane commits its first mask alone, unless the rule fills the
    /// canvas (Fast-dLLM on Dream).
    pub first_alone: bool,
    /// The grammar that the emitted tokens follow. It switches forks off: the border of a fork must
    /// be final.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The filter network trained for the model; a rule that needs one commits one mask per step
    /// without it.
    pub filter: Option<Arc<Filter>>,
    /// The sequence's seed, for rules whose order is drawn by chance.
    pub seed: u64,
}

impl<'a> Input<'a> {
    /// The facts of a sequence without a grammar, a filter, delimiters and a model's blocks.
    pub fn new(budget: u32, stops: &'a [TokenId]) -> Self {
        Self {
            budget,
            limit: budget,
            stops,
            pins: &[],
            classes: Arc::default(),
            code_prompt: false,
            phase: 0,
            lead: None,
            first_alone: false,
            constraint: None,
            filter: None,
            seed: 0,
        }
    }
}
