//! Ids and the environment.

mod hostile;

use super::*;

#[test]
fn an_id_has_an_organisation_a_name_and_perhaps_a_revision() {
    let id = |name, revision| Some(Id { name, revision, file: None });
    assert_eq!(Id::parse("GSAI-ML/LLaDA-8B-Instruct"), id("GSAI-ML/LLaDA-8B-Instruct", "main"));
    assert_eq!(Id::parse("a/b.c_d@refs/pr/1"), id("a/b.c_d", "refs/pr/1"));
    for site in ["hf.co", "huggingface.co", "https://huggingface.co"] {
        assert_eq!(Id::parse(&format!("{site}/a/b")), id("a/b", "main"));
        assert_eq!(Id::parse(&format!("{site}/a")), None);
    }
    for path in [
        "demo",
        "/models/x",
        "./x",
        "../x",
        "a/b/c",
        "example.com/a/b",
        "a/",
        "/a",
        "a/..",
        "a/b@",
        "a/b@../c",
        "a/b c",
        "~/x",
        "a/.b",
        "a/b:",
        "a/b:../c.gguf",
        "a/b:c/d.gguf",
        "C:/models",
        "",
    ] {
        assert_eq!(Id::parse(path), None, "{path}");
    }
}

#[test]
fn an_id_may_name_a_gguf_file_or_a_part_of_its_name() {
    let named = |id, files: &[&'static str]| {
        let id = Id::parse(id).expect("an id");
        id.gguf(files).map(|file| file.unwrap_or("safetensors"))
    };
    let files = [".gitattributes", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "README.md"];
    assert_eq!(named("a/b:m-Q8_0.gguf", &files), Ok("m-Q8_0.gguf"));
    assert_eq!(named("a/b@main:q4_k_m", &files), Ok("m-Q4_K_M.gguf"));
    assert_eq!(named("a/b", &files[..2]), Ok("m-Q4_K_M.gguf"));
    assert_eq!(named("a/b", &[WEIGHTS, "m.gguf"]), Ok("safetensors"));
    assert_eq!(named("a/b:m", &[WEIGHTS, "m.gguf"]), Ok("m.gguf"));
    let projector = ["mmproj-Q8_0.gguf", "m-Q8_0.gguf"];
    assert_eq!(named("a/b", &projector), Ok("m-Q8_0.gguf"));
    assert_eq!(named("a/b:Q8_0", &projector), Ok("m-Q8_0.gguf"));
    let split = ["m-Q8-00002-of-00002.gguf", "m-Q8-00001-of-00002.gguf", "m-Q4.gguf"];
    assert_eq!(named("a/b:Q8", &split), Ok("m-Q8-00001-of-00002.gguf"));
    // A word alone before longer ones, and files in folders.
    let near = ["m-Q6_K.gguf", "m-Q6_K_L.gguf", "m.BF16.gguf", "m.F16.gguf", "Q8_0/m-Q8_0.gguf"];
    for (file, id) in
        ["a/b:q6_k", "a/b:Q6_K_L", "a/b:BF16", "a/b:F16", "a/b:Q8_0"].iter().enumerate()
    {
        assert_eq!(named(id, &near), Ok(near[file]));
    }
    let several = named("a/b", &["m-Q4_K_M.gguf", "Q8_0/m-Q8_0.gguf"]);
    assert!(several.unwrap_err().ends_with("m-Q4_K_M.gguf, Q8_0/m-Q8_0.gguf"));
    assert_eq!(named("a/b", &["m.gguf", "../m.gguf", "a/../m.gguf", "a/b/m.gguf"]), Ok("m.gguf"));
    let hostile = [split[0], split[1], split[2], "m-Q8-/../00003-of-00002.gguf"];
    assert_eq!(id::shards(split[1], &hostile), split[..2]);
    assert_eq!(id::shards(split[2], &hostile), split[2..]);
    for (id, files, problem) in [
        ("a/b", &files[..], "give one of its GGUF files as a/b:FILE: m-Q4_K_M.gguf, m-Q8_0.gguf"),
        ("a/b:Q5_0", &files, "no GGUF file Q5_0; there are m-Q4_K_M.gguf, m-Q8_0.gguf"),
        ("a/b:Q5_0", &[WEIGHTS], "no GGUF file Q5_0, nor any other"),
        (
            "a/b",
            &[".gitattributes", "pytorch_model.bin"],
            "expected model.safetensors, model.safetensors.index.json or a GGUF file, found \
             pytorch_model.bin",
        ),
    ] {
        assert_eq!(named(id, files), Err(problem.to_owned()), "{id}");
    }
}

#[test]
fn llada2_1_is_known_by_its_name() {
    assert!(is_editing_release("inclusionAI/LLaDA2.1-mini", "llada2"));
    assert!(is_editing_release("/models/llada2.1-flash/", "llada2"));
    assert!(!is_editing_release("inclusionAI/LLaDA2.0-mini", "llada2"));
    assert!(!is_editing_release("/models/LLaDA2.1", "sdar"));
}

#[test]
fn a_model_is_called_as_its_id_or_as_its_folder() {
    let name = |path| served_name(path).and_then(OsStr::to_str);
    assert_eq!(name("no-such/model@v1"), Some("no-such/model"));
    assert_eq!(name("/models/LLaDA"), Some("LLaDA"));
    // Tests run in the crate's folder.
    assert_eq!(name("src/hub"), Some("hub"));
}

/// Ollama calls its files by their digest.
#[test]
fn a_gguf_file_is_known_by_its_end_or_by_its_first_bytes() {
    let folder = std::env::temp_dir().join(format!("asynclane-gguf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let known = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        is_gguf(path.to_str().unwrap())
    };
    assert!(known("sha256-6a07", b"GGUF\x03\0\0\0"));
    assert!(known("llama-3.2", b"GGUF"));
    assert!(known("damaged.gguf", b"GGU"));
    assert!(!known("short", b"GGU"));
    assert!(!known("model.safetensors", b"\x08\0\0\0\0\0\0\0{}"));
    assert!(!is_gguf(folder.to_str().unwrap()));
    let name = |name: &str| {
        let path = folder.join(name).to_str().unwrap().to_owned();
        served_name(&path).and_then(OsStr::to_str).unwrap().to_owned()
    };
    assert_eq!([name("llama-3.2"), name("damaged.gguf")], ["llama-3.2", "damaged"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_environment_says_where_the_hub_and_its_cache_are() {
    let hub = |variables: &'static [(&str, &str)]| {
        let found = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Hub::from_env(|name| found(name).map(|(_, value)| (*value).to_owned())).unwrap()
    };
    let plain = hub(&[("HF_HOME", "/h"), ("HF_TOKEN", " "), ("HF_HUB_OFFLINE", "0")]);
    assert_eq!(plain.cache, Path::new("/h/hub"));
    assert_eq!((plain.token, plain.offline), (None, false));
    assert_eq!(plain.endpoint, ENDPOINT);
    let cache = hub(&[("XDG_CACHE_HOME", "/c")]).cache;
    assert_eq!(cache, Path::new("/c/huggingface/hub"));
    let all = hub(&[
        ("HF_HOME", "/h"),
        ("HF_HUB_CACHE", "/elsewhere"),
        ("HF_TOKEN", "canary\n"),
        ("HF_ENDPOINT", "http://127.0.0.1:1/"),
        ("HF_HUB_OFFLINE", "TRUE"),
    ]);
    assert_eq!(all.cache, Path::new("/elsewhere"));
    assert_eq!(all.token.as_deref(), Some("canary"));
    assert_eq!(all.endpoint, "http://127.0.0.1:1");
    assert!(all.offline);
}

/// With a token that is refused, the advice is not to set one.
#[test]
fn a_refusal_quotes_the_hub() {
    let reason = |token: Option<&str>| {
        let token = token.map(str::to_owned);
        let variable = |name: &str| match name {
            "HF_HOME" => Some("/h".to_owned()),
            "HF_TOKEN" => token.clone(),
            _ => None,
        };
        let hub = Hub::from_env(variable).unwrap();
        hub.reason(
            Id::parse("a/b").unwrap(),
            &Fault::Status(401, "Invalid\ncredentials".to_owned()),
        )
    };
    let quoted = "does not show it (status 401, Invalid\\ncredentials)";
    assert!(reason(None).contains(quoted), "{}", reason(None));
    assert!(reason(None).ends_with("needs an HF_TOKEN with access"));
    assert!(reason(Some("x")).ends_with("with access, which the one that was sent lacks"));
}

#[test]
fn certificates_come_from_a_file_that_has_some() {
    // The contents are read at the first connection.
    let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(roots(pem).is_ok());
    assert_eq!(roots(b"").unwrap_err(), "no certificate");
    let missing = |name: &str| match name {
        "HF_HOME" => Some("/h".to_owned()),
        "SSL_CERT_FILE" => Some("/no/such.pem".to_owned()),
        _ => None,
    };
    let error = Hub::from_env(missing).unwrap().roots().unwrap_err().to_string();
    assert!(error.starts_with("SSL_CERT_FILE: /no/such.pem: "), "{error}");
}

#[test]
fn shards_are_those_of_an_index_that_loading_accepts() {
    let folder = std::env::temp_dir().join(format!("asynclane-hub-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let shards = |index: &[u8]| {
        std::fs::write(folder.join(INDEX), index).unwrap();
        shards_of(&folder)
    };
    let index = br#"{"weight_map": {"a": "2.safetensors", "b": "1.safetensors",
        "c": "2.safetensors", "d": "- d"}}"#;
    assert_eq!(shards(index), ["1.safetensors", "2.safetensors"]);
    for faulty in [
        &br#"{"weight_map": {"a": "1.safetensors", "b": "../out.safetensors"}}"#[..],
        br#"{"weight_map": {"a": "1.safetensors", "b": 3}}"#,
        b"no JSON",
    ] {
        assert!(shards(faulty).is_empty());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_password_of_the_endpoint_is_shown_nowhere() {
    let variable = |name: &str| match name {
        "HF_ENDPOINT" => Some("http://me:secret@mirror:1/hub".to_owned()),
        "HF_HOME" => Some("/h".to_owned()),
        _ => None,
    };
    let hub = Hub::from_env(variable).unwrap();
    let id = Id::parse("a/b").unwrap();
    for fault in [
        Fault::Status(404, String::new()),
        Fault::Status(401, String::new()),
        Fault::Status(503, String::new()),
        Fault::Network("no way to http://me:secret@mirror:1/hub/api".to_owned()),
        Fault::Refused("x".to_owned()),
    ] {
        let reason = hub.reason(id, &fault);
        assert!(reason.contains("http://mirror:1/hub"), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
}
