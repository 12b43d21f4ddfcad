//! The maximum width of a line of text.

use terminal_size::terminal_size_of;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthStr as _;

/// The maximum width of a line of text, in columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width(usize);

impl Width {
    /// No limit: output that a program reads must not depend on a terminal.
    pub const UNLIMITED: Self = Self(usize::MAX);
    /// Minimum width. Narrower terminals are treated as this wide, since no figure would fit.
    const MIN: usize = 20;

    /// Returns the width of a terminal with this number of columns.
    pub fn columns(columns: usize) -> Self {
        Self(columns.max(Self::MIN))
    }

    /// Returns the width of the terminal at standard output; unlimited if it is no terminal.
    pub fn of_stdout() -> Self {
        Self::of(std::io::stdout())
    }

    /// Returns the width of the terminal at standard error; unlimited if it is no terminal.
    pub fn of_stderr() -> Self {
        Self::of(std::io::stderr())
    }

    fn of(stream: impl std::os::fd::AsFd + std::io::IsTerminal) -> Self {
        let size = if stream.is_terminal() { terminal_size_of(stream) } else { None };
        size.map_or(Self::UNLIMITED, |(columns, _)| Self::columns(columns.0.into()))
    }

    /// Returns the smaller of this width and `columns`.
    #[must_use]
    pub fn at_most(self, columns: usize) -> Self {
        Self(self.0.min(columns))
    }

    /// Returns the number of columns.
    pub(crate) fn get(self) -> usize {
        self.0
    }

    /// Returns whether every line of `text` fits.
    pub fn fits(self, text: &str) -> bool {
        text.lines().all(|line| line.width() <= self.0)
    }

    /// Folds every line of `text` that is too long at spaces; the rest of the line is indented like its
    /// beginning. A word longer than a line stays whole, so that a path can be copied.
    pub fn fold(self, text: &str) -> String {
        text.lines().map(|line| self.fold_line(line) + "\n").collect()
    }

    fn fold_line(self, line: &str) -> String {
        if line.width() <= self.0 {
            return line.to_owned();
        }
        let body = line.trim_start();
        let hang = " ".repeat(line.len() - body.len() + hanging(body));
        let first = &line[..line.len() - body.len()];
        textwrap::fill(body, options(self.0).initial_indent(first).subsequent_indent(&hang))
    }
}

/// Returns the options that fold text at spaces only.
pub(super) fn options<'a>(columns: usize) -> Options<'a> {
    Options::new(columns)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
}

/// Returns how much more the second line of a paragraph is indented than its first one.
fn hanging(body: &str) -> usize {
    let leads = ["error: ", "help: ", "warning: ", "note: ", "- "];
    leads.iter().find(|lead| body.starts_with(**lead)).map_or(0, |lead| lead.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_at_spaces_and_keep_their_indentation() {
        let width = Width::columns(30);
        let path = "/a/path/that/is/longer/than/one/whole/line";
        let text =
            format!("short\n\n  two words and then some more of them\nnote: it is {path} and no other\n");
        assert_eq!(
            width.fold(&text),
            format!(
                "short\n\n  two words and then some more\n  of them\nnote: it is\n      {path}\n      and no other\n"
            )
        );
        assert_eq!(Width::UNLIMITED.fold(&text), text);
        assert_eq!(Width::columns(0), Width::columns(Width::MIN));
    }

    #[test]
    fn wide_letters_take_two_columns() {
        assert_eq!(Width::columns(20).fold("磁盘 磁盘 磁盘 磁盘 磁盘"), "磁盘 磁盘 磁盘 磁盘\n磁盘\n");
    }
}
