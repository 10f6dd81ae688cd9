//! Grammars of the test tokenizers, and random walks through the tokens that a grammar allows.

use std::sync::LazyLock;

use asynclane_text::{GrammarSpec, Grammars, TokenId};
use decode::Constraint;

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE, Pair};

/// Vocabulary size of the demo model; its tokenizer has fewer tokens.
const DEMO_IDS: u32 = 1024;

pub static DEMO: LazyLock<Setup> = LazyLock::new(|| Setup::new(&DEMO_PAIR, DEMO_IDS));
pub static BYTES: LazyLock<Setup> = LazyLock::new(|| Setup::of(&BYTE_LEVEL));
pub static SPACED: LazyLock<Setup> = LazyLock::new(|| Setup::of(&METASPACE[LLAMA]));

/// A tokenizer and its grammars.
pub struct Setup {
    pub pair: &'static Pair,
    pub grammars: Grammars,
    pub ids: u32,
}

impl Setup {
    fn new(pair: &'static Pair, ids: u32) -> Self {
        let grammars = Grammars::new(pair.ours.clone(), ids).unwrap();
        Self { pair, grammars, ids }
    }

    fn of(pair: &'static Pair) -> Self {
        Self::new(pair, u32::try_from(pair.ours.vocab_size()).unwrap())
    }

    pub fn compile(&self, spec: &GrammarSpec) -> Box<dyn Constraint> {
        let compiled = self.grammars.compile(spec);
        compiled.unwrap_or_else(|error| panic!("{spec:?}: {error}"))
    }

    pub fn refusal(&self, spec: &GrammarSpec) -> String {
        let line = self.grammars.compile(spec).unwrap_err().to_string();
        assert!(line.chars().count() <= 300 && !line.contains('\n'), "{line}");
        assert!(!line.contains("panic"), "{line}");
        line
    }

    /// The tokens of a random text: `most`, or fewer if the text ends. `look` is called after each.
    pub fn follow(
        &self,
        spec: &GrammarSpec,
        most: usize,
        look: impl Fn(&mut dyn Constraint),
    ) -> usize {
        let (mut constraint, mut random) = (self.compile(spec), Random(7));
        for step in 0..most {
            let choices = allowed(&mut *constraint, self.ids);
            if choices.is_empty() {
                assert!(constraint.may_end(), "{spec:?}");
                return step;
            }
            let token = choices[random.below(choices.len())];
            assert_eq!(constraint.accept(token), Ok(true), "{spec:?}");
            look(&mut *constraint);
        }
        most
    }

    /// True if `start` allows the tokens of `text`, which may end after them.
    pub fn accepts(&self, start: &dyn Constraint, text: &str) -> bool {
        self.follows(start, &self.pair.ours.encode(text, false).unwrap())
    }

    fn follows(&self, start: &dyn Constraint, tokens: &[TokenId]) -> bool {
        let mut constraint = start.boxed_clone();
        for token in tokens {
            let is_allowed = allowed(&mut *constraint, self.ids).contains(token);
            assert_eq!(constraint.accept(*token), Ok(is_allowed));
            if !is_allowed {
                return false;
            }
        }
        constraint.may_end()
    }

    /// Asserts that `start` allows each of `held` as a whole text, and none of `refused`.
    pub fn check(&self, start: &dyn Constraint, held: &[&str], refused: &[&str]) {
        for text in held {
            assert!(self.accepts(start, text), "{text}");
        }
        for text in refused {
            assert!(!self.accepts(start, text), "{text}");
        }
    }

    /// As [`Setup::check`], with a token for each byte.
    pub fn check_bytes(&self, start: &dyn Constraint, held: &[&str], refused: &[&str]) {
        for text in held {
            assert!(self.follows(start, &self.bytes_of(text)), "{text}");
        }
        for text in refused {
            assert!(!self.follows(start, &self.bytes_of(text)), "{text}");
        }
    }

    /// The tokens of the single bytes of `text`.
    pub fn bytes_of(&self, text: &str) -> Vec<TokenId> {
        let ours = &self.pair.ours;
        let token = |byte: u8| {
            let is_byte =
                |id: &u32| ours.token_bytes(*id) == Some(vec![byte]) && !ours.is_special(*id);
            (0..self.ids).find(is_byte).unwrap()
        };
        text.bytes().map(token).collect()
    }

    pub fn bytes(&self, token: TokenId) -> Vec<u8> {
        self.pair.ours.token_bytes(token).unwrap()
    }

    /// The text of the bytes of `tokens`, which is their decoded text.
    pub fn text(&self, tokens: &[TokenId]) -> String {
        let bytes = tokens.iter().flat_map(|id| self.bytes(*id));
        let text = String::from_utf8(bytes.collect()).unwrap();
        for skip in [false, true] {
            assert_eq!(self.pair.ours.decode(tokens, skip), text);
        }
        text
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound as u64).unwrap()
    }
}

pub fn allowed(constraint: &mut dyn Constraint, ids: u32) -> Vec<TokenId> {
    let mut set = vec![7; 99];
    constraint.allowed(&mut set).unwrap();
    assert_eq!(set.len(), (ids as usize).div_ceil(32));
    let bits = 0..u32::try_from(set.len() * 32).unwrap();
    bits.filter(|id| set[*id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

pub fn forced(constraint: &mut dyn Constraint) -> Vec<TokenId> {
    let mut tokens = vec![7; 9];
    constraint.forced(&mut tokens);
    tokens
}

/// The choice of tokens of a random walk.
#[derive(Clone, Copy)]
pub struct Walk {
    pub seed: u64,
    /// Number of random tokens before it heads for the end.
    pub free: usize,
    /// True if it accepts forced tokens.
    pub take_forced: bool,
}

/// Tokens that bring JSON closer to its end, in order of preference.
const CLOSING: [&str; 7] = ["}", "]", ",", "\"", ":", ".", "0"];

/// The token of `choices` that brings `text` closest to its end; sometimes a random one.
fn closer(setup: &Setup, text: &[u8], choices: &[TokenId], random: &mut Random) -> TokenId {
    let wanted = if is_in_string(text) { &["\""] } else { &CLOSING[..] };
    let find = |text: &&str| {
        let mut found = choices.iter().copied();
        found.find(|id| setup.bytes(*id) == text.as_bytes())
    };
    match wanted.iter().find_map(find) {
        Some(token) if random.below(4) > 0 => token,
        _ => choices[random.below(choices.len())],
    }
}

/// True if `text` ends inside a JSON string.
fn is_in_string(text: &[u8]) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for byte in text {
        inside ^= *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
    }
    inside
}

/// The tokens of a complete text: random tokens, then tokens that end it.
pub fn walk(setup: &Setup, start: &dyn Constraint, how: Walk) -> Vec<TokenId> {
    let mut constraint = start.boxed_clone();
    let mut random = Random(how.seed);
    let mut tokens = Vec::new();
    while tokens.len() < how.free + 500 {
        if how.take_forced {
            for token in forced(&mut *constraint) {
                assert!(allowed(&mut *constraint, setup.ids).contains(&token));
                assert_eq!(constraint.accept(token), Ok(true));
                tokens.push(token);
            }
        }
        let closing = tokens.len() >= how.free;
        if constraint.may_end() && (closing || random.below(6) == 0) {
            return tokens;
        }
        let choices = allowed(&mut *constraint, setup.ids);
        if choices.is_empty() {
            assert!(constraint.may_end() && constraint.is_over());
            return tokens;
        }
        assert!(!constraint.is_over());
        let token = if closing {
            let text: Vec<u8> = tokens.iter().flat_map(|id| setup.bytes(*id)).collect();
            closer(setup, &text, &choices, &mut random)
        } else {
            choices[random.below(choices.len())]
        };
        assert_eq!(constraint.accept(token), Ok(true));
        tokens.push(token);
    }
    panic!("the walk does not end: {}", setup.pair.ours.decode(&tokens, false));
}

pub fn walks(count: u64) -> impl Iterator<Item = Walk> {
    (0..count).map(|seed| Walk {
        seed,
        free: usize::try_from(seed * 7 % 60).unwrap(),
        take_forced: seed % 3 == 0,
    })
}
