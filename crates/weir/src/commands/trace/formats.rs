//! `weir trace formats` lists the trace formats.

use crate::output::{Table, Width};
use schemars::JsonSchema;
use serde::Serialize;
use weir_trace::{FORMATS, Format, writable};

/// The document of `weir trace formats`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir trace formats")]
pub(crate) struct FormatList {
    /// The formats with a name.
    pub(super) formats: Vec<Known>,
}

/// A trace format.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Format")]
pub(super) struct Known {
    /// The name, as `--format` takes it.
    name: &'static str,
    /// One line of description.
    about: &'static str,
    /// It has times of requests.
    timed: bool,
    /// weir writes it, too.
    writable: bool,
}

/// Returns all formats.
pub(super) fn formats() -> Vec<Known> {
    let known = |format: &'static Format| Known {
        name: &format.name,
        about: format.about,
        timed: format.timed,
        writable: writable().any(|name| name == format.name),
    };
    FORMATS.iter().map(known).collect()
}

/// Returns the text that `weir trace formats` prints without `--json`.
pub(super) fn list(formats: &[Known], width: Width) -> String {
    table(formats, width)
        + "\nOthers: csv:COLUMN,... or blanks:COLUMN,..., as in csv:time_us,disk,op,offset,size (weir help traces)\n"
}

/// Returns the table of formats for help.
pub(in crate::commands) fn text(width: Width) -> String {
    table(&formats(), width)
}

fn table(formats: &[Known], width: Width) -> String {
    let row =
        |known: &Known| [known.name, if known.writable { "read, written" } else { "read" }, known.about];
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
