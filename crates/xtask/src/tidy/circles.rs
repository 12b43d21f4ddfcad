//! Modules that need each other in a circle.
//!
//! A module is what stands directly below a crate's root, with all below it. It needs another one whose name is in a
//! path in it, be it imported or spelled out. Tests do not count. Not seen: what a type's methods in one module call
//! of those in another, and paths within macros' arguments.

use super::source::Source;
use super::{Finding, compare};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// By module, those it needs.
type Needs = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(sources: &[Source], excepted: &BTreeMap<String, usize>) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Needs> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_of_library()) {
        let module = source.module();
        let Some(top) = module.first() else { continue };
        let mut paths = Paths { module: &module, needs: BTreeSet::new() };
        paths.visit_file(&source.syntax);
        crates.entry(&source.of).or_default().entry(top.clone()).or_default().extend(paths.needs);
    }
    let in_circles = crates.iter().map(|(name, needs)| ((*name).to_owned(), circles(needs)));
    let numbers = in_circles.map(|(name, circles)| (name, circles.iter().map(Vec::len).sum::<usize>()));
    let numbers: BTreeMap<_, usize> = numbers.filter(|(_, number)| *number > 0).collect();
    let mut findings = compare("modules in circles", &numbers, excepted);
    for finding in &mut findings {
        let name = finding.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        for circle in crates.get(name).map(circles).unwrap_or_default() {
            finding.what += &format!("\n    {}", circle.join(", "));
        }
    }
    findings
}

/// The modules that need themselves by way of others, with those they share their circles with.
fn circles(needs: &Needs) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        needs.keys().map(|from| (from, reached(needs, from))).collect();
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

/// What a module needs, directly or not.
fn reached<'a>(needs: &'a Needs, from: &String) -> BTreeSet<&'a String> {
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

/// Finds the modules of the crate that are named in a file.
struct Paths<'a> {
    module: &'a [String],
    needs: BTreeSet<String>,
}

impl Paths<'_> {
    /// A path from this file's module.
    fn note(&mut self, path: &[String]) {
        let up = path.iter().take_while(|part| *part == "super").count();
        let down = match path.first().map(String::as_str) {
            Some("crate") => path.get(1),
            // As many modules up as there are: the crate's root.
            Some("super") if up == self.module.len() => path.get(up),
            _ => None,
        };
        if let Some(module) = down.filter(|module| **module != self.module[0]) {
            self.needs.insert(module.clone());
        }
    }

    fn note_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.note_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.note_tree(before, tree)),
            syn::UseTree::Name(name) => self.note(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.note(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note(&parts);
        syn::visit::visit_path(self, path);
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.note_tree(&[], &item.tree);
        }
    }
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

/// Whether it is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let of_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(of_test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], excepted: usize) -> Vec<Finding> {
        let source = |(path, text): &(&str, &str)| Source::new("one", path, text).expect("it parses");
        let sources: Vec<_> = files.iter().map(source).collect();
        check(&sources, &[("one".to_owned(), excepted)].into())
    }

    #[test]
    fn a_circle_is_found_however_its_paths_are_spelled() {
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
    fn what_is_no_circle_is_none() {
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
