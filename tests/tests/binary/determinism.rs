//! `asynclane inspect determinism` against this server, and against servers that change their answers under
//! load or never answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asynclane_tests::process::{Server, command, refusal, run, run_command, stderr, stdout};
use serde_json::{Value, json};

fn check(address: &str, more: &[&str]) -> std::process::Output {
    let arguments = ["inspect", "determinism", "--address", address];
    let few = ["--requests", "2", "--neighbours", "8", "--max-tokens", "16"];
    let mut command = command(&[&arguments[..], &few, more].concat());
    command.env_remove("OPENAI_API_KEY");
    run_command(command)
}

#[test]
fn this_server_gives_the_same_bits_among_neighbours() {
    // In the process, and one that runs.
    let own = stdout(&run(&["inspect", "determinism", "--requests", "2", "--neighbours", "16"]));
    let server = Server::start(&["demo-sdar", "--api-key", "secret"]);
    let address = server.client().address().to_string();
    let other = stdout(&check(&address, &["--key", "secret"]));
    for (text, model) in [(own, "demo"), (other, "demo-sdar")] {
        let lines: Vec<&str> = text.lines().collect();
        for expected in [
            &format!("model        {model}"),
            "compared     tokens and log-probabilities of /v1/chat/completions",
            "alone again  4 of 4 equal",
            "log-probs    equal, bit for bit, up to the first other token",
            "verdict      deterministic: neighbours change no bit of an answer",
        ] {
            assert!(lines.contains(&expected), "{expected} in {text}");
        }
        assert!(text.contains("answered: 4 of 4 equal") && text.contains("-cpu-f32"), "{text}");
    }
    let refused = refusal(&check(&address, &[]), 69);
    assert!(refused.contains("status 401"), "{refused}");
}

/// A server with completions only, whose second log-probability depends on the number of requests that
/// it answers at once.
fn shifting() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let busy = Arc::new(AtomicUsize::new(0));
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, busy) = (stream.unwrap(), Arc::clone(&busy));
            std::thread::spawn(move || answer(stream, &busy));
        }
    });
    address
}

fn answer(mut stream: TcpStream, busy: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let (status, text) = match head.split(' ').nth(1) {
        Some("/v1/models") => ("200 OK", json!({"data": [{"id": "fake"}]})),
        Some("/v1/completions") => {
            busy.fetch_add(1, Ordering::SeqCst);
            // Neighbours come within this time, on a busy machine too.
            let until = Instant::now() + Duration::from_millis(500);
            let mut has_others = false;
            while !has_others && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
                has_others = busy.load(Ordering::SeqCst) > 1;
            }
            busy.fetch_sub(1, Ordering::SeqCst);
            let second = -0.5 - if has_others { 0.25 } else { 0.0 };
            let logprobs = json!({"tokens": ["a", "b"], "token_logprobs": [-0.125, second]});
            let choice = json!({"index": 0, "text": "ab", "logprobs": logprobs});
            ("200 OK", json!({"choices": [choice], "system_fingerprint": "fp_1"}))
        }
        _ => ("404 Not Found", Value::Null),
    };
    let text = text.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nServer: fake/1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    // The client may be gone.
    let _ = stream.write_all(format!("{head}{text}").as_bytes());
}

#[test]
fn a_server_that_changes_its_answers_under_load_is_found() {
    let output = check(&format!("http://{}/v1/", shifting()), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    for expected in [
        "server       fake/1, fp_1",
        "compared     tokens and log-probabilities of /v1/completions",
        "alone again  4 of 4 equal",
        "log-probs    largest difference 2.500e-1",
        "first        among neighbours, request 1, token 2: \"b\" (-0.5), then \"b\" (-0.75)",
        "verdict      NOT deterministic: neighbours change answers",
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} in {text}");
    }
    assert!(text.contains("answered: 0 of 4 equal"), "{text}");
    assert!(stderr(&output).contains("4 answers differ"), "{}", stderr(&output));
}

#[test]
fn a_server_that_never_answers_ends_the_check_in_one_line() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    // Built before the time counts.
    command(&[]);
    let begun = Instant::now();
    let message = refusal(&check(&address, &["--time", "2"]), 69);
    assert!(message.contains(&address) && message.contains("timeout"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(silent);
    let message = refusal(&check(&address, &[]), 69);
    assert!(message.contains("refused"), "{message}");
}
