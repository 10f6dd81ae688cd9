//! Formats of texts in a schema: dates and times become patterns, unknown ones are annotations.

use serde_json::{Map, Value, json};

/// Formats that the compiler follows as they are. Every other one is an annotation.
const FORMATS: [&str; 7] = ["duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"];
/// Days of the calendar, the 29th of February in leap years.
const DATE: &str = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-\
                    (?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|\
                    [13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
/// Times with their zone, without leap seconds, which most libraries refuse.
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// Formats that are annotations go; dates and times become patterns.
pub(super) fn format(members: &mut Map<String, Value>) {
    let Some(format) = members.get("format") else {
        return;
    };
    let pattern = match format.as_str() {
        Some("date") => Some(format!("^{DATE}$")),
        Some("time") => Some(format!("^{TIME}$")),
        Some("date-time") => Some(format!("^{DATE}T{TIME}$")),
        Some(known) if FORMATS.contains(&known) => return,
        _ => None,
    };
    members.remove("format");
    match pattern {
        Some(pattern) if members.contains_key("pattern") => {
            let both = members.entry("allOf").or_insert_with(|| json!([]));
            if let Value::Array(both) = both {
                both.push(json!({"pattern": pattern}));
            }
        }
        Some(pattern) => {
            members.insert("pattern".to_owned(), json!(pattern));
        }
        None => {}
    }
}
