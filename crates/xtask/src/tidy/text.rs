//! Checks for lines that are too wide, and comments that cannot be understood from the repository.

use super::source::Source;
use super::{Exceptions, Finding, compare};
use std::collections::BTreeMap;

/// The width in `rustfmt.toml`, which does not apply to comments.
const WIDTH: usize = 110;

/// Phrases that refer to sources outside the repository, or to rules without a number. A comment should name
/// the paper and its section, or the number of a rule of `docs/internals/invariants.md`.
const EXTERNAL_REFERENCES: [(&str, &str); 3] = [
    ("mechanisms", "give the paper and its section"),
    ("the seed gives", "give the paper and its section"),
    ("safety rule", "give the rule's number in docs/internals/invariants.md: (rule N)"),
];

pub(super) fn check(sources: &[Source], exceptions: &Exceptions) -> Vec<Finding> {
    let (mut wide, mut ellipses) = (BTreeMap::new(), BTreeMap::new());
    let mut findings = Vec::new();
    for source in sources {
        for (number, line) in (1..).zip(source.text.lines()) {
            if line.chars().count() > WIDTH {
                *wide.entry(source.crate_folder.clone()).or_insert(0) += 1;
            }
            let Some(comment) = comment(line) else { continue };
            if comment.starts_with('…') || comment.starts_with("...") {
                *ellipses.entry(source.crate_folder.clone()).or_insert(0) += 1;
            }
            let lower = comment.to_lowercase();
            for (phrase, instead) in EXTERNAL_REFERENCES.iter().filter(|(phrase, _)| lower.contains(phrase)) {
                findings.push(Finding::new(&source.path, number, format!("\"{phrase}\": {instead}")));
            }
        }
    }
    findings.extend(compare(&format!("lines wider than {WIDTH}"), &wide, &exceptions.wide_lines));
    findings.extend(compare("comments that begin with an ellipsis", &ellipses, &exceptions.ellipses));
    findings
}

/// Returns the text of a comment line; `None` for other lines.
fn comment(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("//")?;
    Some(rest.trim_start_matches(['/', '!']).trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        let source = Source::new("one", "crates/one/src/lib.rs", text).expect("it parses");
        check(&[source], &Exceptions::default())
    }

    #[test]
    fn external_references_are_found() {
        let wide = format!("// {}\nfn f() {{}}", "x".repeat(WIDTH));
        for text in [
            "/// … and more.\nfn f() {}",
            "//! See mechanisms, section 2.",
            "// Safety rule 1.\nfn f() {}",
            &wide,
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        let fine = format!(
            "/// And … more (rule 1).\nfn f() {{ let _ = \"mechanisms\"; }}\n//{}",
            "x".repeat(WIDTH - 2)
        );
        assert_eq!(found(&fine), []);
    }

    #[test]
    fn oversized_exception_is_a_finding() {
        let source = Source::new("one", "crates/one/src/lib.rs", "// … so.\nfn f() {}").expect("it parses");
        for (allowed, findings) in [(0, 1), (1, 0), (2, 1)] {
            let ellipses = [("one".to_owned(), allowed)].into();
            let exceptions = Exceptions { ellipses, ..Exceptions::default() };
            assert_eq!(
                check(std::slice::from_ref(&source), &exceptions).len(),
                findings,
                "{allowed} allowed"
            );
        }
    }
}
