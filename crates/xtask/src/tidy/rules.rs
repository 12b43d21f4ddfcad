//! Checks `docs/internals/invariants.md`: its rules are numbered in order, the files it names exist, and code
//! refers only to existing rules.

use super::source::Source;
use super::{Finding, source};
use std::path::Path;

const RULES: &str = "docs/internals/invariants.md";

pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<Finding>, String> {
    let text = source::read(&root.join(RULES))?;
    let (rules, mut findings) = numbered(&text);
    for (number, line) in (1..).zip(text.lines()) {
        for path in paths(line).filter(|path| !root.join("crates").join(path).exists()) {
            findings.push(Finding::new(RULES, number, format!("crates/{path} does not exist")));
        }
    }
    for source in sources {
        for (number, line) in (1..).zip(source.text.lines()) {
            let named = line.trim_start().strip_prefix("//").map(referenced_rules).unwrap_or_default();
            for rule in named.into_iter().filter(|rule| !(1..=rules).contains(rule)) {
                findings.push(Finding::new(&source.path, number, format!("{RULES} has no rule {rule}")));
            }
        }
    }
    Ok(findings)
}

/// Counts the rules, and checks that their numbers are consecutive.
fn numbered(text: &str) -> (usize, Vec<Finding>) {
    let (mut rules, mut findings) = (0, Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let number = text.strip_prefix("**").and_then(|rest| rest.split_once('.')).map(|(number, _)| number);
        let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) else { continue };
        rules += 1;
        if number != rules {
            findings.push(Finding::new(RULES, line, format!("rule {number} where {rules} is next")));
        }
    }
    (rules, findings)
}

/// Returns the files that a line names, below `crates`: `map/src/{places,narrow}.rs` is two.
fn paths(line: &str) -> impl Iterator<Item = String> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.contains("/src/") || name.contains("/tests/")).flat_map(|name| {
        match name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            Some((before, (all, after))) => {
                all.split(',').map(|one| format!("{before}{one}{after}")).collect::<Vec<_>>()
            }
            None => vec![name.to_owned()],
        }
    })
}

/// Returns the rules that a comment refers to.
fn referenced_rules(comment: &str) -> Vec<usize> {
    let after = comment.split("ule ").skip(1);
    let digits = after.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_numbered_in_order_and_name_their_files() {
        assert_eq!(numbered("**1. One.**\ntext\n**2. Two.**"), (2, vec![]));
        assert_eq!(numbered("**1. One.**\n**3. Three.**").1.len(), 1);
        let line = "*Where:* `map/src/{a,b}.rs`, `map/src/check/` and `rest`.";
        assert_eq!(paths(line).collect::<Vec<_>>(), ["map/src/a.rs", "map/src/b.rs", "map/src/check/"]);
        assert_eq!(
            referenced_rules(" Rule 3 of docs/internals/invariants.md, as (rule 12) and the rule of three"),
            [3, 12]
        );
    }
}
