//! The image agrees with the toolchain and the licence.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rest of the only line that starts with `key`, quotes left out.
fn value(text: &str, key: &str) -> String {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(key));
    let found: Vec<_> = lines.map(|rest| rest.trim().replace('"', "")).collect();
    assert_eq!(found.len(), 1, "one line starts with {key:?}: {found:?}");
    found[0].clone()
}

#[test]
fn the_image_is_built_by_the_toolchain_of_the_repository() {
    let image = value(&read("Dockerfile"), "ARG RUST_IMAGE=rust:");
    let channel = value(&read("rust-toolchain.toml"), "channel =");
    let (image, _) = image.split_once('-').expect("a version and a variant");
    let minor = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    assert_eq!(minor(image), minor(&channel));
}

#[test]
fn the_images_have_no_root_no_shell_form_and_a_health_check() {
    let text = read("Dockerfile");
    let user = value(&text, "USER ");
    assert!(user.parse::<u32>().is_ok_and(|user| user > 0), "a number for Kubernetes: {user}");
    // One program, and its arguments once per image.
    for (key, count) in [("CMD [", 3), ("ENTRYPOINT [", 1), ("CMD ", 3), ("ENTRYPOINT ", 1)] {
        let lines = text.lines().map(str::trim_start);
        assert_eq!(lines.filter(|line| line.starts_with(key)).count(), count, "{key}");
    }
    assert!(text.contains(r#"CMD ["/asynclane", "inspect", "health"]"#));
    let (_, images) = text.split_once("FROM ${RUNTIME_IMAGE} AS runtime\n").unwrap();
    let stages = images.lines().filter(|line| line.starts_with("FROM "));
    let stages: Vec<&str> = stages.collect();
    assert_eq!(stages, ["FROM runtime AS cuda", "FROM runtime AS cpu"], "the last is the default");
}

#[test]
fn the_licence_is_the_one_the_manifest_names() {
    assert_eq!(value(&read("Cargo.toml"), "license ="), "Apache-2.0");
    assert!(read("LICENSE").contains("Apache License\n                           Version 2.0"));
    assert!(read("Dockerfile").contains("org.opencontainers.image.licenses=\"Apache-2.0\""));
}
