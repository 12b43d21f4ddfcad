//! Checks the length of functions and files.

use super::source::Source;
use super::{EXCEPTIONS, Exceptions, Finding};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::Visit;

const FUNCTION_LINES_MAX: usize = 80;
const FILE_LINES_MAX: usize = 600;

pub(super) fn check(sources: &[Source], exceptions: &Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut files, mut functions) = (vec![0; exceptions.files.len()], vec![0; exceptions.functions.len()]);
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            match exceptions.files.iter().position(|file| file.path == source.path) {
                Some(at) => files[at] = lines,
                None => {
                    let what = format!("{lines} lines, more than {FILE_LINES_MAX}");
                    findings.push(Finding::new(&source.path, 0, what));
                }
            }
        }
        for FunctionLength { name, line, lines } in long_functions(source) {
            let excepted = exceptions.functions.iter().position(|f| f.path == source.path && f.name == name);
            match excepted {
                Some(at) => functions[at] = lines,
                None => {
                    let what = format!("{name} has {lines} lines, more than {FUNCTION_LINES_MAX}");
                    findings.push(Finding::new(&source.path, line, what));
                }
            }
        }
    }
    let differs = |path: &Path, name: &str, found: usize, excepted: usize, why: &str| {
        let what = format!("{} {name}: {found} lines, {excepted} stand here ({why})", path.display());
        (found != excepted).then(|| Finding::new(EXCEPTIONS, 0, what))
    };
    let of_files = exceptions.files.iter().zip(files);
    findings
        .extend(of_files.filter_map(|(file, found)| differs(&file.path, "", found, file.lines, &file.why)));
    let of_functions = exceptions.functions.iter().zip(functions);
    findings.extend(of_functions.filter_map(|(f, found)| differs(&f.path, &f.name, found, f.lines, &f.why)));
    findings
}

struct FunctionLength {
    name: String,
    line: usize,
    lines: usize,
}

fn long_functions(source: &Source) -> Vec<FunctionLength> {
    let mut functions = Functions(Vec::new());
    functions.visit_file(&source.syntax);
    functions.0
}

struct Functions(Vec<FunctionLength>);

impl Functions {
    fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        let lines = last + 1 - first;
        if lines > FUNCTION_LINES_MAX {
            self.0.push(FunctionLength { name: signature.ident.to_string(), line: first, lines });
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }
    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LongFile, LongFunction};
    use super::*;

    fn source(lines: usize) -> Source {
        let text = format!("impl A {{\n    fn f() {{\n{}    }}\n}}", "        g();\n".repeat(lines - 2));
        Source::new("one", "crates/one/src/lib.rs", &text).expect("it parses")
    }

    #[test]
    fn long_function_is_found() {
        let found = |lines| check(&[source(lines)], &Exceptions::default()).len();
        assert_eq!((found(FUNCTION_LINES_MAX), found(FUNCTION_LINES_MAX + 1)), (0, 1));
        // The source has two more lines around the function.
        assert_eq!((found(FILE_LINES_MAX - 2), found(FILE_LINES_MAX - 1)), (1, 2));
    }

    #[test]
    fn exception_must_match_exact_length() {
        let lines = FILE_LINES_MAX + 10;
        for (allowed, findings) in [(lines, 0), (lines + 1, 1), (lines - 1, 1)] {
            let (path, why) = (std::path::PathBuf::from("crates/one/src/lib.rs"), String::new());
            let function =
                LongFunction { path: path.clone(), name: "f".to_owned(), lines: allowed, why: why.clone() };
            let file = LongFile { path, lines: lines + 2, why };
            let exceptions =
                Exceptions { files: vec![file], functions: vec![function], ..Exceptions::default() };
            assert_eq!(check(&[source(lines)], &exceptions).len(), findings, "{allowed} allowed");
        }
    }
}
