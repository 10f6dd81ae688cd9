//! Mutations of a corpus: JSON by its structure, everything else by bytes, words and numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::random::Random;

/// Most bytes of a mutated input.
const MOST: usize = 64 << 10;
/// Most mutations of one input.
const STEPS: usize = 6;
/// Most copies of one part.
const COPIES: usize = 2_000;
/// Numbers at the borders of types.
const SMALL: [u64; 6] = [0, 1, 2, 0x7f, 0xff, 0xffff];
const LARGE: [u64; 6] = [I32, U32 - 1, U32, U32 + 1, i64::MAX as u64, u64::MAX];
const I32: u64 = i32::MAX as u64;
const U32: u64 = u32::MAX as u64;

/// Values that are rarely valid.
const UNLIKELY: &str =
    r#"[null, true, -1, 1.5, 1e300, -9223372036854775808, "", "\u0000\ufffd\ud83e\udd5a", [], {}]"#;

fn border(random: &mut Random) -> u64 {
    match random.below(12) {
        index @ 0..6 => SMALL[index],
        index => LARGE[index - 6],
    }
}

/// A corpus and what its inputs are made of.
#[derive(Debug)]
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    /// Words and numbers of the seeds, and the target's own.
    words: Vec<Vec<u8>>,
    /// The values that each key of a JSON seed has.
    members: BTreeMap<String, Vec<Value>>,
}

impl Mutator {
    /// A mutator of `seeds`, which must not be empty, with more `words`, separated by `¦`.
    pub fn new(seeds: Vec<Vec<u8>>, words: &str) -> Self {
        let words = words.split('¦').map(|word| word.as_bytes().to_vec());
        let mut words: BTreeSet<Vec<u8>> = words.collect();
        let mut members = BTreeMap::new();
        for seed in &seeds {
            words.extend(parts(seed));
            if let Ok(value) = serde_json::from_slice(seed) {
                collect(&value, &mut members);
            }
        }
        let words = words.into_iter().collect();
        Self { seeds, words, members }
    }

    /// The corpus.
    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// An input that depends on `seed` alone.
    pub fn input(&self, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut input = self.seeds[random.below(self.seeds.len())].clone();
        let steps = 1 + random.below(STEPS);
        match serde_json::from_slice::<Value>(&input) {
            Ok(mut value) if random.below(5) > 0 => {
                for _ in 0..steps {
                    self.change(&mut value, &mut random);
                }
                input = value.to_string().into_bytes();
                if random.below(8) == 0 {
                    self.damage(&mut input, &mut random);
                }
            }
            _ => (0..steps).for_each(|_| self.damage(&mut input, &mut random)),
        }
        input.truncate(MOST);
        input
    }

    /// One change of bytes.
    fn damage(&self, input: &mut Vec<u8>, random: &mut Random) {
        let index = random.below(input.len() + 1);
        let end = (index + 1 + random.below(40)).min(input.len());
        match random.below(12) {
            0 => input.truncate(index),
            1 if index < input.len() => input[index] ^= 1 << random.below(8),
            2 if index < input.len() => input[index] = random.below(256) as u8,
            3 => drop(input.drain(index.min(end)..end)),
            4 => {
                let part = input[index.min(end)..end].to_vec();
                input.splice(index..index, repeated(&part, random));
            }
            5 => {
                let other = &self.seeds[random.below(self.seeds.len())];
                let start = random.below(other.len() + 1);
                let end = (start + random.below(80)).min(other.len());
                input.splice(index..index, other[start..end].iter().copied());
            }
            6 => {
                let number = border(random).to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)];
                let end = (index + width).min(input.len());
                input.splice(index..end, number[..width].iter().copied());
            }
            7 => {
                let number = border(random).to_string();
                input.splice(index..index, number.into_bytes());
            }
            8 => {
                let word = &self.words[random.below(self.words.len())];
                input.splice(index..index, repeated(word, random));
            }
            _ => {
                // A word in place of a word keeps most texts well-formed.
                let word = &self.words[random.below(self.words.len())];
                let (start, end) = word_at(input, index);
                input.splice(start..end, word.iter().copied());
            }
        }
        input.truncate(MOST);
    }

    /// One change of the structure of `value`.
    fn change(&self, value: &mut Value, random: &mut Random) {
        let mut index = random.below(count(value));
        let Some(node) = node_at(value, &mut index) else {
            return;
        };
        match random.below(10) {
            0 => *node = unlikely(random),
            1 => {
                let most = if random.below(20) == 0 { 150 } else { 3 };
                let depth = 1 + random.below(most);
                for _ in 0..depth {
                    *node = json!([node.take()]);
                }
            }
            _ => match node {
                Value::Object(map) => self.change_members(map, random),
                Value::Array(list) => change_items(list, random),
                Value::String(text) => {
                    let mut bytes = std::mem::take(text).into_bytes();
                    self.damage(&mut bytes, random);
                    *text = String::from_utf8_lossy(&bytes).into_owned();
                }
                Value::Number(number) => {
                    let number = number.as_f64().unwrap_or(0.0);
                    *node = near(number, random);
                }
                Value::Null | Value::Bool(_) => *node = unlikely(random),
            },
        }
    }

    /// Adds a member that some seed has, with one of its values, or removes one.
    fn change_members(&self, map: &mut Map<String, Value>, random: &mut Random) {
        if random.below(3) == 0 {
            let name = map.keys().nth(random.below(map.len().max(1))).cloned();
            if let Some(name) = name {
                map.remove(&name);
            }
            return;
        }
        let chosen = random.below(self.members.len().max(1));
        if let Some((name, values)) = self.members.iter().nth(chosen) {
            map.insert(name.clone(), values[random.below(values.len())].clone());
        }
    }
}

/// Repeats or removes an item.
fn change_items(list: &mut Vec<Value>, random: &mut Random) {
    let index = random.below(list.len().max(1));
    if random.below(3) == 0 && !list.is_empty() {
        list.remove(index);
        return;
    }
    let item = list.get(index).cloned().unwrap_or_else(|| unlikely(random));
    let copies = copies(random);
    list.extend(std::iter::repeat_n(item, copies));
}

/// A value that is rarely valid.
fn unlikely(random: &mut Random) -> Value {
    match random.below(12) {
        10 => json!("a".repeat(random.below(5_000))),
        11 => json!(border(random)),
        one => {
            let values: Vec<Value> = serde_json::from_str(UNLIKELY).expect("JSON");
            values[one].clone()
        }
    }
}

/// A number near `number`, or at the border of a type.
fn near(number: f64, random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!(border(random)),
        1 => json!(-1),
        2 => json!(number / 2.0),
        3 => json!((number as i64).saturating_add(1)),
        4 => json!((number as i64).saturating_sub(1)),
        _ => json!(random.below(2_000)),
    }
}

/// Number of repetitions of a part: mostly a few.
fn copies(random: &mut Random) -> usize {
    let most = [2, 2, 4, 4, 16, 64, 256, COPIES][random.below(8)];
    1 + random.below(most)
}

fn repeated(part: &[u8], random: &mut Random) -> Vec<u8> {
    let most = MOST / part.len().max(1);
    part.repeat(copies(random).min(most))
}

/// The number of values in `value`, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum::<usize>(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The value with the number `at` in depth-first order.
fn node_at<'a>(value: &'a mut Value, index: &mut usize) -> Option<&'a mut Value> {
    if *index == 0 {
        return Some(value);
    }
    *index -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|item| node_at(item, index)),
        Value::Object(map) => map.values_mut().find_map(|member| node_at(member, index)),
        _ => None,
    }
}

/// Adds the members of all objects in `value`.
fn collect(value: &Value, members: &mut BTreeMap<String, Vec<Value>>) {
    match value {
        Value::Array(list) => list.iter().for_each(|item| collect(item, members)),
        Value::Object(map) => {
            for (name, member) in map {
                let values = members.entry(name.clone()).or_default();
                values.push(member.clone());
                collect(member, members);
            }
        }
        _ => {}
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The words of a text and the marks between them.
fn parts(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let parts = text.chunk_by(|a, b| is_word(*a) == is_word(*b));
    parts.filter(|part| part.len() <= 24).map(<[u8]>::to_vec)
}

/// The range of the word at or behind a byte.
fn word_at(text: &[u8], index: usize) -> (usize, usize) {
    let start = (index..text.len()).find(|i| is_word(text[*i]));
    let start = start.unwrap_or(text.len());
    let start = (0..start).rev().find(|i| !is_word(text[*i])).map_or(start.min(index), |i| i + 1);
    let end = (start..text.len()).find(|i| !is_word(text[*i]));
    (start, end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_depends_on_its_seed_alone_and_is_bounded() {
        let json = br#"{"a": [1, "b"], "c": {"d": null}}"#.to_vec();
        let mutator = Mutator::new(vec![json, b"x y".to_vec()], "z");
        let inputs: BTreeSet<Vec<u8>> = (0..1_000).map(|seed| mutator.input(seed)).collect();
        assert!(inputs.len() > 500, "{}", inputs.len());
        assert!(inputs.iter().all(|input| input.len() <= MOST));
        assert_eq!(mutator.input(7), mutator.input(7));
    }
}
