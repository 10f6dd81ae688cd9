//! Grammars: each compiles or is refused, in bounded time and memory, and one that compiles can be
//! followed token by token.

use std::sync::{Arc, LazyLock};

use decode::Constraint;
use text::{GrammarSpec, Grammars, Tokenizer};

use super::{Outcome, Target, check_error};
use crate::random::Random;
use crate::run;

/// The target. What compiles is kept up to 64 MiB.
pub const TARGET: Target = Target {
    name: "grammar",
    run,
    words: ".?¦(|a)¦{1,¦}¦[^¦]¦\\w¦\\pL¦(?i)¦&¦~¦start:¦%json ¦<¦[lazy]¦[capture]¦%regex ¦%ignore ¦s s¦| ¦/./¦\
            $ref¦not¦anyOf¦patternProperties¦multipleOf¦propertyNames¦\\u{10FFFF}¦(?=¦(?!¦\\b¦é¦%llguidance {}¦\
            max_tokens=¦temperature=¦suffix=¦@",
    memory: 500,
    accepted: 50,
};

/// Most tokens that a grammar is followed.
const TOKENS: usize = 24;
/// Ids of the model's vocabulary.
const VOCABULARY: u32 = 842;

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| Arc::new(run::tokenizer()));
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| {
    let grammars = Grammars::new(Arc::clone(&TOKENIZER), VOCABULARY);
    grammars.expect("the vocabulary suits grammars")
});

/// `data` is the kind, the end of a line, and the source; a choice has a text per line. JSON alone is
/// a schema.
pub fn run(data: &[u8]) -> Outcome {
    let Some(spec) = spec(data) else {
        return Outcome::Refused;
    };
    match GRAMMARS.compile(&spec) {
        Ok(start) => follow(start, Random::new(data.len() as u64)),
        Err(error) => {
            let error = error.to_string();
            check_error(&error);
            assert!(!error.contains("the grammar compiler failed"), "{error}");
            Outcome::Refused
        }
    }
}

fn spec(data: &[u8]) -> Option<GrammarSpec> {
    let text = std::str::from_utf8(data).ok()?;
    if text.starts_with('{') {
        return serde_json::from_str(text).ok().map(GrammarSpec::JsonSchema);
    }
    let (kind, source) = text.split_once('\n')?;
    match kind {
        "regex" => Some(GrammarSpec::Regex(source.to_owned())),
        "lark" => Some(GrammarSpec::Lark(source.to_owned())),
        "choice" => {
            let texts = source.lines().map(str::to_owned);
            Some(GrammarSpec::Choice(texts.collect()))
        }
        _ => None,
    }
}

/// Follows a grammar along random allowed tokens. What a state says of itself must hold: allowed
/// tokens are accepted, forced ones are allowed, and a copy says the same.
fn follow(mut state: Box<dyn Constraint>, mut random: Random) -> Outcome {
    let (mut set, mut forced, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TOKENS {
        if let Err(error) = state.allowed(&mut set) {
            check_error(&error.to_string());
            return Outcome::Refused;
        }
        let mut copy = state.boxed_clone();
        let again_allowed = copy.allowed(&mut again);
        again_allowed.expect("a copy is in the same state");
        assert_eq!(set, again, "a copy allows the same");
        assert_eq!(state.may_end(), copy.may_end());
        let tokens = (0..VOCABULARY).filter(|id| set[*id as usize / 32] >> (id % 32) & 1 == 1);
        let tokens: Vec<u32> = tokens.collect();
        if tokens.is_empty() {
            assert!(state.may_end(), "nothing is allowed, and the text may not end");
            return Outcome::Accepted;
        }
        state.forced(&mut forced);
        if let Some(first) = forced.first() {
            assert!(tokens.contains(first), "the forced {first} is not allowed");
        }
        let token = tokens[random.below(tokens.len())];
        match state.accept(token) {
            Ok(accepted) => assert!(accepted, "the allowed {token} is refused"),
            Err(error) => {
                check_error(&error.to_string());
                return Outcome::Refused;
            }
        }
    }
    Outcome::Accepted
}
