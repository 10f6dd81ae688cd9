//! Links in the folder of a model. What a link names would be read, and some of it shown to clients, such
//! as a chat template.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::http::is_digest;
use crate::exit;
use crate::names::shown;

/// Checks that no link in `folder` leads out of it, but into a cache of the Hub. The file `named` is not
/// asked about: its path was given.
///
/// # Errors
/// The first link, by name, and where it leads.
pub(super) fn check(folder: &Path, named: Option<&Path>) -> Result<()> {
    // Loading reports a folder that cannot be read.
    let Ok(whole) = folder.canonicalize() else {
        return Ok(());
    };
    // Files of a model lie in its folder or in this one.
    let folders = [whole.clone(), whole.join("additional_chat_templates")];
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    for entry in entries {
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if !is_link || named.is_some_and(|named| named.file_name() == Some(&entry.file_name())) {
            continue;
        }
        // A link that leads nowhere is a missing file.
        let Ok(target) = entry.path().canonicalize() else {
            continue;
        };
        if !target.starts_with(&whole) && !is_stored(&target) {
            let (link, target) = (entry.path(), target.display().to_string());
            let message = format!(
                "{}: expected a link inside of the model's folder or into the Hub's cache, found one to {}: \
                 replace the link by the file, a copy or a hard link",
                shown(&link.display().to_string()),
                shown(&target)
            );
            return Err(exit::failure(exit::CHECKPOINT, message));
        }
    }
    Ok(())
}

/// True if `path` is a content in a cache of the Hub.
fn is_stored(path: &Path) -> bool {
    let mut parts = path.iter().rev().map(|part| part.to_str().unwrap_or_default());
    let (content, blobs, repository) = (parts.next(), parts.next(), parts.next());
    content.is_some_and(is_digest)
        && blobs == Some("blobs")
        && repository.is_some_and(|name| name.starts_with("models--"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_leads_nowhere_but_into_the_folder_and_the_cache() {
        let root = std::env::temp_dir().join(format!("asynclane-links-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let folder = root.join("model");
        let blobs = root.join("hub/models--a--b/blobs");
        fs::create_dir_all(folder.join("..data")).unwrap();
        fs::create_dir_all(&blobs).unwrap();
        fs::write(folder.join("..data/config.json"), "{}").unwrap();
        fs::write(blobs.join("a".repeat(64)), "{}").unwrap();
        fs::write(blobs.join("secret"), "x").unwrap();
        // As Kubernetes mounts files, as the Hub stores them, and a missing one.
        symlink("..data/config.json", folder.join("config.json")).unwrap();
        symlink(blobs.join("a".repeat(64)), folder.join("tokenizer.json")).unwrap();
        symlink("missing", folder.join("merges.txt")).unwrap();
        check(&folder, None).unwrap();
        symlink(&folder, root.join("same")).unwrap();
        check(&root.join("same"), None).unwrap();

        let template = folder.join("chat_template.jinja");
        for target in [Path::new("/etc/passwd"), &blobs.join("secret"), Path::new("../hub")] {
            symlink(target, &template).unwrap();
            let refusal = check(&folder, None).unwrap_err().to_string();
            assert!(refusal.contains("chat_template.jinja: expected a link inside"), "{refusal}");
            let target = folder.join(target).canonicalize().unwrap();
            let end = format!(
                "found one to {}: replace the link by the file, a copy or a hard link",
                target.display()
            );
            assert!(refusal.ends_with(&end), "{refusal}");
            check(&folder, Some(Path::new("x/chat_template.jinja"))).unwrap();
            fs::remove_file(&template).unwrap();
        }
        let nested = folder.join("additional_chat_templates");
        fs::create_dir(&nested).unwrap();
        symlink("/etc/passwd", nested.join("tool_use.jinja")).unwrap();
        let refusal = check(&folder, None).unwrap_err().to_string();
        assert!(refusal.contains("tool_use.jinja: expected"), "{refusal}");
        fs::remove_dir_all(&root).unwrap();
    }
}
