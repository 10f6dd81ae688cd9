//! Deficit admission of prefills and refreshes while other sequences decode.

/// A counter of rows that long forwards (prefills, their chunks, and refreshes; none of them is split
/// here) may take while other sequences decode.
///
/// A step that begins with the first waiting long forward not covered adds the quantum. That
/// forward runs once its rows are covered and fit; they are subtracted then. The long forwards
/// behind it wait for it. If nothing decodes, long forwards run as they fit and nothing is
/// subtracted. Once no long forward waits, the counter is emptied.
///
/// The counter stays below the rows of the first waiting long forward plus the quantum. The bounds
/// that follow stand in the documentation of the module `scheduler`.
#[derive(Debug)]
pub(crate) struct Deficit {
    /// Rows that a step adds, `>= 1`.
    quantum: u32,
    /// Rows that long forwards may take.
    credit: u32,
    /// Something decodes in the step that is being planned.
    decoding: bool,
    /// The step has added its quantum, or needed none.
    given: bool,
    /// A long forward was refused, so no other one runs in this step.
    closed: bool,
}

impl Deficit {
    pub(crate) fn new(quantum: u32) -> Self {
        Self { quantum: quantum.max(1), credit: 0, decoding: false, given: false, closed: false }
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, decoding: bool) {
        self.decoding = decoding;
        self.given = false;
        self.closed = false;
    }

    /// Returns true if no further long forward runs in this step.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns true if the first waiting long forward, of `rows` rows, runs in this step. Its rows are
    /// subtracted if it does; the step is closed to long forwards if it does not.
    pub(crate) fn admit(&mut self, rows: u32, fits: bool) -> bool {
        if self.decoding && !self.given && self.credit < rows {
            self.credit = self.credit.saturating_add(self.quantum);
        }
        self.given = true;
        let covered = !self.decoding || self.credit >= rows;
        self.closed = !(covered && fits);
        if self.decoding && !self.closed {
            self.credit -= rows;
        }
        !self.closed
    }

    /// The step is planned.
    pub(crate) fn end(&mut self) {
        if !self.closed {
            self.credit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans a step in which something decodes and everything fits: how many of `rows` run, and
    /// the credit that is left.
    fn step(deficit: &mut Deficit, rows: &mut Vec<u32>) -> (usize, u32) {
        deficit.begin(true);
        let run = rows.iter().take_while(|rows| deficit.admit(**rows, true));
        let run = run.count();
        rows.drain(..run);
        deficit.end();
        (run, deficit.credit)
    }

    #[test]
    fn a_long_forward_saves_up_and_the_rest_is_left_for_the_next() {
        let mut deficit = Deficit::new(10);
        let mut rows = vec![25, 4, 4, 9, 30];
        let found: Vec<_> = (0..7).map(|_| step(&mut deficit, &mut rows)).collect();
        // 10, 20, 30 - 25 - 4; 1 + 10 - 4; 7 + 10 - 9; 18, 28; 38 - 30, and none waits.
        let expected = [(0, 10), (0, 20), (2, 1), (1, 7), (1, 8), (0, 18), (0, 28)];
        assert_eq!(found, expected);
        assert_eq!(step(&mut deficit, &mut rows), (1, 0));
        assert_eq!(step(&mut deficit, &mut rows), (0, 0));
    }

    #[test]
    fn a_covered_forward_without_room_keeps_its_credit_and_gets_no_more() {
        let mut deficit = Deficit::new(10);
        for _ in 0..5 {
            deficit.begin(true);
            assert!(!deficit.admit(8, false));
            assert!(deficit.is_closed());
            deficit.end();
            assert_eq!(deficit.credit, 10);
        }
        let mut rows = vec![8];
        assert_eq!(step(&mut deficit, &mut rows), (1, 0));
    }

    #[test]
    fn long_forwards_run_as_they_fit_while_nothing_decodes() {
        let mut deficit = Deficit::new(1);
        deficit.begin(false);
        assert!(deficit.admit(1000, true) && deficit.admit(1000, true));
        assert!(!deficit.admit(1000, false));
        assert!(deficit.is_closed());
        deficit.end();
        assert_eq!(deficit.credit, 0);
    }

    /// For any quantum and any forwards, n steps in a row hold less than n quanta and one forward.
    #[test]
    fn no_run_of_steps_holds_more_than_its_quanta_and_one_forward() {
        let mut state = 1u64;
        let mut any = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from((state >> 33) % below).expect("31 bits")
        };
        for _ in 0..200 {
            let quantum = 1 + any(40);
            let longest = 1 + any(100);
            let mut deficit = Deficit::new(quantum);
            let mut rows: Vec<u32> = Vec::new();
            let mut taken: Vec<u32> = Vec::new();
            for _ in 0..60 {
                for _ in 0..any(4) {
                    rows.push(1 + any(u64::from(longest)));
                }
                let before: u32 = rows.iter().sum();
                step(&mut deficit, &mut rows);
                taken.push(before - rows.iter().sum::<u32>());
            }
            for from in 0..taken.len() {
                let mut sum = 0;
                for (steps, more) in (1..).zip(&taken[from..]) {
                    sum += more;
                    assert!(sum < steps * quantum + longest, "{quantum} {taken:?}");
                }
            }
        }
    }
}
