//! Deficit admission: how many rows of a step prefills and refreshes take from those in decode.

/// A counter of rows that long forwards (prefills and refreshes, which are never split) may take
/// while other sequences decode.
///
/// It grows by the quantum in every step at whose beginning the longest waiting one is not
/// covered; that one runs once its rows are covered and fit, and pays for them; those behind it
/// wait for it. Without anything in decode they run as they fit and pay nothing. With nobody left
/// waiting the counter is emptied.
///
/// So it never exceeds the rows of the longest waiting one by the quantum or more, and n steps in
/// a row hold less than n quanta and one forward of long rows.
#[derive(Debug)]
pub(crate) struct Deficit {
    /// Rows a step, `>= 1`.
    quantum: u32,
    /// Rows that may be taken.
    credit: u32,
    /// Something decodes in the step that is being planned.
    decoding: bool,
    /// The step has given its quantum, or needed none.
    given: bool,
    /// A long forward waits for the next step, and all behind it do.
    closed: bool,
}

impl Deficit {
    pub(crate) fn new(quantum: u32) -> Self {
        Self {
            quantum: quantum.max(1),
            credit: 0,
            decoding: false,
            given: false,
            closed: false,
        }
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, decoding: bool) {
        self.decoding = decoding;
        self.given = false;
        self.closed = false;
    }

    /// Whether no further long forward runs in this step.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the longest waiting long forward, of `rows` rows, runs in this step. It pays if it
    /// does, and closes the step if it does not.
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
        if !self.closed || !self.decoding {
            self.credit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans a step in which something decodes and everything fits: which of `rows` run, and the
    /// credit that is left.
    fn step(deficit: &mut Deficit, rows: &mut Vec<u32>) -> (usize, u32) {
        deficit.begin(true);
        let run = rows.iter().take_while(|rows| deficit.admit(**rows, true));
        let run = run.count();
        rows.drain(..run);
        deficit.end();
        (run, deficit.credit)
    }

    #[test]
    fn a_long_forward_saves_up_and_what_is_left_counts_for_the_next() {
        let mut deficit = Deficit::new(10);
        let mut rows = vec![25, 4, 4, 9, 30];
        let found: Vec<_> = (0..7).map(|_| step(&mut deficit, &mut rows)).collect();
        // 10, 20, 30 - 25 - 4; 1 + 10 - 4; 7 + 10 - 9; 18, 28; 38 - 30, and nobody waits.
        let expected = [(0, 10), (0, 20), (2, 1), (1, 7), (1, 8), (0, 18), (0, 28)];
        assert_eq!(found, expected);
        assert_eq!(step(&mut deficit, &mut rows), (1, 0));
        assert_eq!(step(&mut deficit, &mut rows), (0, 0));
    }

    #[test]
    fn one_that_is_covered_but_has_no_room_keeps_its_rows_and_gets_no_more() {
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
    fn without_anything_in_decode_long_forwards_run_as_they_fit() {
        let mut deficit = Deficit::new(1);
        deficit.begin(false);
        assert!(deficit.admit(1000, true) && deficit.admit(1000, true));
        assert!(!deficit.admit(1000, false));
        assert!(deficit.is_closed());
        deficit.end();
        assert_eq!(deficit.credit, 0);
    }

    /// Any quantum, any forwards: in every run of n steps less than n quanta and one forward.
    #[test]
    fn no_run_of_steps_holds_more_than_its_quanta_and_one_forward() {
        let mut state = 1u64;
        let mut any = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((state >> 33) % below) as u32
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
