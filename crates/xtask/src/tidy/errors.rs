//! Error messages: how they begin and end, and that the index of errors lists each that a user can meet.
//!
//! A message is that of an `#[error("...")]`, or the first text given to a `Failure` of `crates/weir`. The
//! index has it up to its first semicolon, behind which is the way out, with `...` for each value.

use super::source::{self, Source};
use super::{Finding, errors_index};
use std::collections::BTreeMap;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, Lit, LitStr, Meta};

/// Crates whose errors only tests and developers see.
const INTERNAL: [&str; 2] = ["world", "xtask"];

/// Words that begin with a capital letter wherever they stand.
const NAMES: [&str; 2] = ["I/O", "NBD"];

pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<Finding>, String> {
    let mut index = String::new();
    for page in errors_index::PAGES {
        index += &source::read(&root.join(page))?;
    }
    let index = plain_text(&index);
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_of_library()) {
        for (line, message) in messages(source) {
            let mut say = |what: String| findings.push(Finding::new(&source.path, line, what));
            if let Some(what) = style_violation(&message) {
                say(format!("{message:?} {what}"));
            }
            let listed = index_form(&message);
            let is_seen = !INTERNAL.contains(&source.crate_folder.as_str());
            let has_text = listed.chars().any(char::is_alphabetic);
            let is_excepted = errors_index::UNLISTED.iter().any(|(text, _)| *text == listed);
            if is_seen && has_text && !is_excepted && !index.contains(&plain_text(&listed)) {
                say(format!("{listed:?} is in none of {}", errors_index::PAGES.join(", ")));
            }
        }
    }
    Ok(findings)
}

/// What is wrong with the way a message begins or ends.
fn style_violation(message: &str) -> Option<&'static str> {
    let first = message.chars().next().unwrap_or_default();
    if first.is_uppercase() && !NAMES.iter().any(|name| message.starts_with(name)) {
        return Some("begins with a capital letter");
    }
    message.ends_with(['.', '!', '?']).then_some("ends like a sentence")
}

/// A message as the index has it: `...` for each value, and not the way out.
fn index_form(message: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0);
    for letter in message.chars() {
        match letter {
            '{' => {
                depth += 1;
                text += "...";
            }
            '}' => depth -= 1,
            letter if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    text.split("; ").next().unwrap_or_default().trim().to_owned()
}

/// A text without the breaks of its lines, and without the marks of code in a table.
fn plain_text(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The messages of a file, with their lines.
fn messages(source: &Source) -> BTreeMap<usize, String> {
    let mut found = Messages { is_program: source.crate_folder == "weir", found: BTreeMap::new() };
    found.visit_file(&source.syntax);
    found.found
}

struct Messages {
    is_program: bool,
    found: BTreeMap<usize, String>,
}

impl Messages {
    fn add(&mut self, text: &LitStr) {
        self.found.insert(text.span().start().line, text.value());
    }
}

impl<'a> Visit<'a> for Messages {
    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        if attribute.path().is_ident("error")
            && let Some(text) = first_text(list.tokens.clone())
        {
            self.add(&text);
        }
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if self.is_program && is_failure(&call.func) {
            let text = call.args.iter().find_map(|argument| match argument {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.clone()),
                    _ => None,
                },
                Expr::Macro(made) if made.mac.path.is_ident("format") => first_text(made.mac.tokens.clone()),
                _ => None,
            });
            // Where the message is a variable, the first text is the way out.
            let is_first =
                call.args.iter().position(|argument| matches!(argument, Expr::Lit(_) | Expr::Macro(_)));
            let at = if is_new(&call.func) { 1 } else { 0 };
            if let Some(text) = text.filter(|_| is_first == Some(at)) {
                self.add(&text);
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, module);
        }
    }
}

fn first_text(tokens: proc_macro2::TokenStream) -> Option<LitStr> {
    syn::parse2(tokens.into_iter().take(1).collect()).ok()
}

/// Whether this makes a `Failure`.
fn is_failure(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    let names: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    matches!(names.as_slice(), [of, name] if of == "Failure"
        && ["usage", "refused", "environment", "new"].contains(&name.as_str()))
}

fn is_new(function: &Expr) -> bool {
    matches!(function, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "new"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = Source::new("weir", "crates/weir/src/one.rs", text).expect("it parses");
        messages(&source).into_values().collect()
    }

    #[test]
    fn messages_of_attributes_and_of_failures_are_found() {
        let text = "enum E {\n#[error(\"a {}; b\", 1)]\nA,\n#[error(transparent)]\nB(X),\n}\n\
                    fn f() {\nFailure::usage(format!(\"c {x}\"), \"help\");\n\
                    Failure::new(kind, \"d\", \"\");\n\
                    Failure::refused(message, \"help\");\nFailure::new(kind, message, \"help\");\n}\n\
                    #[cfg(test)]\nmod tests { fn f() { Failure::usage(\"e\", \"\"); } }";
        assert_eq!(found(text), ["a {}; b", "c {x}", "d"]);
    }

    #[test]
    fn messages_are_compared_without_values_and_way_out() {
        assert_eq!(index_form("device {} ({size}): {}; do that"), "device ... (...): ...");
        assert_eq!(plain_text("| a `b`\n c |"), "| a b c |");
    }

    #[test]
    fn messages_begin_small_and_end_without_a_stop() {
        assert_eq!(
            (style_violation("a file is gone"), style_violation("{x} is gone"), style_violation("NBD fails")),
            (None, None, None)
        );
        assert!(
            style_violation("A file is gone").is_some()
                && style_violation("is it so?").is_some()
                && style_violation("so.").is_some()
        );
    }
}
