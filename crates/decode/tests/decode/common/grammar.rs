//! A random but reproducible grammar: an automaton over a few of the model's words.

use asynclane_decode::{Constraint, ConstraintError, TokenId};

use super::{STOPS, TEXTS};

/// An automaton of eight states. From each a few words lead on; some states force one word, in
/// some the text may end, some are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toy {
    pub seed: u64,
    state: u64,
}

const STATES: u64 = 8;

impl Toy {
    /// The automaton `seed` in its first state.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: 0 }
    }

    fn hash(&self, word: u64) -> u64 {
        super::mix(self.seed ^ (self.state << 8), word)
    }

    fn kind(&self) -> u64 {
        // The first state is never over, so that every walk has a step.
        match self.hash(1) % 8 {
            0 if self.state > 0 => 0,
            kind => kind.max(1),
        }
    }

    /// The words that may come next.
    pub fn words(&self) -> Vec<TokenId> {
        let count = match self.kind() {
            0 => 0,
            1 => 1,
            // Half of the grammars rarely refuse a word.
            _ if self.seed.is_multiple_of(2) => 18 + self.hash(2) % 3,
            _ => 2 + self.hash(2) % 12,
        };
        let all = (1..TEXTS.len() as TokenId).filter(|id| !STOPS.contains(id));
        let mut words: Vec<TokenId> = all.collect();
        words.sort_by_key(|id| self.hash(100 + u64::from(*id)));
        words.truncate(count as usize);
        words.sort_unstable();
        words
    }
}

impl Constraint for Toy {
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError> {
        set.clear();
        set.resize(TEXTS.len().div_ceil(32), 0);
        for word in self.words() {
            set[word as usize / 32] |= 1 << (word % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<bool, ConstraintError> {
        let fits = self.words().contains(&token);
        if fits {
            self.state = 1 + self.hash(200 + u64::from(token)) % (STATES - 1);
        }
        Ok(fits)
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        tokens.clear();
        let mut ahead = *self;
        while tokens.len() < 3 && !ahead.may_end() && ahead.words().len() == 1 {
            let word = ahead.words()[0];
            tokens.push(word);
            ahead.accept(word).expect("a word of the state");
        }
    }

    fn may_end(&mut self) -> bool {
        self.is_over() || self.hash(3).is_multiple_of(4)
    }

    fn is_over(&mut self) -> bool {
        self.words().is_empty()
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(*self)
    }
}

/// A text of fixed length: what may stand at each offset. One choice is a forced one.
#[derive(Clone, Debug)]
pub struct Slots(pub &'static [&'static [&'static str]]);

impl Constraint for Slots {
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError> {
        set.clear();
        set.push(0);
        for text in *self.0.first().unwrap_or(&&[][..]) {
            set[0] |= 1 << super::id(text);
        }
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<bool, ConstraintError> {
        match self.0 {
            [slot, rest @ ..] if slot.contains(&super::text(token)) => {
                self.0 = rest;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        let single = self.0.iter().take_while(|slot| slot.len() == 1);
        *tokens = single.map(|slot| super::id(slot[0])).collect();
    }

    fn may_end(&mut self) -> bool {
        self.0.is_empty()
    }

    fn is_over(&mut self) -> bool {
        self.0.is_empty()
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
