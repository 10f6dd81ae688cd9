//! The vocabulary of decoder settings: every field a request may set, its type and its range.

/// One setting of a decoder, by its public name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Name in the request's `diffusion` object and in config files.
    pub name: &'static str,
    /// Type and allowed values.
    pub kind: FieldKind,
}

/// The type of a field and its allowed values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldKind {
    /// One of a few names.
    Name(&'static [&'static str]),
    /// An integer in an inclusive range.
    Integer(i64, i64),
    /// A finite number in an inclusive range.
    Number(f64, f64),
    /// A boolean.
    Flag,
    /// One of a few names, or an integer in an inclusive range.
    NameOrInteger(&'static [&'static str], i64, i64),
}

/// A value as a request or a preset gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A string.
    Name(&'a str),
    /// An integer literal; counts as a number too.
    Integer(i64),
    /// A number that is no integer literal.
    Number(f64),
    /// A boolean.
    Flag(bool),
}

const MAX: i64 = u32::MAX as i64;

/// Every field, in the order of the reference.
pub const FIELDS: &[Field] = &[
    field("preset", FieldKind::Name(super::presets::NAMES)),
    field("schedule", FieldKind::Name(super::schedules::NAMES)),
    field("commit", FieldKind::Name(super::commits::NAMES)),
    field("cache", FieldKind::Name(super::caches::NAMES)),
    field("rows", FieldKind::Name(&["all", "open"])),
    field(
        "refresh",
        FieldKind::NameOrInteger(&["lane", "never"], 1, MAX),
    ),
    field("refresh_margin", FieldKind::Integer(0, 1024)),
    field("drift_threshold", FieldKind::Number(0.0, 1.0)),
    field("block_length", FieldKind::Integer(1, 1024)),
    field("window", FieldKind::Integer(1, 256)),
    field("threshold", FieldKind::Number(0.0, 1.0)),
    field("tokens_per_step", FieldKind::Integer(1, MAX)),
    field("denoising_steps", FieldKind::Integer(1, 1024)),
    field(
        "rank",
        FieldKind::Name(&["confidence", "margin", "entropy"]),
    ),
    field("factor", FieldKind::Number(f64::MIN_POSITIVE, f64::MAX)),
    field("entropy_threshold", FieldKind::Number(0.0, f64::MAX)),
    field("position_penalty", FieldKind::Number(0.0, f64::MAX)),
    field("margin_threshold", FieldKind::Number(0.0, 1.0)),
    field("filter_threshold", FieldKind::Number(0.0, 1.0)),
    field("answer_start", FieldKind::Integer(0, MAX)),
    field("answer_length", FieldKind::Integer(1, MAX)),
    field("draft_steps", FieldKind::Integer(1, 32)),
    field("edit_threshold", FieldKind::Number(0.0, 1.0)),
    field("edit_passes", FieldKind::Integer(1, 64)),
    field("force", FieldKind::Flag),
    field("delimiter_threshold", FieldKind::Number(0.0, 1.0)),
    field("add_block_threshold", FieldKind::Number(0.0, 1.0)),
    field("draft_threshold", FieldKind::Number(0.0, 1.0)),
    field("lookahead", FieldKind::Integer(0, 256)),
    field("max_lanes", FieldKind::Integer(1, 32)),
    field("min_fill", FieldKind::Number(0.0, 1.0)),
    field("min_clock", FieldKind::Integer(0, MAX)),
    field(
        "fork",
        FieldKind::Name(&["auto", "sentence", "newline", "off"]),
    ),
    field("numeric", FieldKind::Name(&["next", "strict"])),
    field("fork_when_complete", FieldKind::Flag),
    field("lane_budget", FieldKind::Flag),
    field("coupled", FieldKind::Flag),
    field("prune", FieldKind::Flag),
    field("early_stop", FieldKind::Flag),
    field("max_forwards", FieldKind::Integer(1, MAX)),
];

const fn field(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind }
}

impl FieldKind {
    /// The allowed values in words, for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Name(names) => format!("one of {}", names.join(", ")),
            Self::Integer(min, max) if *max == MAX => format!("an integer >= {min}"),
            Self::Integer(min, max) => format!("an integer in {min}..{max}"),
            Self::Number(f64::MIN_POSITIVE, f64::MAX) => "a number > 0".to_owned(),
            Self::Number(min, max) if *max == f64::MAX => format!("a number >= {min}"),
            Self::Number(min, max) => format!("a number in {min}..{max}"),
            Self::Flag => "true or false".to_owned(),
            Self::NameOrInteger(names, min, _) => {
                format!("one of {}, or an integer >= {min}", names.join(", "))
            }
        }
    }
}
