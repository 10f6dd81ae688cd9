//! The choice of experts for the rows of a batch.

/// The function from the logits of a router to the weights of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouterFunction {
    /// Softmax over all experts; the weight of a chosen expert is its probability plus correction.
    Softmax {
        /// True if the weights of a row's experts are divided by their sum.
        normalised: bool,
    },
    /// Sigmoids; experts are chosen from the best groups. The weights are the uncorrected sigmoids
    /// of the chosen experts, normalised to 1 if there are several, times `scale`.
    Sigmoid {
        /// Number of groups, each of two or more experts.
        groups: usize,
        /// Number of groups that a row may choose from, by the sum of their two best affinities.
        best: usize,
        /// Sum of the weights of all chosen experts, if there are several.
        scale: f32,
    },
}

/// The choice and the weights of the experts of a row.
#[derive(Clone, Copy, Debug)]
pub struct Routing<'a> {
    /// Experts of a row.
    pub chosen: usize,
    /// The function from its logits to weights.
    pub function: RouterFunction,
    /// A correction per expert, added to the affinities before experts are chosen.
    pub bias: Option<&'a [f32]>,
    /// A factor of each expert's weight.
    pub scales: Option<&'a [f32]>,
    /// True if rows of a block choose from a common pool.
    pub shared: bool,
}
