//! Checks for cyclic dependencies between modules.

use super::modules::Dependencies;
use super::{Exceptions, Finding, compare};
use std::collections::{BTreeMap, BTreeSet};

/// Checks the modules directly below each crate's root; for crates with layers, also those further down.
pub(super) fn check(needs: &BTreeMap<String, Dependencies>, exceptions: &Exceptions) -> Vec<Finding> {
    let has_floors =
        |of: &str| of.split("::").next().is_some_and(|name| exceptions.floors.contains_key(name));
    let checked = needs.iter().filter(|(of, _)| !of.contains("::") || has_floors(of));
    let in_circles = checked.map(|(of, needs)| (of.clone(), cycles(needs).iter().map(Vec::len).sum()));
    let numbers: BTreeMap<_, usize> = in_circles.filter(|(_, number)| *number > 0).collect();
    let mut findings = compare("modules in circles", &numbers, &exceptions.circles);
    for finding in &mut findings {
        let of = finding.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        for circle in needs.get(of).map(cycles).unwrap_or_default() {
            finding.what += &format!("\n    {}", circle.join(", "));
        }
    }
    findings
}

/// Returns the modules in cycles, each with the other modules of its cycle.
fn cycles(needs: &Dependencies) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        needs.keys().map(|from| (from, reachable(needs, from))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (module, reached) in &reach {
        let back = reached.iter().filter(|other| reach.get(**other).is_some_and(|r| r.contains(*module)));
        let circle: Vec<_> = back.map(|other| (*other).clone()).collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// Returns the modules that a module depends on, directly or indirectly.
fn reachable<'a>(needs: &'a Dependencies, from: &String) -> BTreeSet<&'a String> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        for next in needs.get(module).into_iter().flatten().filter(|next| needs.contains_key(*next)) {
            if found.insert(next) {
                left.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{modules, source::Source};
    use super::*;

    fn found_in(files: &[(&str, &str)], exceptions: &Exceptions) -> Vec<Finding> {
        let source = |(path, text): &(&str, &str)| Source::new("one", path, text).expect("it parses");
        let sources: Vec<_> = files.iter().map(source).collect();
        check(&modules::dependencies(&sources), exceptions)
    }

    fn found(files: &[(&str, &str)], excepted: usize) -> Vec<Finding> {
        let circles = [("one".to_owned(), excepted)].into();
        found_in(files, &Exceptions { circles, ..Exceptions::default() })
    }

    #[test]
    fn nested_cycle_counts_in_layered_crates() {
        let files = [
            ("crates/one/src/f/a.rs", "use super::b::B;"),
            ("crates/one/src/f/b/mod.rs", "use crate::f::a::A;"),
            ("crates/one/src/f/mod.rs", "use a::A;"),
        ];
        assert_eq!(found(&files, 0), []);
        let floors = [("one".to_owned(), Vec::new())].into();
        let findings = found_in(&files, &Exceptions { floors, ..Exceptions::default() });
        assert!(findings.len() == 1 && findings[0].what.contains("    a, b"), "{findings:?}");
    }

    #[test]
    fn cycle_is_found_for_every_path_style() {
        for back in [
            "use crate::a::A;",
            "use super::super::a::{self, A};",
            "fn f() { crate::a::g(); }",
            "use crate::{a, e};",
        ] {
            let files = [
                ("crates/one/src/a.rs", "use super::b::B;"),
                ("crates/one/src/b/d.rs", back),
                ("crates/one/src/c.rs", "use crate::a::A;"),
            ];
            assert_eq!(found(&files, 2), [], "{back}");
            let findings = found(&files, 0);
            assert!(findings.len() == 1 && findings[0].what.contains("    a, b"), "{back}: {findings:?}");
        }
    }

    #[test]
    fn acyclic_modules_have_no_findings() {
        for back in [
            "use super::c::C;",
            "#[cfg(test)]\nmod tests { use crate::a::A; }",
            "use crate::A;",
            "use other::a::A;",
        ] {
            let files = [("crates/one/src/a.rs", "use crate::b::B;"), ("crates/one/src/b/d.rs", back)];
            assert_eq!(found(&files, 0), [], "{back}");
        }
        let files =
            [("crates/one/src/a.rs", "use crate::b::B;"), ("crates/one/src/b/tests.rs", "use crate::a::A;")];
        assert_eq!(found(&files, 0), [], "a test");
    }
}
