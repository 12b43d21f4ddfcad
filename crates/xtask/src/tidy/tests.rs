//! Checks that the repository is tidy.

use super::*;

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let findings = findings(&root, false).expect("it is looked at");
    let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "cargo xtask tidy says:\n{}", told.join("\n"));
}
