//! The state of a compiled grammar at one point of a text.

use std::sync::Arc;

use decode::{Constraint, ConstraintError};
use llguidance::Matcher;
use llguidance::api::StopReason;

use super::names::Names;
use super::one_line;
use super::table::{TokenTable, contains, members, remove};
use super::unused::UnusedNames;
use crate::TokenId;

/// The state of a grammar after its accepted tokens.
pub(super) struct GrammarConstraint {
    matcher: Matcher,
    table: Arc<TokenTable>,
    /// The last accepted token.
    last: Option<TokenId>,
    /// Cached result of `allowed` for this state.
    allowed: Option<Vec<u32>>,
    /// The names of the open objects, where the text holds JSON.
    names: Option<Names>,
}

impl GrammarConstraint {
    pub(super) fn new(matcher: Matcher, table: Arc<TokenTable>, names: Option<Names>) -> Self {
        Self { matcher, table, last: None, allowed: None, names }
    }

    /// An independent copy.
    pub(super) fn duplicate(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            table: Arc::clone(&self.table),
            last: self.last,
            allowed: self.allowed.clone(),
            names: self.names.clone(),
        }
    }

    /// Checks that at least one text can begin here.
    pub(super) fn check_start(&mut self) -> Result<(), ConstraintError> {
        self.allowed_here().map(|_| ())
    }

    fn allowed_here(&mut self) -> Result<&[u32], ConstraintError> {
        let set = match self.allowed.take() {
            Some(set) => set,
            None => self.compute_allowed()?,
        };
        Ok(self.allowed.insert(set))
    }

    fn compute_allowed(&mut self) -> Result<Vec<u32>, ConstraintError> {
        let usable = self.table.usable(self.last.is_none());
        if self.is_complete() {
            return Ok(vec![0; usable.len()]);
        }
        let mask = self.matcher.compute_mask();
        let mask = mask.map_err(|error| failed(&error))?;
        let both = |(mask, usable): (&u32, &u32)| mask & usable;
        let mut set: Vec<u32> = mask.as_slice().iter().zip(usable).map(both).collect();
        self.forbid_repeated_names(&mut set);
        if set.iter().all(|word| *word == 0) && !self.may_end() {
            return Err(dead_end());
        }
        Ok(set)
    }

    /// Removes the tokens that would end a name which its object has already, and where names are limited those
    /// after which only such a name could come.
    fn forbid_repeated_names(&self, set: &mut [u32]) {
        let Some(names) = self.names.as_ref().filter(|names| names.may_repeat()) else {
            return;
        };
        let after = |token| {
            let mut names = names.clone();
            names.read(self.table.bytes(token)).then_some(names)
        };
        if !names.is_limited() {
            let ends: Vec<_> = members(set, self.table.quotes()).collect();
            ends.into_iter().filter(|end| after(*end).is_none()).for_each(|end| remove(set, end));
            return;
        }
        let begun = names.pending_name().filter(|name| name.has_begun);
        let endings: Vec<_> = begun.into_iter().flat_map(|name| names.endings(name)).collect();
        let leads = |token: &TokenId| {
            let bytes = self.table.bytes(*token);
            contains(self.table.separators(), *token)
                || endings.iter().any(|ending| ending.starts_with(bytes))
        };
        let tokens: Vec<_> = members(set, self.table.usable(false)).filter(leads).collect();
        let mut unused = None;
        for token in tokens {
            let is_possible = after(token).is_some_and(|names| {
                names.pending_name().is_none()
                    || unused
                        .get_or_insert_with(|| {
                            UnusedNames::new(self.matcher.deep_clone(), &self.table)
                        })
                        .follow(token, &names)
            });
            if !is_possible {
                remove(set, token);
            }
        }
    }

    /// True if an object may come to a name that it has already, and then have no other.
    fn may_repeat_limited_names(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.is_limited() && names.may_repeat())
    }

    /// True if the text is complete and no token can follow.
    fn is_complete(&self) -> bool {
        self.matcher.stop_reason() == StopReason::NoExtension
    }
}

impl std::fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarConstraint")
            .field("last", &self.last)
            .field("stop_reason", &self.matcher.stop_reason())
            .finish_non_exhaustive()
    }
}

impl Constraint for GrammarConstraint {
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError> {
        let allowed = self.allowed_here()?;
        set.clear();
        set.extend_from_slice(allowed);
        Ok(())
    }

    fn accept(&mut self, token: TokenId) -> Result<bool, ConstraintError> {
        if self.may_repeat_limited_names() {
            self.allowed_here()?;
        }
        let candidates = match &self.allowed {
            Some(allowed) => allowed,
            None => self.table.usable(self.last.is_none()),
        };
        if !contains(candidates, token) || self.is_complete() {
            return Ok(false);
        }
        let mut names = self.names.clone();
        if names.as_mut().is_some_and(|names| !names.read(self.table.bytes(token))) {
            return Ok(false);
        }
        let consumed = self.matcher.try_consume_tokens(&[token]);
        if consumed.map_err(|error| failed(&error))? == 0 {
            return Ok(false);
        }
        self.last = Some(token);
        self.names = names;
        self.allowed = None;
        Ok(true)
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        tokens.clear();
        // The grammar may force a name that is there already.
        if self.is_complete() || self.may_repeat_limited_names() {
            return;
        }
        let bytes = self.matcher.compute_ff_bytes();
        let forced = self.table.tokenize_forced(self.last, &bytes);
        let usable = self.table.usable(self.last.is_none());
        if forced.first().is_some_and(|first| contains(usable, *first)) {
            tokens.extend(forced);
        }
    }

    fn may_end(&mut self) -> bool {
        self.is_complete() || self.matcher.is_accepting().unwrap_or(false)
    }

    fn is_over(&mut self) -> bool {
        self.may_end()
            && self.allowed_here().is_ok_and(|allowed| allowed.iter().all(|word| *word == 0))
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.duplicate())
    }
}

/// Parts of the compiler's errors when a step exceeds a limit.
const TOO_COMPLEX: [&str; 5] =
    ["lexer error: ", "Too many items", "items; max is", "LexerTooComplex", "ParserTooComplex"];

fn failed(error: &dyn std::fmt::Display) -> ConstraintError {
    let reason = one_line(error);
    if reason == StopReason::NoExtensionBias.to_string() {
        return dead_end();
    }
    if TOO_COMPLEX.iter().any(|phrase| reason.contains(phrase)) {
        return ConstraintError("the grammar is too complex".to_owned());
    }
    ConstraintError(format!("the grammar cannot be followed: {reason}"))
}

fn dead_end() -> ConstraintError {
    ConstraintError("no token of the vocabulary can continue the text".to_owned())
}
