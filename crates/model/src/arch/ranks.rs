//! Whether the ranks of a backend can hold a model together.

use crate::LoadError;
use crate::config::Spec;

/// Refuses a model that `ranks` ranks cannot divide among them. Backends other than `Ranks` have one rank
/// and divide nothing.
pub(super) fn check(spec: &Spec, ranks: usize) -> Result<(), LoadError> {
    if ranks == 1 {
        return Ok(());
    }
    let refuse = |expected: &str, found: &str| {
        Err(LoadError::Setup(format!(
            "{ranks} ranks: expected {expected}, found {found}"
        )))
    };
    let info = &spec.info;
    if info.canvas.is_some() {
        return refuse("a model without canvases of noise", info.family);
    }
    if let Some(experts) = &spec.experts {
        let found = format!("{} with {} experts in a layer", info.family, experts.count);
        return refuse("layers without experts", &found);
    }
    for (what, count) in [
        ("query heads", info.heads),
        ("key/value heads", info.groups),
        ("columns of the model width", info.width),
        ("columns of the MLP width", info.mlp_width),
    ] {
        if !count.is_multiple_of(ranks) {
            let expected = format!("a multiple of {ranks} {what}");
            return refuse(&expected, &count.to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Checkpoint, arch};
    use kernels::{Counting, Ranks, Storage, WeightDtype};

    const WIDTH: u64 = 256;

    /// Bytes of a model with so many layers on each of `count` ranks.
    fn bytes(count: usize, layers: usize, dtype: WeightDtype) -> Vec<u64> {
        let config = format!(
            r#"{{"architectures": ["LLaDAModelLM"], "d_model": {WIDTH}, "n_heads": 8, "n_kv_heads": 4,
            "n_layers": {layers}, "mlp_hidden_size": 512, "vocab_size": 300,
            "max_sequence_length": 64, "mask_token_id": 5, "eos_token_id": 1}}"#
        );
        let mut checkpoint = Checkpoint::synthetic(&config, 7).unwrap();
        let ranks = (0..count).map(|_| Counting::default()).collect();
        let on = Ranks::new(ranks).unwrap();
        checkpoint
            .count(dtype, |checkpoint| {
                let Checkpoint { config, weights } = checkpoint;
                arch::load(&on, config, weights).map(|_| ())
            })
            .unwrap();
        on.each().iter().map(Storage::bytes).collect()
    }

    #[test]
    fn each_rank_has_its_share_of_the_layers() {
        for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
            let layer = |count| {
                let [few, more] = [1, 2].map(|layers| bytes(count, layers, dtype));
                let each = few.into_iter().zip(more).map(|(few, more)| more - few);
                each.collect::<Vec<_>>()
            };
            // Every rank has the two norms of the residual stream.
            let norms = 2 * WIDTH * 4;
            let whole = layer(1)[0] - norms;
            for count in [2, 4] {
                let own = whole / count as u64 + norms;
                assert_eq!(layer(count), vec![own; count], "{}", dtype.name());
            }
        }
    }
}
