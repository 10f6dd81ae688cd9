//! Member names of the JSON in a text: none occurs twice in an object. A grammar cannot say so of names that
//! the schema leaves open.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{GrammarSpec, ToolUse};
use crate::ToolFormat;

/// The objects that are open at one point of a text. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// JSON begins behind this mark, and text that is not JSON follows its end. Without one all is JSON.
    mark: Option<&'static str>,
    /// Bytes of the mark at the end of the text; all of them inside of JSON.
    matched: usize,
    levels: Vec<Arc<Level>>,
    string: Option<Literal>,
    /// The schema restricts names that it does not list, so an object may come to have all of them.
    is_limited: bool,
}

/// A name that comes next or has begun, and that its object may have already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PendingName<'a> {
    /// Number of open objects and lists.
    pub(super) depth: usize,
    /// True if its quote is there.
    pub(super) has_begun: bool,
    /// Its bytes, as the text spells them.
    pub(super) written: &'a [u8],
}

/// A list, or an object with the names of its members.
#[derive(Clone, Debug, Default)]
struct Level {
    is_object: bool,
    /// A name comes next, not a value.
    expects_name: bool,
    names: BTreeSet<Vec<u8>>,
}

/// A string that has begun.
#[derive(Clone, Debug)]
struct Literal {
    is_name: bool,
    escaped: bool,
    /// The bytes of a name, with its quotes.
    bytes: Vec<u8>,
}

impl Names {
    /// The names of an empty text; `None` if texts of `spec` hold no JSON, or JSON at unknown places.
    pub(super) fn new(spec: &GrammarSpec) -> Option<Self> {
        let mark = match spec {
            GrammarSpec::JsonObject
            | GrammarSpec::JsonSchema(_)
            | GrammarSpec::ClosedJsonSchema(_) => None,
            GrammarSpec::Tools(tools) => match tools.format {
                ToolFormat::Gemma | ToolFormat::Qwen3Coder => return None,
                // An answer in JSON has the brackets of a call.
                _ if tools.mode == ToolUse::Required || tools.answer.is_some() => None,
                format => Some(format.marks().open?),
            },
            GrammarSpec::Regex(_) | GrammarSpec::Lark(_) | GrammarSpec::Choice(_) => return None,
        };
        let is_limited = match spec {
            GrammarSpec::JsonSchema(schema) | GrammarSpec::ClosedJsonSchema(schema) => {
                limits_names(schema)
            }
            GrammarSpec::Tools(tools) => {
                let answer = tools.answer.as_ref();
                tools.tools.iter().map(|tool| &tool.parameters).chain(answer).any(limits_names)
            }
            _ => false,
        };
        Some(Self { mark, matched: 0, levels: Vec::new(), string: None, is_limited })
    }

    /// True if an object may come to have all names that its schema permits.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// The name that comes next or is being written, if its object has one that begins with the same bytes.
    pub(super) fn pending_name(&self) -> Option<PendingName<'_>> {
        let level = self.levels.last()?;
        let (has_begun, written) = match &self.string {
            Some(name) if name.is_name => (true, name.bytes.get(1..)?),
            None if level.expects_name => (false, &[][..]),
            _ => return None,
        };
        let name = PendingName { depth: self.levels.len(), has_begun, written };
        self.endings(name).next().map(|_| name)
    }

    /// The bytes that would make a pending name one which its object has.
    pub(super) fn endings(&self, name: PendingName<'_>) -> impl Iterator<Item = Vec<u8>> {
        let names = self.levels.last().into_iter().flat_map(|level| &level.names);
        names.filter_map(move |taken| {
            let spelled = serde_json::to_vec(std::str::from_utf8(taken).ok()?).ok()?;
            let inner = spelled.get(1..spelled.len() - 1)?;
            inner.strip_prefix(name.written).map(<[u8]>::to_vec)
        })
    }

    /// True if what comes next may end a name that is there already.
    pub(super) fn may_repeat(&self) -> bool {
        let named = |level: &Arc<Level>| !level.names.is_empty();
        self.levels.iter().any(named)
    }

    /// Reads on; false if a name is there twice.
    pub(super) fn read(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| self.take(*byte))
    }

    fn take(&mut self, byte: u8) -> bool {
        if let Some(mark) = self.mark.map(str::as_bytes)
            && self.matched < mark.len()
        {
            // Marks begin with a byte that occurs in them once.
            self.matched = match byte {
                _ if byte == mark[self.matched] => self.matched + 1,
                _ => usize::from(byte == mark[0]),
            };
            return true;
        }
        if self.string.is_some() {
            return self.take_in_string(byte);
        }
        let level = self.levels.last_mut().map(Arc::make_mut);
        match (byte, level) {
            (b'"', level) => {
                let is_name = level.is_some_and(|level| level.is_object && level.expects_name);
                self.string = Some(Literal {
                    is_name,
                    escaped: false,
                    bytes: if is_name { vec![byte] } else { Vec::new() },
                });
            }
            (b'{' | b'[', _) => {
                let is_object = byte == b'{';
                self.levels.push(Arc::new(Level {
                    is_object,
                    expects_name: is_object,
                    names: BTreeSet::new(),
                }));
            }
            (b'}' | b']', Some(_)) => {
                self.levels.pop();
                if self.levels.is_empty() && self.mark.is_some() {
                    self.matched = 0;
                }
            }
            (b':', Some(level)) => level.expects_name = false,
            (b',', Some(level)) => level.expects_name = level.is_object,
            _ => {}
        }
        true
    }

    fn take_in_string(&mut self, byte: u8) -> bool {
        let Some(string) = &mut self.string else {
            return true;
        };
        if string.is_name {
            string.bytes.push(byte);
        }
        if string.escaped || byte != b'"' {
            string.escaped = !string.escaped && byte == b'\\';
            return true;
        }
        let (is_name, bytes) = (string.is_name, std::mem::take(&mut string.bytes));
        self.string = None;
        if !is_name {
            return true;
        }
        // Two spellings of a name are one name.
        let name = serde_json::from_slice::<String>(&bytes).map_or(bytes, String::into_bytes);
        let level = self.levels.last_mut().map(Arc::make_mut);
        level.is_none_or(|level| level.names.insert(name))
    }
}

/// True if a schema may restrict the names of members that it does not list.
fn limits_names(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            ["patternProperties", "propertyNames"].iter().any(|key| members.contains_key(*key))
                || members.values().any(limits_names)
        }
        Value::Array(list) => list.iter().any(limits_names),
        _ => false,
    }
}
