//! A reproducible random grammar that seldom agrees with the model.

use decode::{Constraint, ConstraintError, TokenId};

use super::Rng;

/// In every state a few of the tokens `10..64` may follow, sometimes a single one. Some states may
/// end the text, some must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Automaton {
    seed: u64,
    state: u64,
}

impl Automaton {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: 0 }
    }

    fn rng(&self, what: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(31) ^ (self.state << 16) ^ what)
    }

    fn words(&self) -> Vec<TokenId> {
        let mut rng = self.rng(1);
        let count = match rng.range(0, 10) {
            0 if self.state > 0 => 0,
            0..=2 => 1,
            _ => rng.range(2, 30),
        };
        let mut words: Vec<TokenId> = (0..count).map(|_| rng.range(10, 64)).collect();
        words.sort_unstable();
        words.dedup();
        words
    }
}

impl Constraint for Automaton {
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError> {
        *set = vec![0; 2];
        for word in self.words() {
            set[word as usize / 32] |= 1 << (word % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<bool, ConstraintError> {
        let fits = self.words().contains(&token);
        if fits {
            self.state = u64::from(self.rng(u64::from(token)).range(1, 12));
        }
        Ok(fits)
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        tokens.clear();
        if let ([word], false) = (&self.words()[..], self.may_end()) {
            tokens.push(*word);
        }
    }

    fn may_end(&mut self) -> bool {
        self.is_over() || self.rng(2).chance(25)
    }

    fn is_over(&mut self) -> bool {
        self.words().is_empty()
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(*self)
    }
}
