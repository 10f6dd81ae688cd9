//! The places of tensors whose files mlx-lm or mlx-vlm wrote: names behind a prefix, and the matrices of all experts
//! of a layer in one tensor.

/// The prefix of all names in files of mlx-vlm for a model that reads text alone.
const PREFIX: &str = "language_model.";
/// A module of Nemotron-Labs-Diffusion, and its name behind the prefix.
const RENAMED: [&str; 2] = ["encoder.", "model."];
/// The module of numbered experts, and of stacked ones.
const EXPERTS: [&str; 2] = ["experts", "switch_mlp"];
/// Matrices that are one, first and second.
const BOTH: [&str; 2] = ["gate_proj", "up_proj"];

/// A place where a tensor may be stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// The name in the file.
    pub(super) name: String,
    /// Its share of the stored tensor, `None` for all of it.
    pub(super) share: Option<Share>,
}

/// One of some equal parts of the rows of a matrix in a tensor `[matrices, rows, columns]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    matrix: usize,
    part: usize,
    parts: usize,
}

impl Share {
    /// The shape of the share of a tensor, `None` if the tensor has no such share.
    pub(super) fn shape(self, whole: &[usize]) -> Option<Vec<usize>> {
        match whole {
            [count, rows, rest @ ..] if self.matrix < *count && rows.is_multiple_of(self.parts) => {
                Some([&[rows / self.parts], rest].concat())
            }
            _ => None,
        }
    }

    /// The shape of a tensor of as many matrices as `whole` whose share has a shape.
    pub(super) fn whole(self, shape: &[usize], whole: &[usize]) -> Vec<usize> {
        match (whole, shape) {
            ([count, ..], [rows, rest @ ..]) => {
                [&[*count, rows.saturating_mul(self.parts)], rest].concat()
            }
            _ => shape.to_vec(),
        }
    }

    /// The share of the bytes of a tensor of this shape.
    pub(super) fn bytes(self, whole: &[usize], [start, end]: [usize; 2]) -> [usize; 2] {
        let count = whole.first().copied().unwrap_or(1).max(1).saturating_mul(self.parts);
        let size = (end - start) / count;
        let start = start + (self.matrix * self.parts + self.part) * size;
        [start, start + size]
    }
}

/// The places of a tensor or a module, of which the first that is stored counts.
pub(super) fn places(name: &str) -> impl Iterator<Item = Place> {
    let own = || Place { name: name.to_owned(), share: None };
    let others = move || {
        let stacked = stacked(name);
        let all = std::iter::once(own()).chain(stacked.iter().cloned());
        let prefixed = all.map(|Place { name, share }| {
            let name = match name.strip_prefix(RENAMED[0]) {
                Some(rest) => format!("{PREFIX}{}{rest}", RENAMED[1]),
                None => format!("{PREFIX}{name}"),
            };
            Place { name, share }
        });
        let prefixed: Vec<Place> = prefixed.collect();
        stacked.into_iter().chain(prefixed)
    };
    // Most tensors are where their names say.
    std::iter::once(own()).chain(std::iter::once_with(others).flatten())
}

/// The places of a tensor of a numbered expert: `mlp.experts.5.up_proj.weight` is matrix 5 of
/// `mlp.switch_mlp.up_proj.weight`, and `experts.5.up_proj.weight` is the second half of matrix 5 of
/// `experts.gate_up_proj.weight`.
fn stacked(name: &str) -> Vec<Place> {
    let [numbered, switch] = EXPERTS;
    let parts: Vec<&str> = name.split('.').collect();
    let Some(index) = parts.iter().position(|part| *part == numbered) else {
        return Vec::new();
    };
    let (before, [number, matrix, rest @ ..]) = (&parts[..index], &parts[index + 1..]) else {
        return Vec::new();
    };
    let Ok(expert) = number.parse() else {
        return Vec::new();
    };
    let place = |module: &str, matrix: &str, part, parts| Place {
        name: [before, &[module, matrix], rest].concat().join("."),
        share: Some(Share { matrix: expert, part, parts }),
    };
    let own = [switch, numbered].map(|module| place(module, matrix, 0, 1));
    let part = BOTH.iter().position(|both| both == matrix);
    let joined = part.map(|part| place(numbered, "gate_up_proj", part, 2));
    own.into_iter().chain(joined).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Vec<(String, Option<[usize; 3]>)> {
        let share = |share: Share| [share.matrix, share.part, share.parts];
        places(name).map(|place| (place.name, place.share.map(share))).collect()
    }

    #[test]
    fn names_have_places() {
        let plain = [("model.norm.weight", None), ("language_model.model.norm.weight", None)];
        assert_eq!(found("model.norm.weight"), plain.map(|(name, share)| (name.to_owned(), share)));
        let renamed = [("encoder.norm.weight", None), ("language_model.model.norm.weight", None)];
        let renamed = renamed.map(|(name, share)| (name.to_owned(), share));
        assert_eq!(found("encoder.norm.weight"), renamed);
        let name = "model.layers.1.mlp.experts.7.up_proj.scales";
        let all = found(name);
        let want = [
            (name, None),
            ("model.layers.1.mlp.switch_mlp.up_proj.scales", Some([7, 0, 1])),
            ("model.layers.1.mlp.experts.up_proj.scales", Some([7, 0, 1])),
            ("model.layers.1.mlp.experts.gate_up_proj.scales", Some([7, 1, 2])),
        ];
        assert_eq!(all.len(), 8);
        assert_eq!(all[..4], want.map(|(name, share)| (name.to_owned(), share)));
        let end = "language_model.model.layers.1.mlp.experts.gate_up_proj.scales";
        assert_eq!(all[7].0, end);
        for name in ["experts", "experts.7", "experts.x.up_proj.weight", "experts.-1.up_proj"] {
            assert_eq!(found(name).len(), 2, "{name}");
        }
    }

    #[test]
    fn a_share_is_cut_out_of_its_tensor() {
        let share = Share { matrix: 2, part: 1, parts: 2 };
        let whole = [3, 8, 5];
        assert_eq!(share.shape(&whole), Some(vec![4, 5]));
        assert_eq!(share.whole(&[4, 5], &whole), whole);
        assert_eq!(share.bytes(&whole, [100, 340]), [300, 340]);
        for other in [&[2, 8, 5][..], &[3, 7, 5], &[3], &[]] {
            assert_eq!(share.shape(other), None);
        }
    }
}
