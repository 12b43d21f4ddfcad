//! Finds dependencies between modules.
//!
//! A module depends on another one whose name occurs in a path in it, imported or spelled out; it stands for
//! all modules below it. Tests do not count. Not detected: calls of a type's methods that are defined in
//! another module, and paths in macro arguments.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Dependencies on sibling modules, by module.
pub(super) type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Returns the dependencies between sibling modules, by their parent: `weir` for those directly below the
/// root of the crate `weir`, `weir::commands` for those in its module `commands`.
pub(super) fn dependencies(sources: &[Source]) -> BTreeMap<String, Dependencies> {
    let mut all: BTreeMap<String, Dependencies> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_of_library()) {
        let module = source.module();
        let parent =
            |at: usize| [std::slice::from_ref(&source.crate_folder), &module[..at]].concat().join("::");
        for (at, name) in module.iter().enumerate() {
            all.entry(parent(at)).or_default().entry(name.clone()).or_default();
        }
        let mut paths = Paths { module: module.clone(), referenced: BTreeSet::new() };
        paths.visit_file(&source.syntax);
        for named in paths.referenced {
            // The dependency is at the level where the two paths differ.
            let at = module.iter().zip(&named).take_while(|(here, there)| here == there).count();
            if let (Some(here), Some(there)) = (module.get(at), named.get(at)) {
                let needs = all.entry(parent(at)).or_default().entry(here.clone()).or_default();
                needs.insert(there.clone());
            }
        }
    }
    for needs in all.values_mut() {
        let modules: BTreeSet<_> = needs.keys().cloned().collect();
        needs.values_mut().for_each(|named| named.retain(|name| modules.contains(name)));
    }
    all
}

/// Finds the paths of the crate that a file names.
struct Paths {
    /// Module of the file, and the inline modules being visited.
    module: Vec<String>,
    /// Named paths, from the crate's root.
    referenced: BTreeSet<Vec<String>>,
}

impl Paths {
    /// Adds a path as seen from this module.
    fn note(&mut self, path: &[String]) {
        let up = path.iter().take_while(|part| *part == "super").count();
        let from_root = match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("super") if up <= self.module.len() => {
                [&self.module[..self.module.len() - up], &path[up..]].concat()
            }
            _ => return,
        };
        self.referenced.insert(from_root);
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

impl<'ast> Visit<'ast> for Paths {
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
            self.module.push(module.ident.to_string());
            syn::visit::visit_item_mod(self, module);
            self.module.pop();
        }
    }
}

/// Reports whether an item is compiled only for tests.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let of_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(of_test)
}
