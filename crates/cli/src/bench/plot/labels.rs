//! Where labels go: greedily, the first place beside the point that is free.

/// A rectangle in pixels, y downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Box {
    /// Least x.
    pub left: f64,
    /// Least y.
    pub top: f64,
    /// Greatest x.
    pub right: f64,
    /// Greatest y.
    pub bottom: f64,
}

/// A label that belongs to a point.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its text.
    pub text: String,
    /// Font size in pixels.
    pub size: f64,
    /// Estimated width in pixels.
    pub width: f64,
    /// Whether it is set in bold.
    pub bold: bool,
    /// The point.
    pub x: f64,
    /// The point.
    pub y: f64,
}

/// Which end of the text stands at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text runs to the right.
    Start,
    /// The text is centred.
    Middle,
    /// The text runs to the left.
    End,
}

/// A label with its place.
#[derive(Clone, Debug)]
pub struct Placed<'a> {
    /// What was wanted.
    pub wanted: &'a Wanted,
    /// Where the text's anchor stands.
    pub x: f64,
    /// The text's baseline.
    pub y: f64,
    /// Which end of the text stands at `x`.
    pub anchor: Anchor,
    /// Whether a line should lead from the point to it.
    pub is_far: bool,
    /// What it covers.
    pub covers: Box,
}

/// Directions from a point, the preferred first: right, left, above, below, and between.
const DIRECTIONS: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (0.8, -0.8),
    (0.8, 0.8),
    (-0.8, -0.8),
    (-0.8, 0.8),
];

/// Distances from a point in pixels, the preferred first.
const DISTANCES: [f64; 7] = [8.0, 13.0, 20.0, 30.0, 42.0, 58.0, 76.0];
/// From here on a line leads to the label.
const FAR: f64 = 20.0;

/// Places every label in turn where it covers least of `obstacles`, of earlier labels and of what
/// lies outside `area`; among equals nearest to its point.
pub fn place<'a>(wanted: &'a [Wanted], obstacles: &[Box], area: &Box) -> Vec<Placed<'a>> {
    let mut taken = obstacles.to_vec();
    let mut placed = Vec::with_capacity(wanted.len());
    for label in wanted {
        let mut best: Option<(f64, Placed<'a>)> = None;
        for candidate in candidates(label) {
            let covers = candidate.covers;
            let overlaps = taken.iter().map(|other| covers.overlap(other));
            let cost = overlaps.sum::<f64>() + covers.area() - covers.overlap(area);
            if best.as_ref().is_none_or(|(least, _)| cost < *least - 1e-9) {
                best = Some((cost, candidate));
            }
        }
        let (_, best) = best.expect("there are candidates for every label");
        taken.push(best.covers);
        placed.push(best);
    }
    placed
}

fn candidates(wanted: &Wanted) -> impl Iterator<Item = Placed<'_>> {
    let at = move |distance: f64, (right, down): (f64, f64)| {
        let x = wanted.x + right * distance;
        // A text's middle lies about a third of its size above the baseline.
        let y = wanted.y + down * (distance + 3.0) + wanted.size * 0.35;
        let anchor = match right {
            0.0 => Anchor::Middle,
            right if right > 0.0 => Anchor::Start,
            _ => Anchor::End,
        };
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - wanted.width / 2.0,
            Anchor::End => x - wanted.width,
        };
        Placed {
            wanted,
            x,
            y,
            anchor,
            is_far: distance >= FAR,
            covers: Box {
                left,
                top: y - wanted.size * 0.85,
                right: left + wanted.width,
                bottom: y + wanted.size * 0.25,
            },
        }
    };
    DISTANCES
        .into_iter()
        .flat_map(move |distance| DIRECTIONS.map(|direction| at(distance, direction)))
}

impl Box {
    /// The square around a point.
    pub fn around(x: f64, y: f64, radius: f64) -> Self {
        Self {
            left: x - radius,
            top: y - radius,
            right: x + radius,
            bottom: y + radius,
        }
    }

    fn area(&self) -> f64 {
        (self.right - self.left) * (self.bottom - self.top)
    }

    /// The area that two boxes share.
    fn overlap(&self, other: &Self) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Box = Box {
        left: 0.0,
        top: 0.0,
        right: 400.0,
        bottom: 300.0,
    };

    fn wanted(x: f64, y: f64) -> Wanted {
        Wanted {
            text: "12".to_owned(),
            size: 10.0,
            width: 12.0,
            bold: false,
            x,
            y,
        }
    }

    #[test]
    fn labels_of_a_cluster_overlap_neither_each_other_nor_a_point() {
        let points: Vec<(f64, f64)> = (0..16)
            .map(|n| {
                (
                    200.0 + f64::from(n % 4) * 9.0,
                    150.0 + f64::from(n / 4) * 9.0,
                )
            })
            .collect();
        let labels: Vec<Wanted> = points.iter().map(|(x, y)| wanted(*x, *y)).collect();
        let marks: Vec<Box> = points
            .iter()
            .map(|(x, y)| Box::around(*x, *y, 4.0))
            .collect();
        let placed = place(&labels, &marks, &AREA);
        for (at, one) in placed.iter().enumerate() {
            let others = placed[..at].iter().map(|other| &other.covers);
            for other in others.chain(&marks) {
                assert_eq!(
                    one.covers.overlap(other),
                    0.0,
                    "{:?} and {other:?}",
                    one.covers
                );
            }
        }
    }

    #[test]
    fn a_label_stands_to_the_right_and_at_the_edge_to_the_left() {
        let labels = [wanted(200.0, 150.0), wanted(398.0, 150.0)];
        let placed = place(&labels, &[], &AREA);
        assert_eq!(placed[0].anchor, Anchor::Start);
        assert_eq!(placed[1].anchor, Anchor::End);
        assert!(!placed[0].is_far && !placed[1].is_far);
    }

    #[test]
    fn boxes_share_what_lies_in_both() {
        let one = Box::around(10.0, 10.0, 10.0);
        let two = Box::around(25.0, 15.0, 10.0);
        // x 15..20, y 5..20.
        assert_eq!(one.overlap(&two), 75.0);
        assert_eq!(one.overlap(&Box::around(100.0, 10.0, 5.0)), 0.0);
    }
}
