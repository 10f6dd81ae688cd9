//! The parts of the network that only a canvas model (DiffusionGemma) has.

use super::arrays::Branches;
use super::block::{Block, Mlp};
use super::network::Decoder;
use super::work::Work;
use candle_core::{Result, bail};
use kernels::device::RowSet;
use kernels::{Backend, Pass, Selection};

impl<B: Backend> Decoder<B> {
    /// Makes inputs of the embeddings of denoised rows: adds the MLP of the mean embedding of the last
    /// step, if there was one, and normalises the sum.
    pub(super) fn condition(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        work: &mut Work<B>,
    ) -> Result<()> {
        let (Some(parts), Some(canvas)) = (&self.canvas, pass.arrays.canvas) else {
            return Ok(());
        };
        if canvas.denoised.is_empty() {
            return Ok(());
        }
        let rows = backend.rows(pass);
        if !canvas.conditioned.is_empty() {
            let Some(branches) = &mut work.branches else {
                bail!("a canvas model has arrays for its branches");
            };
            backend.soft(pass, &mut branches.one, self.width)?;
            let all = RowSet::First(rows);
            let branch = Selection { array: &branches.one, rows: &all };
            // Rows without a mean embedding are zero, and stay so through norm and MLP.
            backend.norm(branch, pass, self.norm(&parts.pre_norm), &mut work.normed)?;
            let [gate_up, down] = &parts.mlp;
            work.gate(backend, pass, gate_up, None)?;
            backend.linear_add(down, &work.gated, rows, &mut work.x)?;
        }
        backend.norm_denoised(pass, self.norm(&parts.ones), &mut work.x)
    }

    /// Adds a layer's attention and both of its MLPs to the residual stream.
    pub(super) fn add_branches(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        block: &Block<B>,
        work: &mut Work<B>,
    ) -> Result<()> {
        let Some(sandwich) = &block.sandwich else {
            return Ok(());
        };
        let rows = backend.rows(pass);
        let Some(Branches { mut one, mut both }) = work.branches.take() else {
            bail!("a canvas model has arrays for its branches");
        };
        let all = RowSet::First(rows);
        backend.linear(&block.out, &work.heads_of(block).attended, rows, &mut one)?;
        backend.norm_add(&one, rows, self.norm(&sandwich.attended), &mut work.x)?;
        work.norm(backend, pass, self.norm(&block.mlp_norm), &all)?;
        let Mlp::Dense([gate_up, down]) = &block.mlp else {
            bail!("a canvas model has a dense MLP in every layer");
        };
        backend.linear(gate_up, &work.normed, rows, &mut work.gated)?;
        backend.linear(down, &work.gated, rows, &mut one)?;
        let dense = Selection { array: &one, rows: &all };
        backend.norm(dense, pass, self.norm(&sandwich.dense), &mut both)?;
        work.norm(backend, pass, self.norm(&sandwich.router), &all)?;
        let chosen = sandwich.experts.choose(backend, pass, &work.normed, rows)?;
        work.norm(backend, pass, self.norm(&sandwich.before_experts), &all)?;
        backend.clear(&mut one, rows, self.width)?;
        let experts = &sandwich.experts;
        experts.add_chosen(backend, &chosen, &work.normed, &mut one)?;
        backend.norm_add(&one, rows, self.norm(&sandwich.after_experts), &mut both)?;
        backend.norm_add(&both, rows, self.norm(&sandwich.both), &mut work.x)?;
        backend.scale(pass, sandwich.scalars, &mut work.x)?;
        work.branches = Some(Branches { one, both });
        Ok(())
    }
}
