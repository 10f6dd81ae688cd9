//! Random requests that keep a server busy.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use super::client::{Answer, Client, Question};
use crate::args::DeterminismArgs;
use crate::exit;

/// Pause of a neighbour whose request was refused.
const PAUSE: Duration = Duration::from_millis(50);

/// Threads that ask one random request after the other.
pub struct Neighbours<'a> {
    client: &'a Client,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    begun: AtomicUsize,
    answered: AtomicUsize,
    refusal: Mutex<Option<String>>,
}

impl<'a> Neighbours<'a> {
    /// Starts them, and waits until each has asked.
    pub fn start(client: &'a Client, args: &DeterminismArgs) -> Self {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for neighbour in 0..args.neighbours {
            let (client, shared, most) = (client.clone(), Arc::clone(&shared), args.max_tokens);
            let thread = std::thread::Builder::new().name("neighbour".to_owned());
            let spawned = thread.spawn(move || ask(&client, &shared, neighbour, most));
            // Fewer threads are fewer neighbours.
            threads.extend(spawned.ok());
        }
        while shared.begun.load(Ordering::Relaxed) < threads.len() && client.has_time() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { client, shared, threads }
    }

    /// The answers to `questions`, asked all at once among the neighbours.
    ///
    /// # Errors
    /// A question that gets no answer.
    pub fn compared(&self, questions: &[Question]) -> Result<Vec<Answer>> {
        std::thread::scope(|scope| {
            let ask = |question| scope.spawn(move || self.client.ask(question));
            let asked: Vec<_> = questions.iter().map(ask).collect();
            let answers = asked.into_iter().map(|thread| {
                let failed = |_| exit::failure(exit::UNAVAILABLE, "a request failed");
                thread.join().map_err(failed)?
            });
            answers.collect()
        })
    }

    /// Ends them; the number of their requests that were answered.
    ///
    /// # Errors
    /// None of them got an answer.
    pub fn end(self) -> Result<usize> {
        self.shared.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
        let answered = self.shared.answered.load(Ordering::Relaxed);
        let refusal = self.shared.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        match refusal {
            Some(refusal) if answered == 0 => {
                let message = format!("no neighbour was answered: {refusal}");
                Err(exit::failure(exit::UNAVAILABLE, message))
            }
            _ => Ok(answered),
        }
    }
}

fn ask(client: &Client, shared: &Shared, neighbour: u32, most: u32) {
    for round in 0.. {
        shared.begun.fetch_add(usize::from(round == 0), Ordering::Relaxed);
        match client.ask_once(&Question::random(neighbour, round, most)) {
            Ok(_) => {
                shared.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(problem) => {
                let mut refusal = shared.refusal.lock().unwrap_or_else(PoisonError::into_inner);
                refusal.get_or_insert(problem.to_string());
                drop(refusal);
                std::thread::sleep(PAUSE);
            }
        }
        if shared.ends.load(Ordering::Relaxed) || !client.has_time() {
            return;
        }
    }
}
