//! Reading the files of the repository.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A text file, by its path from the root.
pub fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every document of a YAML file.
pub fn yaml(path: &str) -> Vec<Value> {
    parse(path, &read(path))
}

/// Every document of YAML text, such as in a ConfigMap.
pub fn parse(name: &str, text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A JSON file.
pub fn json(path: &str) -> Value {
    serde_json::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The YAML files below a folder, sorted.
pub fn manifests(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(root().join(&folder)).expect("the folder is there");
        for entry in entries {
            let entry = entry.expect("the folder can be read");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                open.push(path);
            } else if path.ends_with(".yaml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The text at `pointer`. Panics if there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text at {pointer} of {value}"))
}

/// The items of the list at `pointer`. Panics if there is none.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.unwrap_or_else(|| panic!("no list at {pointer} of {value}"))
}
