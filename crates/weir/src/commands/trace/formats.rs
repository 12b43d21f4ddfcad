//! `weir trace formats`: which formats there are.

use crate::output::{Table, Width};
use serde::Serialize;
use weir_trace::{FORMATS, Format, writable};

/// One format, for `weir trace formats`.
#[derive(Debug, Serialize)]
pub(super) struct Known {
    name: &'static str,
    about: &'static str,
    timed: bool,
    written: bool,
}

/// All formats.
pub(super) fn formats() -> Vec<Known> {
    let known = |format: &'static Format| Known {
        name: &format.name,
        about: format.about,
        timed: format.timed,
        written: writable().any(|name| name == format.name),
    };
    FORMATS.iter().map(known).collect()
}

/// All formats, for people.
pub(super) fn list(formats: &[Known], width: Width) -> String {
    table(formats, width)
        + "\nOthers: csv:COLUMN,... or blanks:COLUMN,..., as in csv:time_us,disk,op,offset,size (weir help traces)\n"
}

/// All formats, for help.
pub(in crate::commands) fn text(width: Width) -> String {
    table(&formats(), width)
}

fn table(formats: &[Known], width: Width) -> String {
    let row = |known: &Known| [known.name, if known.written { "read, written" } else { "read" }, known.about];
    Table::new(["NAME", "", "WHAT IT IS"], formats.iter().map(row)).prose("WHAT IT IS").text(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::assert_fits;

    #[test]
    fn the_formats_fit_the_terminal() {
        assert_fits(|width| list(&formats(), width));
    }
}
