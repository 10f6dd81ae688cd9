//! The modules of one crate, and what a path in one of them means.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, UseTree};

use crate::repository::File;
use crate::syntax::is_test_item;

/// Words of a path.
type Path = Vec<String>;

/// Re-exports that one name may pass through.
const DEPTH: usize = 12;

/// The modules of one crate by their paths; the root's path is empty.
pub(super) struct Modules {
    pub all: BTreeMap<Path, Module>,
}

/// A module outside tests.
#[derive(Default)]
pub(super) struct Module {
    /// Path of its file.
    pub file: String,
    /// Its items, inline modules included.
    pub body: Vec<Item>,
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    /// Imported names and the paths behind them.
    uses: BTreeMap<String, Path>,
    globs: Vec<Path>,
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Module(Path),
    /// An item of this file.
    Item(String),
}

impl Modules {
    /// The modules that `root` declares, directly or not.
    pub fn of_crate(root: &File, files: &[File]) -> Self {
        let by_path: BTreeMap<&str, &File> =
            files.iter().map(|file| (file.path.as_str(), file)).collect();
        let mut modules = Self { all: BTreeMap::new() };
        let body = root.syntax().map(|syntax| syntax.tree.items.clone());
        let mut open = vec![(Path::new(), root.path.clone(), body.unwrap_or_default())];
        while let Some((path, file, body)) = open.pop() {
            for item in body.iter().filter(|item| !is_test_item(item)) {
                let Item::Mod(declared) = item else { continue };
                let name = declared.ident.to_string();
                let child = [&path[..], std::slice::from_ref(&name)].concat();
                match &declared.content {
                    Some((_, items)) => open.push((child, file.clone(), items.clone())),
                    None => {
                        let found = places(root, &child)
                            .iter()
                            .find_map(|place| by_path.get(place.as_str()).copied());
                        if let Some((found, syntax)) =
                            found.and_then(|found| Some((found, found.syntax()?)))
                        {
                            open.push((child, found.path.clone(), syntax.tree.items.clone()));
                        }
                    }
                }
            }
            let module = Module::new(file, body);
            modules.all.insert(path, module);
        }
        modules
    }

    /// The file that defines what the path `name` means in `module`; `None` outside the crate.
    pub fn file_of(&self, module: &[String], name: &[String]) -> Option<String> {
        match self.resolve(module, name, DEPTH)? {
            Target::Module(path) => Some(self.all.get(&path)?.file.clone()),
            Target::Item(file) => Some(file),
        }
    }

    fn resolve(&self, module: &[String], name: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = name.split_first()?;
        match first.as_str() {
            "crate" => self.within(&[], rest, depth),
            "self" => self.within(module, rest, depth),
            "super" => {
                let (_, parent) = module.split_last()?;
                // Further `super`s count from the parent.
                match rest.first().is_some_and(|next| next == "super") {
                    true => self.resolve(parent, rest, depth),
                    false => self.within(parent, rest, depth),
                }
            }
            _ => self.known(module, name, depth),
        }
    }

    /// The target of `name` in a module, which takes unknown names for its own items.
    fn within(&self, module: &[String], name: &[String], depth: usize) -> Option<Target> {
        if name.is_empty() {
            return Some(Target::Module(module.to_vec()));
        }
        let found = self.all.get(module)?;
        let own = || {
            // A name that leads out of the crate, imported here or in a child, is not the module's own.
            let first = &name[0];
            let foreign = found.uses.contains_key(first) || found.children.contains(first);
            (!foreign).then(|| Target::Item(found.file.clone()))
        };
        self.known(module, name, depth).or_else(own)
    }

    /// The target of `name` if the module declares, imports or glob-imports its first word.
    fn known(&self, module: &[String], name: &[String], depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let found = self.all.get(module)?;
        let (first, rest) = name.split_first()?;
        if found.children.contains(first) {
            let child = [module, std::slice::from_ref(first)].concat();
            return self.within(&child, rest, depth);
        }
        if found.items.contains(first) {
            return Some(Target::Item(found.file.clone()));
        }
        if let Some(path) = found.uses.get(first) {
            // `use crate::a;` names itself only where `a` comes from outside.
            let path = [path, rest].concat();
            return (path[..] != *name).then(|| self.resolve(module, &path, depth))?;
        }
        found.globs.iter().find_map(|glob| match self.resolve(module, glob, depth)? {
            Target::Module(path) if path != module => self.known(&path, name, depth),
            _ => None,
        })
    }
}

impl Module {
    fn new(file: String, body: Vec<Item>) -> Self {
        let mut module = Self { file, ..Self::default() };
        for item in body.iter().filter(|item| !is_test_item(item)) {
            module.declare(item);
        }
        module.body = body;
        module
    }

    fn declare(&mut self, item: &Item) {
        let name = match item {
            Item::Const(it) => &it.ident,
            Item::Enum(it) => &it.ident,
            Item::Fn(it) => &it.sig.ident,
            Item::Static(it) => &it.ident,
            Item::Struct(it) => &it.ident,
            Item::Trait(it) => &it.ident,
            Item::Type(it) => &it.ident,
            Item::Union(it) => &it.ident,
            Item::Mod(it) => {
                self.children.insert(it.ident.to_string());
                return;
            }
            Item::Use(it) => {
                let (names, globs) = flatten(&it.tree);
                self.uses.extend(names);
                self.globs.extend(globs);
                return;
            }
            _ => return,
        };
        self.items.insert(name.to_string());
    }
}

/// The imported names with their paths, and the paths of glob imports.
pub(super) fn flatten(tree: &UseTree) -> (Vec<(String, Path)>, Vec<Path>) {
    let (mut names, mut globs) = (Vec::new(), Vec::new());
    let mut open = vec![(Path::new(), tree)];
    while let Some((mut path, tree)) = open.pop() {
        match tree {
            UseTree::Path(it) => {
                path.push(it.ident.to_string());
                open.push((path, &it.tree));
            }
            UseTree::Name(it) if it.ident == "self" => {
                names.push((path.last().cloned().unwrap_or_default(), path));
            }
            UseTree::Name(it) => {
                path.push(it.ident.to_string());
                names.push((it.ident.to_string(), path));
            }
            UseTree::Rename(it) => {
                if it.ident != "self" {
                    path.push(it.ident.to_string());
                }
                names.push((it.rename.to_string(), path));
            }
            UseTree::Glob(_) => globs.push(path),
            UseTree::Group(it) => open.extend(it.items.iter().map(|tree| (path.clone(), tree))),
        }
    }
    (names, globs)
}

/// The files that may hold a module.
fn places(root: &File, module: &[String]) -> [String; 2] {
    let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let name = module.join("/");
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
}
