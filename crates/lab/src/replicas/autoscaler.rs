//! The rules by which Kubernetes' autoscaler follows an average per replica, as
//! `deploy/kubernetes/autoscaling/scaled-object.yaml` sets them.

use std::collections::VecDeque;
use std::time::Duration;

/// Relative distance from the target below which nothing changes, Kubernetes' default.
const TOLERANCE: f64 = 0.1;
/// How long the highest recommendation holds before replicas are removed.
pub const STABILIZATION: Duration = Duration::from_secs(600);
/// Most replicas added in a period.
pub const UP: (u32, Duration) = (2, Duration::from_secs(60));
/// Most replicas removed in a period.
pub const DOWN: (u32, Duration) = (1, Duration::from_secs(120));
/// Time between two decisions, and between two scrapes.
pub const INTERVAL: Duration = Duration::from_secs(15);

/// The number of replicas for a sum over all of them and a target per replica.
pub fn desired(sum: f64, target: f64, current: u32) -> u32 {
    let ratio = sum / (target * f64::from(current));
    if (ratio - 1.0).abs() <= TOLERANCE {
        return current;
    }
    (sum / target).ceil() as u32
}

/// What an autoscaler remembers.
#[derive(Debug)]
pub struct Autoscaler {
    /// Fewest and most replicas.
    bounds: (u32, u32),
    recommended: VecDeque<(Duration, u32)>,
    added: VecDeque<(Duration, u32)>,
    removed: VecDeque<(Duration, u32)>,
}

impl Autoscaler {
    /// One that has decided nothing.
    pub fn new(fewest: u32, most: u32) -> Self {
        Self {
            bounds: (fewest, most),
            recommended: VecDeque::new(),
            added: VecDeque::new(),
            removed: VecDeque::new(),
        }
    }

    /// The number of replicas from `now` on, for `current` ones and the number that the signals ask
    /// for.
    pub fn decide(&mut self, now: Duration, current: u32, desired: u32) -> u32 {
        let desired = desired.clamp(self.bounds.0, self.bounds.1);
        self.recommended.push_back((now, desired));
        let highest = recent(&mut self.recommended, now, STABILIZATION).max();
        let added: u32 = recent(&mut self.added, now, UP.1).sum();
        let removed: u32 = recent(&mut self.removed, now, DOWN.1).sum();
        if desired > current {
            let next = desired
                .min(current.saturating_sub(added) + UP.0)
                .max(current);
            self.added.push_back((now, next - current));
            return next;
        }
        let held = highest.unwrap_or(desired).min(current);
        let next = held
            .max((current + removed).saturating_sub(DOWN.0))
            .min(current);
        self.removed.push_back((now, current - next));
        next
    }
}

/// The numbers of the last `period`; older ones are forgotten.
fn recent(
    of: &mut VecDeque<(Duration, u32)>,
    now: Duration,
    period: Duration,
) -> impl Iterator<Item = u32> {
    while of.front().is_some_and(|(at, _)| *at + period <= now) {
        of.pop_front();
    }
    of.iter().map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_near_its_target_changes_nothing() {
        assert_eq!(desired(22.0, 11.0, 2), 2);
        assert_eq!(desired(24.0, 11.0, 2), 2);
        assert_eq!(desired(25.0, 11.0, 2), 3);
        assert_eq!(desired(12.0, 11.0, 2), 2);
        assert_eq!(desired(0.0, 11.0, 2), 0);
    }

    /// Two a minute up; down one in two minutes, and only ten minutes after the last higher number.
    #[test]
    fn replicas_come_fast_and_go_slowly() {
        let mut scaler = Autoscaler::new(2, 8);
        let mut current = 2;
        let mut seen = Vec::new();
        for tick in 0..80_u32 {
            let now = INTERVAL * tick;
            let wanted = if tick < 8 { 7 } else { 1 };
            current = scaler.decide(now, current, wanted);
            seen.push(current);
        }
        assert_eq!(seen[..4], [4; 4]);
        assert_eq!(seen[4..8], [6; 4]);
        // The last higher number was at tick 7; 40 ticks are ten minutes.
        assert_eq!(seen[8..47], [6; 39]);
        assert_eq!(seen[47..55], [5; 8]);
        assert_eq!(seen[55..63], [4; 8]);
        assert_eq!(seen[79], 2);
    }
}
