//! Tables that fit the terminal: no cell is ever broken inside a word or a number.

use super::width::{Width, options};
use comfy_table::{ContentArrangement, Table as Grid, presets};
use std::collections::BTreeSet;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Columns of text between two columns of a table.
const GAP: usize = 2;
/// Minimum width to which sentences are folded.
const PROSE_MIN: usize = 24;
/// Minimum width to which names in the first column are shortened.
const NAME_MIN: usize = 12;

/// Where the table puts columns that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spill {
    /// In lines below their row, each cell with its heading.
    Below,
    /// Nowhere; a line below the table names them.
    LeftOut,
    /// Nowhere; the table does not mention them.
    Dropped,
}

/// A table with a heading row. If it does not fit, it does the following in this order: it folds sentences,
/// shortens long names in the middle (first column only), and removes columns, the least important first, but
/// never the first column.
#[derive(Debug)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The column that holds sentences.
    prose: Option<usize>,
    /// Columns that are removed before the others, in this order.
    removed_first: Vec<usize>,
    spill: Spill,
}

/// The columns that a table shows, and their widths.
struct Layout {
    /// Columns shown, in their order.
    columns: Vec<usize>,
    /// Maximum width of a name in the first column.
    name: usize,
    /// Maximum width of sentences.
    prose: usize,
}

impl Table {
    /// Creates a table whose rows have as many cells as its heading. If columns do not fit, the rightmost is
    /// removed first.
    pub fn new(
        heading: impl IntoIterator<Item = impl ToString>,
        rows: impl IntoIterator<Item = impl IntoIterator<Item = impl ToString>>,
    ) -> Self {
        let text = |cell: &dyn ToString| cell.to_string();
        Self {
            heading: heading.into_iter().map(|cell| text(&cell)).collect(),
            rows: rows.into_iter().map(|row| row.into_iter().map(|cell| text(&cell)).collect()).collect(),
            prose: None,
            removed_first: Vec::new(),
            spill: Spill::Below,
        }
    }

    /// Declares that the column with this heading holds sentences, which may be folded at spaces.
    #[must_use]
    pub fn prose(self, heading: &str) -> Self {
        Self { prose: self.position(heading), ..self }
    }

    /// Declares that this column, counted from 0, holds sentences.
    #[must_use]
    pub fn prose_at(self, column: usize) -> Self {
        Self { prose: Some(column), ..self }
    }

    /// Declares columns that are removed before all others, in this order.
    #[must_use]
    pub fn removed_first(self, headings: &[&str]) -> Self {
        let first_out = headings.iter().filter_map(|heading| self.position(heading)).collect();
        Self { removed_first: first_out, ..self }
    }

    /// Sets where columns go that do not fit.
    #[must_use]
    pub fn spill(self, spill: Spill) -> Self {
        Self { spill, ..self }
    }

    fn position(&self, heading: &str) -> Option<usize> {
        let at = self.heading.iter().position(|known| known == heading);
        debug_assert!(at.is_some(), "no column {heading:?} in {:?}", self.heading);
        at
    }

    /// Returns the table as lines that fit `width`.
    pub fn text(&self, width: Width) -> String {
        let layout = self.layout(width.get());
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        grid.set_header(layout.columns.iter().map(|column| &self.heading[*column]));
        for row in &self.rows {
            grid.add_row(layout.columns.iter().map(|column| self.cell(row, *column, &layout)));
        }
        for column in grid.column_iter_mut() {
            column.set_padding((0, GAP as u16));
        }
        let mut lines = grid.lines().map(|line| line.trim_end().to_owned() + "\n");
        let mut text = lines.next().unwrap_or_default();
        for row in &self.rows {
            text.extend(lines.by_ref().take(self.height(row, &layout)));
            text += &self.below(row, &layout, width);
        }
        text + &width.fold(&self.footnote(&layout))
    }

    /// Chooses the columns to show, and their widths.
    fn layout(&self, width: usize) -> Layout {
        let mut layout =
            Layout { columns: (0..self.heading.len()).collect(), name: usize::MAX, prose: usize::MAX };
        if self.fits(&mut layout, width) {
            return layout;
        }
        if self.prose != Some(0) {
            layout.name =
                (width / 3).max(NAME_MIN).max(self.heading.first().map_or(0, |first| first.width()));
        }
        while !self.fits(&mut layout, width) {
            let shown = |column: &&usize| layout.columns.contains(column);
            let rightmost = || layout.columns[1..].iter().rev();
            let out = self.removed_first.iter().find(shown);
            let out = out.or_else(|| rightmost().find(|column| self.prose != Some(**column)));
            let Some(out) = out.or_else(|| rightmost().next()).copied() else {
                // A name alone may take the whole line.
                (layout.name, layout.prose) = (width, width);
                break;
            };
            layout.columns.retain(|column| *column != out);
        }
        // Names get the space that is left, so that they are shortened no more than necessary.
        if layout.columns.len() > 1 && layout.name < usize::MAX && layout.prose == usize::MAX {
            layout.name = self.width(0, &layout) + width.saturating_sub(self.total_width(&layout));
        }
        layout
    }

    /// Returns the total width of all columns, gaps included.
    fn total_width(&self, layout: &Layout) -> usize {
        let gaps = GAP * (layout.columns.len().max(1) - 1);
        layout.columns.iter().map(|column| self.width(*column, layout)).sum::<usize>() + gaps
    }

    /// Returns whether the columns fit; sets the width of sentences if they must be folded.
    fn fits(&self, layout: &mut Layout, width: usize) -> bool {
        layout.prose = usize::MAX;
        let all = self.total_width(layout);
        if all <= width {
            return true;
        }
        let Some(prose) = self.prose.filter(|prose| layout.columns.contains(prose)) else { return false };
        let left = (width + self.width(prose, layout)).saturating_sub(all);
        layout.prose = left;
        left >= PROSE_MIN && self.total_width(layout) <= width
    }

    /// Returns the width of a column.
    fn width(&self, column: usize, layout: &Layout) -> usize {
        let cells = self.rows.iter().map(|row| self.cell(row, column, layout));
        let widest = |cell: &str| cell.lines().map(str::width).max().unwrap_or(0);
        cells.map(|cell| widest(&cell)).max().unwrap_or(0).max(self.heading[column].width())
    }

    /// Returns a cell as it is shown, which may have several lines.
    fn cell(&self, row: &[String], column: usize, layout: &Layout) -> String {
        let Some(text) = row.get(column) else { return String::new() };
        if self.prose == Some(column) && layout.prose < usize::MAX {
            return textwrap::fill(text, options(layout.prose));
        }
        if column == 0 { shortened(text, layout.name) } else { text.clone() }
    }

    /// Returns the number of lines of a row, without those below it.
    fn height(&self, row: &[String], layout: &Layout) -> usize {
        layout
            .columns
            .iter()
            .map(|column| self.cell(row, *column, layout).lines().count())
            .fold(1, usize::max)
    }

    /// Returns the lines below a row, with the cells of its columns that do not fit.
    fn below(&self, row: &[String], layout: &Layout, width: Width) -> String {
        if self.spill != Spill::Below {
            return String::new();
        }
        let hidden = (0..self.heading.len()).filter(|column| !layout.columns.contains(column));
        let cell = |column: usize| {
            let cell = row.get(column).filter(|cell| !cell.is_empty())?;
            Some(format!("{} {cell}", self.heading[column]).trim_start().to_owned())
        };
        let mut lines: Vec<String> = Vec::new();
        for cell in hidden.filter_map(cell) {
            if cell.contains('\n') {
                lines.extend(cell.lines().map(|line| format!("  {line}")));
                continue;
            }
            match lines.last_mut() {
                Some(line) if line.width() + cell.width() < width.get().saturating_sub(2) => {
                    *line += &format!("   {cell}");
                }
                _ => lines.push(format!("  {cell}")),
            }
        }
        lines.iter().map(|line| width.fold(line)).collect()
    }

    /// Returns the line that names what the table does not show.
    fn footnote(&self, layout: &Layout) -> String {
        if self.spill == Spill::Dropped {
            return String::new();
        }
        let hidden = (0..self.heading.len()).filter(|column| !layout.columns.contains(column));
        let hidden = hidden.filter(|_| self.spill == Spill::LeftOut);
        let mut hidden: Vec<_> = hidden.map(|column| self.heading[column].as_str()).collect();
        let names: BTreeSet<_> = self.rows.iter().filter_map(|row| row.first()).collect();
        if names.iter().any(|name| name.width() > layout.name) {
            hidden.push("whole names");
        }
        match hidden.is_empty() {
            true => String::new(),
            false => format!("(--wide also shows {})\n", hidden.join(", ")),
        }
    }
}

/// Shortens a name to `most` columns of text: its beginning and its end remain.
fn shortened(name: &str, most: usize) -> String {
    if name.width() <= most {
        return name.to_owned();
    }
    let part = |letters: &mut dyn Iterator<Item = char>, most: usize| {
        let mut taken = 0;
        let fits = |letter: &char| {
            taken += letter.width().unwrap_or(0);
            taken <= most
        };
        letters.take_while(fits).collect::<String>()
    };
    let end: String = part(&mut name.chars().rev(), (most - 1) / 2).chars().rev().collect();
    format!("{}…{end}", part(&mut name.chars(), most - 1 - (most - 1) / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn devices() -> Table {
        let heading = ["DEVICE", "CLASS", "USED", "OF", "READS", "NOTES"];
        let row = ["fast", "ssd", "1.5 GiB", "100 GiB", "123456 in 80.0 us", "metadata, paced as nvm"];
        Table::new(heading, [row])
    }

    #[test]
    fn columns_that_do_not_fit_go_below_the_row() {
        let whole = "DEVICE  CLASS  USED     OF       READS              NOTES\n\
                     fast    ssd    1.5 GiB  100 GiB  123456 in 80.0 us  metadata, paced as nvm\n";
        assert_eq!(devices().text(Width::UNLIMITED), whole);
        assert_eq!(devices().text(Width::columns(74)), whole);
        assert_eq!(
            devices().text(Width::columns(40)),
            "DEVICE  CLASS  USED     OF\n\
             fast    ssd    1.5 GiB  100 GiB\n  READS 123456 in 80.0 us\n  NOTES metadata, paced as nvm\n"
        );
        let first_out = devices().removed_first(&["CLASS"]).text(Width::columns(70));
        assert!(first_out.starts_with("DEVICE  USED     OF "), "{first_out}");
    }

    #[test]
    fn omitted_columns_are_named() {
        let text = devices().spill(Spill::LeftOut).text(Width::columns(48));
        assert!(text.ends_with("(--wide also shows READS, NOTES)\n"), "{text}");
    }

    #[test]
    fn sentences_are_folded_in_their_column() {
        let table = Table::new(["NAME", "WHAT IT IS"], [["lru", "the block that was used longest ago goes"]]);
        assert_eq!(
            table.prose("WHAT IT IS").text(Width::columns(32)),
            "NAME  WHAT IT IS\nlru   the block that was used\n      longest ago goes\n"
        );
    }

    #[test]
    fn sentences_are_folded_before_names_are_shortened() {
        let table =
            Table::new(["", ""], [["coefficient of variation of gaps", "1.00, where Poisson's is 1"]]);
        let text = table.prose_at(1).text(Width::columns(59));
        assert_eq!(
            text,
            "\ncoefficient of variation of gaps  1.00, where Poisson's is\n                                  1\n"
        );
    }

    #[test]
    fn long_names_are_shortened_in_the_middle_with_a_note() {
        let name = "nvme-SAMSUNG_MZVL21T0HCLR-00BL7_S64NNX0T123456-part1";
        let text = Table::new(["DEVICE", "USED", "OF"], [[name, "1 TiB", "2 TiB"]]).text(Width::columns(60));
        assert!(text.contains("1 TiB") && text.contains("-part1  1 TiB  2 TiB"), "{text}");
        assert!(
            text.lines().nth(1).is_some_and(|line| line.width() == 60),
            "names take what is left:\n{text}"
        );
        assert!(text.ends_with("(--wide also shows whole names)\n"), "{text}");
        assert_eq!(shortened("磁盘磁盘磁盘", 7), "磁…盘");
        assert_eq!(shortened("abcdefgh", 5), "ab…gh");
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_no_word_is_broken(
            cells in prop::collection::vec(prop::collection::vec("[a-z0-9磁]{0,9}( [a-z0-9]{1,6}){0,3}", 5), 1..6),
            columns in 24usize..120,
            is_left_out: bool,
            has_prose: bool,
        ) {
            let mut table = Table::new(["ONE", "TWO", "THREE", "FOUR", "FIVE"], &cells);
            if has_prose {
                table = table.prose("FIVE");
            }
            table = table.spill(if is_left_out { Spill::LeftOut } else { Spill::Below });
            let text = table.text(Width::columns(columns));
            for line in text.lines() {
                prop_assert!(line.width() <= columns.max(24), "{} columns: {:?}", line.width(), line);
            }
            let shown: BTreeSet<_> = text.split_whitespace().collect();
            let whole = cells.iter().flat_map(|row| &row[1..]).flat_map(|cell| cell.split_whitespace());
            if !is_left_out {
                for word in whole {
                    prop_assert!(shown.contains(word), "{word:?} is broken in\n{text}");
                }
            }
        }
    }
}
