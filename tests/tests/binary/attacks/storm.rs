//! The memory of a storm of requests goes back to the system.

use std::io::Read;
use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::memory::Memory;
use asynclane_tests::process::Server;
use asynclane_tests::reply::with;
use serde_json::{Map, Value, json};

use super::{COMPLETIONS, ask};

/// Requests of the storm, and the clients that send them.
const REQUESTS: usize = 160;
const CLIENTS: usize = 8;
/// Growth of resident memory that may remain, and the time until then.
const REMAINS_KIB: u64 = 150 << 10;
const GONE: Duration = Duration::from_secs(30);

/// A schema that no other number has.
fn schema(number: usize) -> Value {
    let kinds = [
        json!({"type": "string", "maxLength": 10 + number % 190}),
        json!({"type": "integer"}),
        json!({"enum": (0..20).map(|i| format!("v{number}-{i}").repeat(4)).collect::<Vec<_>>()}),
        json!({"type": "array", "items": {"type": "string",
            "pattern": format!("[a-z]{{1,{}}}( [A-Z]+)*", 3 + number % 27)}}),
    ];
    let names: Vec<String> = (0..30).map(|index| format!("k{number}_{index}")).collect();
    let named = names.iter().enumerate();
    let members = named.map(|(index, name)| (name.clone(), kinds[(index + number) % 4].clone()));
    let properties: Map<_, _> = members.collect();
    json!({"type": "object", "properties": properties, "required": names[..10]})
}

fn body(number: usize) -> Value {
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 200, "ignore_eos": true});
    let more = match number % 4 {
        0 => json!({"prompt": "x y ".repeat(300_000)}),
        1 => json!({"n": 16, "temperature": 1, "ignore_eos": false, "response_format":
            {"type": "json_schema", "json_schema": {"name": "a", "schema": schema(number)}}}),
        2 => json!({"prompt": vec!["a"; 8], "n": 64}),
        _ => json!({"prompt": "a b ".repeat(3_900_000)}),
    };
    with(body, &more)
}

/// Requests whose senders hang up soon.
fn storm(client: Client) {
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || {
                for number in (first..REQUESTS).step_by(CLIENTS) {
                    // A refusal may come before the body is sent.
                    let Ok(mut stream) = client.begin(COMPLETIONS, &body(number)) else {
                        continue;
                    };
                    let patience = Duration::from_millis(50 + 200 * (number as u64 % 3));
                    let _ = stream.set_read_timeout(Some(patience));
                    let _ = stream.read(&mut [0; 16]);
                }
            });
        }
    });
}

#[test]
fn memory_goes_back_after_a_storm() {
    let server = Server::start(&[]);
    ask(server.client());
    let memory = Memory::of(&server.proc());
    let start = memory.resident();
    for _ in 0..2 {
        storm(server.client());
        let begin = Instant::now();
        while memory.resident() > start + REMAINS_KIB {
            let now = memory.resident();
            assert!(begin.elapsed() < GONE, "{start} KiB, still {now} KiB");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    ask(server.client());
}
