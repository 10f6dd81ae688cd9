//! An axis: the range that holds all values, and round ticks.

/// Most ticks of a linear axis.
const MOST_TICKS: f64 = 12.0;
/// The least value of a logarithmic axis; what is smaller, or no number, stands there.
const LEAST: f64 = 0.01;

/// A range of values on a line from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Values with a line and a label, ascending; the first and the last are the ends.
    pub ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Percent, in steps of 1, 2, 5 or 10.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values.map(|value| value.clamp(0.0, 100.0)), 0.0);
        let fits = |step: &f64| (high / step).ceil() - (low / step).floor() < MOST_TICKS;
        let step = [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0);
        let (mut from, mut to) = ((low / step).floor(), (high / step).ceil());
        if from == to {
            // One value alone gets a step of room on each side, within 0..=100.
            from = (from - 1.0).max(0.0);
            to = (to + 1.0).min(100.0 / step);
        }
        let count = (to - from) as usize;
        Self {
            ticks: (0..=count).map(|n| (from + n as f64) * step).collect(),
            logarithmic: false,
        }
    }

    /// Ratios, with ticks at 1, 2 and 5 of every decade.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values.map(at_least), 1.0);
        let decades = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32;
        let all: Vec<f64> = decades
            .flat_map(|n| [1.0, 2.0, 5.0].map(|m| tick(m, n)))
            .collect();
        let from = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
        let to = all.iter().position(|tick| *tick >= high);
        let to = to.unwrap_or(all.len() - 1).max(from + 1).min(all.len() - 1);
        Self {
            ticks: all[from..=to].to_vec(),
            logarithmic: true,
        }
    }

    /// Where `value` lies, 0 at the first tick and 1 at the last.
    pub fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| {
            if self.logarithmic {
                at_least(value).log10()
            } else {
                value
            }
        };
        let (from, to) = (
            scale(self.ticks[0]),
            scale(self.ticks[self.ticks.len() - 1]),
        );
        ((scale(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// `mantissa` · 10^`decade` without the rounding of a multiplication by a fraction.
fn tick(mantissa: f64, decade: i32) -> f64 {
    if decade < 0 {
        mantissa / 10f64.powi(-decade)
    } else {
        mantissa * 10f64.powi(decade)
    }
}

fn at_least(value: f64) -> f64 {
    if value.is_finite() {
        value.max(LEAST)
    } else {
        LEAST
    }
}

/// Least and greatest value; `none` twice without values.
fn range(values: impl Iterator<Item = f64>, none: f64) -> (f64, f64) {
    let bounds = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if bounds.0.is_finite() {
        bounds
    } else {
        (none, none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_get_the_finest_round_step_that_fits() {
        let ticks = |values: &[f64]| Axis::linear(values.iter().copied()).ticks;
        assert_eq!(
            ticks(&[41.0, 88.0]),
            [
                40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0, 85.0, 90.0
            ]
        );
        assert_eq!(ticks(&[67.2, 69.9]), [67.0, 68.0, 69.0, 70.0]);
        assert_eq!(ticks(&[0.0, 100.0]).len(), 11);
        assert_eq!(ticks(&[100.0]), [99.0, 100.0]);
        assert_eq!(ticks(&[0.0]), [0.0, 1.0]);
    }

    #[test]
    fn ratios_lie_between_ones_twos_and_fives() {
        let axis = Axis::logarithmic([1.0, 23.5].into_iter());
        assert_eq!(axis.ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        let slow = Axis::logarithmic([0.3, 1.0].into_iter());
        assert_eq!(slow.ticks, [0.2, 0.5, 1.0]);
        assert_eq!(Axis::logarithmic([1.0].into_iter()).ticks, [1.0, 2.0]);
    }

    #[test]
    fn values_lie_in_proportion_and_never_outside() {
        let linear = Axis::linear([40.0, 60.0].into_iter());
        assert_eq!(linear.place(50.0), 0.5);
        let axis = Axis::logarithmic([1.0, 100.0].into_iter());
        assert!((axis.place(10.0) - 0.5).abs() < 1e-12);
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(axis.place(odd), 0.0);
        }
        assert_eq!(axis.place(1e9), 1.0);
    }
}
