//! Checks layers of modules: each module may depend only on modules in lower layers.

use super::modules::Dependencies;
use super::{EXCEPTIONS, Finding};
use std::collections::BTreeMap;

/// Layers from below, each with its modules; by the enclosing module, `weir` or `weir::commands`.
pub(super) type Layers = BTreeMap<String, Vec<Vec<String>>>;

pub(super) fn check(needs: &BTreeMap<String, Dependencies>, floors: &Layers) -> Vec<Finding> {
    let none = Dependencies::new();
    floors
        .iter()
        .flat_map(|(of, floors)| upward_dependencies(of, needs.get(of).unwrap_or(&none), floors))
        .collect()
}

fn upward_dependencies(of: &str, needs: &Dependencies, floors: &[Vec<String>]) -> Vec<Finding> {
    let floor = |module: &str| floors.iter().position(|floor| floor.iter().any(|one| one == module));
    let mut findings = Vec::new();
    let mut say =
        |what: String| findings.push(Finding::new(EXCEPTIONS, 0, format!("floors of {of}: {what}")));
    for module in floors.iter().flatten().filter(|module| !needs.contains_key(*module)) {
        say(format!("there is no module {module}"));
    }
    for (module, needed) in needs {
        let Some(at) = floor(module) else {
            say(format!("{module} is on none"));
            continue;
        };
        for needed in needed.iter().filter(|needed| floor(needed).is_some_and(|below| below >= at)) {
            say(format!("{module} needs {needed}, which is not below it"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{modules, source::Source};
    use super::*;

    #[test]
    fn upward_dependency_and_unlayered_module_are_found() {
        let files = [
            ("crates/one/src/a.rs", "use crate::b::B;"),
            ("crates/one/src/b.rs", ""),
            ("crates/one/src/c/d.rs", ""),
        ];
        let source = |(path, text): &(&str, &str)| Source::new("one", path, text).expect("it parses");
        let needs = modules::dependencies(&files.iter().map(source).collect::<Vec<_>>());
        let found = |floors: &[&[&str]]| {
            let floors =
                floors.iter().map(|floor| floor.iter().map(|&one| one.to_owned()).collect()).collect();
            check(&needs, &[("one".to_owned(), floors)].into()).len()
        };
        assert_eq!(found(&[&["b", "c"], &["a"]]), 0);
        assert_eq!(found(&[&["a"], &["b", "c"]]), 1, "upward");
        assert_eq!(found(&[&["a", "b", "c"]]), 1, "sideways");
        assert_eq!(found(&[&["b"], &["a"]]), 1, "c is nowhere");
        assert_eq!(found(&[&["b", "c"], &["a", "e"]]), 1, "there is no e");
    }
}
