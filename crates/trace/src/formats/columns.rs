//! Line formats whose columns the user describes.

use super::{Encoding, Format, Line, MS, NS, Name, Parsed, S, SINGLE_DISK, TICK, US, valid_request};
use crate::fields::{Fields, Separator};
use crate::record::VALID_RANGE;
use std::borrow::Cow;
use thiserror::Error;
use weir_model::{BLOCK, Bytes, Hint, Nanos, Op, SECTOR, VolumeOffset};

/// The columns of a line, in order.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) separator: Separator,
    columns: Vec<Column>,
    /// Number of columns before the response time, and its unit.
    response: Option<(usize, u64)>,
}

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// Arrival time, in units of this many nanoseconds.
    Time(u64),
    /// Response time, in units of this many nanoseconds.
    Response(u64),
    /// Operation as a word.
    Op,
    /// Operation as a digit: `read` for a read, the other of 0 and 1 for a write.
    OpDigit {
        read: u64,
    },
    /// Offset, in units of this many bytes.
    Offset(u64),
    /// Size, in units of this many bytes.
    Size(u64),
    Disk,
    Other,
}

/// Column names.
const NAMES: [(&str, Column); 21] = [
    ("time_s", Column::Time(S)),
    ("time_ms", Column::Time(MS)),
    ("time_us", Column::Time(US)),
    ("time_ns", Column::Time(NS)),
    ("time_100ns", Column::Time(TICK)),
    ("response_s", Column::Response(S)),
    ("response_ms", Column::Response(MS)),
    ("response_us", Column::Response(US)),
    ("response_ns", Column::Response(NS)),
    ("response_100ns", Column::Response(TICK)),
    ("op", Column::Op),
    ("read", Column::OpDigit { read: 1 }),
    ("write", Column::OpDigit { read: 0 }),
    ("offset", Column::Offset(1)),
    ("sector", Column::Offset(SECTOR)),
    ("block", Column::Offset(BLOCK)),
    ("size", Column::Size(1)),
    ("sectors", Column::Size(SECTOR)),
    ("blocks", Column::Size(BLOCK)),
    ("disk", Column::Disk),
    ("-", Column::Other),
];

/// Words for operations.
const OPS: [(&[u8], Op); 12] = [
    (b"r", Op::Read),
    (b"read", Op::Read),
    (b"rs", Op::Read),
    (b"ra", Op::Read),
    (b"w", Op::Write),
    (b"write", Op::Write),
    (b"ws", Op::Write),
    (b"t", Op::Trim),
    (b"trim", Op::Trim),
    (b"d", Op::Trim),
    (b"discard", Op::Trim),
    (b"unmap", Op::Trim),
];

/// Why a format name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DescriptionError {
    /// There is no format of that name.
    #[error("no format is called {name:?}; there are {known}, and csv:COLUMN,... for others")]
    UnknownFormat {
        /// The given name.
        name: String,
        /// Names of all formats.
        known: String,
    },
    /// The kind before the colon is unknown.
    #[error("{kind:?} is no separator of columns; begin with csv: or blanks:")]
    UnknownKind {
        /// The given kind.
        kind: String,
    },
    /// A column name is unknown.
    #[error("{column:?} is no column; there are {known}")]
    UnknownColumn {
        /// The given column.
        column: String,
        /// All column names.
        known: String,
    },
    /// Two columns have the same meaning.
    #[error("two columns of {name:?} say {what}; mark the column to ignore with -")]
    DuplicateMeaning {
        /// The description.
        name: String,
        /// The duplicate meaning.
        what: &'static str,
    },
    /// No column has the position.
    #[error("no column of {name:?} gives the start of a request; name one of them offset, sector or block")]
    NoPosition {
        /// The description.
        name: String,
    },
}

impl Column {
    /// Returns its meaning, if only one column may have it.
    const fn unique_meaning(self) -> Option<&'static str> {
        match self {
            Self::Time(_) => Some("when"),
            Self::Response(_) => Some("how long it took"),
            Self::Op | Self::OpDigit { .. } => Some("what is done"),
            Self::Offset(_) => Some("where"),
            Self::Size(_) => Some("how much"),
            Self::Disk => Some("which disk"),
            Self::Other => None,
        }
    }
}

impl Columns {
    /// Parses a description into a format.
    pub(super) fn format(name: &str, kind: &str, columns: &str) -> Result<Format, DescriptionError> {
        let separator = match kind {
            "csv" => Separator::Comma,
            "blanks" => Separator::Blanks,
            _ => return Err(DescriptionError::UnknownKind { kind: kind.into() }),
        };
        let column = |column: &str| {
            let column = column.trim();
            let found = NAMES.iter().find(|(name, _)| *name == column);
            found.map(|(_, column)| *column).ok_or_else(|| DescriptionError::UnknownColumn {
                column: column.into(),
                known: NAMES.map(|(name, _)| name).join(", "),
            })
        };
        let columns = columns.split(',').map(column).collect::<Result<Vec<_>, _>>()?;
        let says = |what| columns.iter().filter(|column| column.unique_meaning() == Some(what)).count();
        if let Some(what) =
            columns.iter().filter_map(|column| column.unique_meaning()).find(|what| says(what) > 1)
        {
            return Err(DescriptionError::DuplicateMeaning { name: name.into(), what });
        }
        if says("where") == 0 {
            return Err(DescriptionError::NoPosition { name: name.into() });
        }
        let response = columns.iter().enumerate().find_map(|(at, column)| match column {
            Column::Response(unit) => Some((at, *unit)),
            _ => None,
        });
        Ok(Format {
            name: Cow::Owned(name.into()),
            about: "as described",
            timed: says("when") > 0,
            encoding: Encoding::Columns(Self { separator, columns, response }),
            response: None,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    pub(crate) const fn has_response_times(&self) -> bool {
        self.response.is_some()
    }

    /// Returns the response time of a line's request.
    pub(crate) fn response(&self, fields: &mut Fields<'_>) -> Option<Nanos> {
        let (before, unit) = self.response?;
        fields.skip(before);
        fields.time("a response time", unit).ok()
    }

    /// Parses a line.
    pub(crate) fn parse<'l>(&self, fields: &mut Fields<'l>) -> Parsed<'l> {
        let (mut at, mut disk, mut op) = (Nanos(0), SINGLE_DISK, Op::Read);
        let (mut offset, mut place, mut len) = (0, None, BLOCK);
        for column in &self.columns {
            match *column {
                Column::Time(unit) => at = fields.time("a time", unit)?,
                Column::Op => op = fields.word("read, write or trim, or the like", &OPS)?,
                Column::OpDigit { read } => {
                    let figure = fields.word("0 or 1", &[(b"0", 0), (b"1", 1)])?;
                    op = if figure == read { Op::Read } else { Op::Write };
                }
                Column::Offset(unit) => {
                    let number = fields.number("where it begins, a number", unit)?;
                    (offset, place) = (number.value, Some(number.field));
                }
                Column::Size(unit) => len = fields.number("a size, a number", unit)?.value,
                Column::Disk => disk = fields.next("a disk")?.text,
                // Missing columns of these kinds do not matter.
                Column::Response(_) | Column::Other => fields.skip(1),
            }
        }
        let (offset, len) = (VolumeOffset(offset), Bytes(len));
        let line = Line { at, disk: Name::Text(disk), op, offset, len, hint: Hint::None };
        valid_request(line, || {
            place.map_or(crate::fields::FieldError { column: 1, wanted: VALID_RANGE, found: b"" }, |field| {
                field.error(VALID_RANGE)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_maps_fields_to_columns() {
        let format = Format::named("csv:-,time_ms,disk,write,sector,sectors").expect("a format");
        let Encoding::Columns(columns) = &format.encoding else { panic!("{format:?}") };
        let said = |text: &'static str| columns.parse(&mut Fields::new(text.as_bytes(), columns.separator));
        let Ok(super::super::LineMeaning::Request(line)) = said("x,1.5,sda,1,8,16,whatever") else {
            panic!()
        };
        assert_eq!((line.at, line.op), (Nanos::micros(1500), Op::Write));
        assert_eq!((line.disk, line.offset, line.len), (Name::Text(b"sda"), VolumeOffset(4096), Bytes(8192)));
        let fault = said("x,1.5,sda,2,8,16").unwrap_err();
        assert_eq!((fault.column, fault.wanted), (11, "0 or 1"));
        assert_eq!(said("x,1,a,1,18014398509481983,2").unwrap_err().column, 9);
    }

    #[test]
    fn absent_columns_take_defaults() {
        let format = Format::named("blanks:block").expect("a format");
        assert!(!format.timed);
        let Encoding::Columns(columns) = &format.encoding else { panic!("{format:?}") };
        let said = columns.parse(&mut Fields::new(b" 7", columns.separator));
        let Ok(super::super::LineMeaning::Request(line)) = said else { panic!("{said:?}") };
        assert_eq!((line.op, line.offset, line.len), (Op::Read, VolumeOffset(7 * BLOCK), Bytes(BLOCK)));
    }

    #[test]
    fn invalid_descriptions_name_the_alternatives() {
        let refused = |text| Format::named(text).unwrap_err().to_string();
        assert!(refused("msrx").contains("there are weir, msr,"));
        assert!(refused("tsv:offset").contains("begin with csv: or blanks:"));
        assert!(refused("csv:offset,length").starts_with("\"length\" is no column; there are time_s,"));
        assert!(refused("csv:offset,block").contains("say where; mark the column to ignore with -"));
        assert!(refused("csv:op,size").contains("name one of them offset"));
    }
}
