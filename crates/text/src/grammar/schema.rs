//! The patterns of a schema: their work, alone and where several hold for one text.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::work::{self, product};

/// Maximum values visited, including those that references lead to.
const MAX_VISITS: usize = 50_000;
/// Maximum keywords that each become a regex: patterns, formats and numeric bounds.
const MAX_REGEXES: usize = 500;
/// Branches of a format, and of `minLength` and `maxLength` beside a pattern.
const FORMAT_BRANCHES: u64 = 16;
/// Keywords that one text must satisfy together with a reference or an alternative.
const JOINT_KEYWORDS: [&str; 6] =
    ["pattern", "format", "properties", "items", "patternProperties", "additionalProperties"];
/// Keywords that become regexes.
const BOUNDS: [&str; 6] =
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format", "pattern"];

/// Checks the work of all patterns of `schema`, whose nesting is bounded.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut patterns = Patterns::default();
    patterns.collect(schema)?;
    work::check(patterns.work)?;
    if patterns.meet && patterns.branches.len() > 1 {
        let mut walk =
            Walk { root: schema, branches: &patterns.branches, visits: 0, open: Vec::new() };
        let met = walk.meet(schema, "")?;
        let most = met.into_values().max().unwrap_or(0);
        work::check(most.saturating_mul(FORMAT_BRANCHES) / work::COMBINED_PER_BRANCH)?;
    }
    Ok(())
}

/// The patterns of a schema.
#[derive(Default)]
struct Patterns<'a> {
    /// Branches of each pattern.
    branches: BTreeMap<&'a str, u64>,
    /// Work of all patterns.
    work: u64,
    /// True if several patterns may hold for one text.
    meet: bool,
}

impl<'a> Patterns<'a> {
    fn collect(&mut self, schema: &'a Value) -> Result<(), String> {
        let mut regexes = 0;
        let mut open = vec![schema];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(members) => {
                    regexes += BOUNDS
                        .iter()
                        .filter(|key| members.get(**key).is_some_and(|value| !value.is_object()))
                        .count();
                    if let Some(Value::Object(named)) = members.get("patternProperties") {
                        regexes += named.len();
                        for name in named.keys() {
                            self.add(name);
                        }
                    }
                    if let Some(Value::String(pattern)) = members.get("pattern") {
                        self.add(pattern);
                    }
                    self.meet |= meets(members);
                    open.extend(members.values());
                }
                _ => {}
            }
        }
        if regexes > MAX_REGEXES {
            return Err(format!(
                "expected at most {MAX_REGEXES} patterns, formats and bounds of numbers, found \
                 {regexes}"
            ));
        }
        Ok(())
    }

    fn add(&mut self, pattern: &'a str) {
        if self.work <= work::MAX_TRANSITION && !self.branches.contains_key(pattern) {
            let (work, branches) = work::pattern(pattern);
            self.work = self.work.saturating_add(work);
            self.branches.insert(pattern, branches);
        }
    }
}

/// True if subschemas of this schema are intersected.
fn meets(schema: &Map<String, Value>) -> bool {
    let has = |key: &&str| schema.contains_key(*key);
    has(&"allOf") || ["$ref", "anyOf", "oneOf"].iter().any(has) && JOINT_KEYWORDS.iter().any(has)
}

/// Follows a schema as the compiler intersects it.
struct Walk<'a> {
    root: &'a Value,
    branches: &'a BTreeMap<&'a str, u64>,
    visits: usize,
    /// References that are being followed.
    open: Vec<&'a str>,
}

/// The branches of all patterns that hold for the text at each path.
type PathBranches = BTreeMap<String, u64>;

impl<'a> Walk<'a> {
    fn meet(&mut self, schema: &'a Value, path: &str) -> Result<PathBranches, String> {
        self.visits += 1;
        if self.visits > MAX_VISITS {
            return Err(format!(
                "expected at most {MAX_VISITS} values where patterns are intersected, counted along \
                 references, found more"
            ));
        }
        let mut met = PathBranches::new();
        let Value::Object(members) = schema else {
            return Ok(met);
        };
        if let Some(Value::String(pattern)) = members.get("pattern") {
            let branches = self.branches.get(pattern.as_str()).copied().unwrap_or(1);
            both(&mut met, PathBranches::from([(path.to_owned(), branches)]));
        }
        if members.contains_key("format") {
            both(&mut met, PathBranches::from([(path.to_owned(), FORMAT_BRANCHES)]));
        }
        for key in ["properties", "patternProperties"] {
            if let Some(Value::Object(named)) = members.get(key) {
                for (name, subschema) in named {
                    both(&mut met, self.meet(subschema, &format!("{path}/{name}"))?);
                }
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(subschema) = members.get(key) {
                both(&mut met, self.meet(subschema, &format!("{path}/*"))?);
            }
        }
        for subschema in list(members, "allOf") {
            both(&mut met, self.meet(subschema, path)?);
        }
        for key in ["anyOf", "oneOf", "prefixItems"] {
            let mut largest = PathBranches::new();
            for subschema in list(members, key) {
                for (path, branches) in self.meet(subschema, path)? {
                    let entry = largest.entry(path).or_insert(0);
                    *entry = branches.max(*entry);
                }
            }
            both(&mut met, largest);
        }
        if let Some(Value::String(reference)) = members.get("$ref") {
            both(&mut met, self.follow(reference, path)?);
        }
        Ok(met)
    }

    fn follow(&mut self, reference: &'a str, path: &str) -> Result<PathBranches, String> {
        let pointer = reference.trim_start_matches('#');
        match self.root.pointer(pointer) {
            Some(target) if !self.open.contains(&reference) => {
                self.open.push(reference);
                let met = self.meet(target, path);
                self.open.pop();
                met
            }
            _ => Ok(PathBranches::new()),
        }
    }
}

/// Adds what also holds.
fn both(met: &mut PathBranches, other: PathBranches) {
    for (path, branches) in other {
        let entry = met.entry(path).or_insert(1);
        *entry = product(*entry, branches);
    }
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
