//! Checks the dependencies between crates.

use super::{Finding, source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Every crate with its direct dependencies; each crate follows its dependencies.
const DEPENDENCIES: [(&str, &[&str]); 16] = [
    ("model", &[]),
    ("policy", &["model"]),
    ("fs", &["model", "policy"]),
    ("map", &["model"]),
    ("flash", &["model", "policy"]),
    ("timing", &["model"]),
    ("trace", &["model"]),
    ("engine", &["map", "model", "policy"]),
    ("device", &["model", "timing"]),
    ("session", &["engine", "model", "policy"]),
    ("world", &["engine", "flash", "map", "model", "policy", "session", "timing"]),
    ("serve", &["device", "model", "session"]),
    ("sim", &["engine", "flash", "map", "model", "policy", "timing", "trace", "world"]),
    ("weir", &["device", "engine", "fs", "map", "model", "policy", "serve", "sim", "timing", "trace"]),
    ("python", &["model", "sim", "trace"]),
    ("xtask", &["engine", "model", "policy", "sim", "trace", "world"]),
];

const DRAWING_FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates: made by cargo xtask tidy --write -->\n";
const END: &str = "<!-- end of crates -->\n";

pub(super) fn check(root: &Path, write: bool) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for name in crate_names(root)? {
        let folder = folder(&name);
        let manifest = source::read(&root.join(&folder).join("Cargo.toml"))?;
        let found =
            workspace_dependencies(&manifest).map_err(|error| format!("{folder}/Cargo.toml: {error}"))?;
        findings.extend(differences(&name, &found));
    }
    let text = source::read(&root.join(DRAWING_FILE))?;
    let (before, rest) = text.split_once(BEGIN).ok_or(format!("{DRAWING_FILE} has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("{DRAWING_FILE} has no {END}"))?;
    let expected = format!("{before}{BEGIN}{}{END}{after}", drawing());
    if expected != text && write {
        std::fs::write(root.join(DRAWING_FILE), expected)
            .map_err(|error| format!("{DRAWING_FILE}: {error}"))?;
    } else if expected != text {
        let what = "the drawing of the crates is not up to date: cargo xtask tidy --write";
        findings.push(Finding::new(DRAWING_FILE, 0, what));
    }
    Ok(findings)
}

fn folder(name: &str) -> String {
    if name == "python" { name.to_owned() } else { format!("crates/{name}") }
}

fn crate_names(root: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(root.join("crates")).map_err(|error| error.to_string())?;
    let folders = entries.flatten().filter(|entry| entry.path().join("Cargo.toml").exists());
    let mut names: Vec<_> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.push("python".to_owned());
    names.sort();
    Ok(names)
}

/// Returns the workspace crates in a manifest's dependencies, without those for tests.
fn workspace_dependencies(manifest: &str) -> Result<BTreeSet<String>, toml::de::Error> {
    let manifest: toml::Table = toml::from_str(manifest)?;
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = dependencies.into_iter().flat_map(|table| table.keys());
    Ok(names.filter_map(|name| name.strip_prefix("weir-")).map(str::to_owned).collect())
}

fn differences(name: &str, found: &BTreeSet<String>) -> Vec<Finding> {
    let path = format!("{}/Cargo.toml", folder(name));
    let Some((_, needs)) = DEPENDENCIES.iter().find(|(of, _)| *of == name) else {
        return vec![Finding::new(path, 0, format!("{name} is not in the table of crates"))];
    };
    let needs: BTreeSet<_> = needs.iter().map(|need| (*need).to_owned()).collect();
    let more = found.difference(&needs).map(|need| format!("{name} may not need {need}"));
    let fewer = needs
        .difference(found)
        .map(|need| format!("{name} no longer needs {need}: take it out of the table"));
    more.chain(fewer).map(|what| Finding::new(&path, 0, what)).collect()
}

/// Draws the crates layer by layer from above; the direct dependencies of each are in brackets, which imply
/// those further below.
fn drawing() -> String {
    let needs: BTreeMap<_, _> = DEPENDENCIES.into_iter().collect();
    let mut floors: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (name, direct) in DEPENDENCIES {
        let implied: BTreeSet<_> =
            direct.iter().flat_map(|need| transitive_dependencies(&needs, need)).collect();
        let shown: Vec<_> = direct.iter().filter(|need| !implied.contains(*need)).copied().collect();
        let line = if shown.is_empty() { name.to_owned() } else { format!("{name} ({})", shown.join(", ")) };
        floors.entry(layer(&needs, name)).or_default().push(line);
    }
    let lines = floors.into_iter().rev().map(|(floor, crates)| format!("{floor}  {}\n", crates.join("   ")));
    format!("```text\n{}```\n", lines.collect::<String>())
}

fn transitive_dependencies<'a>(needs: &BTreeMap<&'a str, &'a [&'a str]>, name: &str) -> BTreeSet<&'a str> {
    let direct = needs.get(name).copied().unwrap_or_default();
    direct.iter().flat_map(|need| transitive_dependencies(needs, need).into_iter().chain([*need])).collect()
}

fn layer(needs: &BTreeMap<&str, &[&str]>, name: &str) -> usize {
    let direct = needs.get(name).copied().unwrap_or_default();
    direct.iter().map(|need| layer(needs, need) + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_table_is_in_order() {
        for (at, (name, needs)) in DEPENDENCIES.iter().enumerate() {
            let before: Vec<_> = DEPENDENCIES[..at].iter().map(|(name, _)| name).collect();
            assert!(needs.iter().all(|need| before.contains(&need)), "{name} needs what comes after it");
            assert!(needs.is_sorted(), "{name}");
        }
    }

    #[test]
    fn undeclared_and_unused_dependencies_are_found() {
        let manifest =
            "[dependencies]\nweir-model.workspace = true\nslab = \"1\"\n[dev-dependencies]\nweir-sim = \"1\"";
        let found = workspace_dependencies(manifest).expect("a manifest");
        assert_eq!(differences("map", &found), []);
        assert_eq!(differences("model", &found).len(), 1);
        assert_eq!(differences("engine", &found).len(), 2);
        assert_eq!(differences("nobody", &found).len(), 1);
    }
}
