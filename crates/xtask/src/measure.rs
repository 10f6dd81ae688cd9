//! The measure of the structure: counts that a reader feels, with the limits that tests hold.

mod linked;
mod mentions;
mod tasks;

use std::fmt;

use anyhow::Result;

use crate::imports::{Circle, circles, imports};
use crate::repository::{File, Repository};
use crate::rules::budgets::FILE_SOFT;
use crate::syntax::Function;

pub use linked::{LABORATORY, Linked, packages};
pub use tasks::Task;

/// Files and functions that a report lists.
const LONGEST: usize = 8;

/// The counts.
pub struct Measure {
    /// What a newcomer touches for five typical additions.
    pub tasks: Vec<Task>,
    /// The packages in the served binary.
    pub linked: Linked,
    /// Circles of imports among files, tests not counted.
    pub circles: Vec<Circle>,
    /// Path and lines of every file without its tests, the longest first.
    pub files: Vec<(String, usize)>,
    /// Path and size of every function outside tests, the longest first.
    pub functions: Vec<(String, Function)>,
}

/// Measures a repository.
///
/// # Errors
/// If cargo does not tell the packages of the binary.
pub fn measure(repository: &Repository) -> Result<Measure> {
    let files = &repository.files;
    Ok(Measure {
        tasks: tasks::tasks(files),
        linked: linked::linked(repository)?,
        circles: circles(&imports(files)),
        files: by_length(files),
        functions: functions(files),
    })
}

impl Measure {
    /// The circles that reach beyond one folder's parts.
    pub fn circles_across_folders(&self) -> impl Iterator<Item = &Circle> {
        let circles = self.circles.iter();
        circles.filter(|circle| !circle.is_within_a_folder())
    }

    /// The functions with a tuple among their parameters.
    pub fn bundles(&self) -> impl Iterator<Item = &(String, Function)> {
        let functions = self.functions.iter();
        functions.filter(|(_, it)| !it.of_trait && it.arguments > it.parameters)
    }
}

/// Lines of each Rust file without its tests.
fn by_length(files: &[File]) -> Vec<(String, usize)> {
    let shipped = files.iter().filter(|file| !file.is_test());
    let lines =
        shipped.filter_map(|file| Some((file.path.clone(), file.syntax()?.shipped_lines())));
    let mut lines: Vec<(String, usize)> = lines.collect();
    lines.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    lines
}

fn functions(files: &[File]) -> Vec<(String, Function)> {
    let shipped = files.iter().filter(|file| !file.is_test());
    let of_file = |file: &File| {
        let functions = file.syntax().map(|syntax| syntax.functions());
        let path = file.path.clone();
        let functions = functions.unwrap_or_default().into_iter();
        functions.map(move |function| (path.clone(), function))
    };
    let mut found: Vec<_> = shipped.flat_map(of_file).collect();
    found.sort_by_key(|(_, function)| std::cmp::Reverse(function.lines));
    found
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tasks of a newcomer: files touched besides the new one")?;
        for task in &self.tasks {
            write!(f, "{task}")?;
        }
        write!(f, "\n{}", self.linked)?;
        let across: Vec<&Circle> = self.circles_across_folders().collect();
        let (all, across_count) = (self.circles.len(), across.len());
        writeln!(
            f,
            "\ncircles of imports: {all}, across folders: {across_count}"
        )?;
        for circle in across {
            write!(f, "{circle}")?;
        }
        let over = self.files.iter().filter(|(_, lines)| *lines > FILE_SOFT);
        writeln!(f, "\nfiles over {FILE_SOFT} lines: {}", over.count())?;
        for (path, lines) in self.files.iter().take(LONGEST) {
            writeln!(f, "{lines:5} {path}")?;
        }
        writeln!(f, "\nlongest functions, in lines")?;
        for (path, function) in self.functions.iter().take(LONGEST) {
            writeln!(
                f,
                "{:5} {path}:{} {}",
                function.lines, function.line, function.name
            )?;
        }
        writeln!(
            f,
            "\nfunctions with a tuple parameter: {}",
            self.bundles().count()
        )?;
        let mut bundles: Vec<_> = self.bundles().collect();
        bundles.sort_by_key(|(_, function)| std::cmp::Reverse(function.arguments));
        for (path, function) in bundles.iter().take(LONGEST) {
            let (line, name) = (function.line, &function.name);
            writeln!(f, "{:5} {path}:{line} {name}", function.arguments)?;
        }
        Ok(())
    }
}
