//! Serves a simulated model that replies by a script, for clients whose conversations the demo model
//! was not trained on:
//!
//!     scripted TURNS REPLY [TURNS REPLY]...
//!
//! A conversation gets the reply of the number of turns that have ended in it; the functions of a request are a
//! turn. Prints the address of the server, which ends with standard input.

use std::collections::BTreeMap;
use std::io::Read;

use asynclane_tests::{crowd, run, served::Served};
use sim::{Script, SimConfig, SimExecutor};

/// Ends the turns of the demo models' conversations.
const TURN_END: &str = "<|eot_id|>";

fn main() {
    let tokenizer = run::tokenizer();
    let encode = |text: &str| tokenizer.encode(text, false).expect("a text");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let replies: BTreeMap<u32, Vec<u32>> = arguments
        .chunks(2)
        .map(|pair| match pair {
            [turns, reply] => (turns.parse().expect("a number of turns"), encode(reply)),
            _ => panic!("expected TURNS REPLY [TURNS REPLY]..., found {arguments:?}"),
        })
        .collect();
    let model = SimConfig {
        max_positions: 16_384,
        pages: 4096,
        script: Some(Script { turn_end: encode(TURN_END)[0], replies }),
        ..crowd::model()
    };
    let executor = SimExecutor::new(model).expect("the replies are texts");
    let served = Served::over(Box::new(executor), 8, 2048);
    println!("http://{}", served.client().address());
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.expect("standard input is readable");
}
