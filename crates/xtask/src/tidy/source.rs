//! Reads and parses the repository's Rust files once.

use std::path::{Path, PathBuf};

/// A Rust file of a crate.
pub(super) struct Source {
    /// Folder of its crate.
    pub crate_folder: String,
    /// Path within the repository.
    pub path: PathBuf,
    pub text: String,
    pub syntax: syn::File,
}

impl Source {
    /// Creates a source from its text; also for tests.
    pub(super) fn new(of: &str, path: &str, text: &str) -> Result<Self, String> {
        let syntax = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self { crate_folder: of.to_owned(), path: path.into(), text: text.to_owned(), syntax })
    }

    /// Reports whether it is part of the crate itself, not of its tests, benchmarks or examples.
    pub(super) fn is_of_library(&self) -> bool {
        let parts: Vec<_> = self.path.iter().filter_map(|part| part.to_str()).collect();
        let is_test = |part: &&str| *part == "tests" || *part == "tests.rs" || *part == "benches";
        parts.get(2) == Some(&"src") && !parts.iter().any(is_test)
    }

    /// Returns its module path in the crate; empty for the crate's root.
    pub(super) fn module(&self) -> Vec<String> {
        let below = self.path.iter().skip(3).filter_map(|part| part.to_str());
        let mut parts: Vec<_> = below.map(|part| part.trim_end_matches(".rs").to_owned()).collect();
        if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            parts.pop();
        }
        parts
    }
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads all of `crates/`, in order.
pub(super) fn all(root: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for entry in walkdir::WalkDir::new(root.join("crates")).sort_by_file_name() {
        let entry = entry.map_err(|error| error.to_string())?;
        if entry.path().extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let path = entry.path().strip_prefix(root).map_err(|error| error.to_string())?;
        let of = path.iter().nth(1).and_then(|of| of.to_str()).unwrap_or_default();
        sources.push(Source::new(of, &path.display().to_string(), &read(entry.path())?)?);
    }
    Ok(sources)
}
