//! Detects the format of a trace, by the requests that each format would yield for its first lines or
//! records.
//!
//! A format fits if it can parse all of the first lines. Of those that fit, the most plausible is chosen by a
//! score of its requests ([`Requests::score`]), because numbers alone do not say whether they are
//! bytes or sectors, milliseconds or nanoseconds. Formats without a name, with the same columns in other
//! units or in another order, are candidates too ([`variants`]). If others are nearly as plausible, a note
//! says so.

use super::{Encoding, FORMATS, Format, Line, LineMeaning, MS, format};
use crate::chunk::MAGIC;
use crate::fields::{Fields, Separator};
use std::sync::LazyLock;
use weir_model::{BLOCK, Nanos, Op, SECTOR};

/// Number of bytes examined to detect the format.
pub(crate) const SAMPLE: usize = 64 << 10;
/// Number of lines that a format must parse entirely to fit.
const FIRST_LINES: usize = 50;
/// Number of lines whose requests are scored.
const SCORED_LINES: usize = 200;

/// A format whose score is this close to the best one's counts as an alternative.
const SCORE_MARGIN: f64 = 2.5;
/// Bonus for a named format.
const NAMED_BONUS: f64 = 2.0;
/// Formats that are only detected by their heading, because their lines are not distinctive. Others with a
/// heading are also detected without it.
const NEED_HEADING: [&str; 3] = ["fio-2", "fio-3", "hpl"];
/// Formats in which not every line is a request.
const EVENT_FORMATS: [&str; 4] = ["vscsi", "blkev", "blkparse", "blkparse-issued"];
/// Formats whose times have a fraction; without it only their requests' plausibility counts.
const WITH_FRACTION: [&str; 2] = ["disksim", "ms-bytes"];
/// Maximum plausible length of reads and writes. A trim may cover a whole disk.
const PLAUSIBLE_LEN_MAX: u64 = 4 << 30;
/// Penalty from which a note reports implausible sizes and offsets.
const DOUBT_PENALTY: f64 = 3.0;
/// Maximum number of formats named in a note.
const ALTERNATIVES_MAX: usize = 3;

/// Result of the detection.
#[derive(Clone, Debug)]
pub(crate) struct Detected {
    pub(crate) format: Format,
    /// Why it may be wrong, if there is a doubt.
    pub(crate) note: Option<String>,
}

impl Detected {
    fn certain(format: &Format) -> Self {
        Self { format: format.clone(), note: None }
    }
}

/// Detects the format of a trace that begins with `sample`; `None` if none fits.
pub(crate) fn detect(sample: &[u8]) -> Option<Detected> {
    if sample.starts_with(MAGIC) {
        return format("weir").map(Detected::certain);
    }
    // The last line may be incomplete.
    let whole = match memchr::memrchr(b'\n', sample) {
        Some(last) => &sample[..last],
        None => sample,
    };
    let mut lines: Vec<_> = whole
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.trim_ascii().is_empty())
        .take(SCORED_LINES)
        .collect();
    if let Some(format) =
        lines.first().and_then(|first| FORMATS.iter().find(|format| format.is_heading(first)))
    {
        return Some(Detected::certain(format));
    }
    lines.retain(|line| !is_comment(line));
    if let Some(heading) = lines.first().filter(|line| is_column_heading(line)) {
        if let Some(format) = FORMATS.iter().find(|format| format.is_heading(heading)) {
            return Some(Detected::certain(format));
        }
        if let Some(format) = format_from_heading(heading) {
            return Some(Detected { format, note: None });
        }
        lines.remove(0);
    }
    from_lines(&lines).or_else(|| from_bytes(sample))
}

/// Reports whether a line is a comment.
pub(crate) fn is_comment(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.starts_with(b"#") || line.starts_with(b"//") || line.starts_with(b";")
}

/// Reports whether a line looks like column names: several fields, none of which begins like a number.
pub(crate) fn is_column_heading(line: &[u8]) -> bool {
    let separator = if line.contains(&b',') { Separator::Comma } else { Separator::Blanks };
    let fields = fields_of(line, separator);
    let is_name = |field: &&[u8]| {
        let field = field.strip_prefix(b"\"").unwrap_or(field);
        field.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
    };
    fields.len() > 2 && fields.iter().all(is_name)
}

/// Returns the described format whose column names are those of a heading.
fn format_from_heading(heading: &[u8]) -> Option<Format> {
    let (kind, separator) =
        if heading.contains(&b',') { ("csv", Separator::Comma) } else { ("blanks", Separator::Blanks) };
    let names: Vec<_> = fields_of(heading, separator)
        .into_iter()
        .map(|name| String::from_utf8_lossy(name).trim_matches('"').to_ascii_lowercase())
        .collect();
    Format::named(&format!("{kind}:{}", names.join(","))).ok()
}

fn fields_of(line: &[u8], separator: Separator) -> Vec<&[u8]> {
    match separator {
        Separator::Comma => line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect(),
        Separator::Blanks => {
            line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty()).collect()
        }
    }
}

/// Returns the number of fields, if it is the same in all of the first lines.
fn common_field_count(lines: &[&[u8]], separator: Separator) -> Option<usize> {
    let mut counts = lines.iter().take(FIRST_LINES).map(|line| fields_of(line, separator).len());
    let first = counts.next()?;
    counts.all(|count| count == first).then_some(first)
}

/// A format that fits, with its requests.
struct Candidate {
    format: Format,
    /// The equivalent description of its columns.
    columns: Option<String>,
    requests: Requests,
    score: f64,
}

/// Returns all formats that fit, the most plausible first.
fn candidates(lines: &[&[u8]]) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for format in FORMATS.iter().filter(|format| !NEED_HEADING.contains(&&*format.name)) {
        if let Some(requests) = Requests::read(format, lines) {
            let is_named = !WITH_FRACTION.contains(&&*format.name) || !requests.is_whole_millis();
            let score = requests.score(format.timed) + if is_named { NAMED_BONUS } else { 0.0 };
            all.push(Candidate { format: format.clone(), columns: None, requests, score });
        }
    }
    let counts = [Separator::Comma, Separator::Blanks]
        .map(|separator| (separator, common_field_count(lines, separator)));
    let fits = |variant: &&Variant| match &variant.format.encoding {
        Encoding::Columns(columns) => counts.contains(&(columns.separator, Some(columns.len()))),
        _ => false,
    };
    for variant in VARIANTS.iter().filter(fits) {
        let Some(requests) = Requests::read(&variant.format, lines) else { continue };
        let name = variant.format.name.clone().into_owned();
        // The same requests under another name are not another candidate.
        match all.iter_mut().find(|other| other.requests.all == requests.all) {
            Some(same) => {
                same.columns.get_or_insert(name);
            }
            None => {
                let score = requests.score(true) + variant.bonus;
                all.push(Candidate { format: variant.format.clone(), columns: Some(name), requests, score });
            }
        }
    }
    // The sort is stable: of equals the first is preferred.
    all.sort_by(|one, other| other.score.total_cmp(&one.score));
    all
}

fn from_lines(lines: &[&[u8]]) -> Option<Detected> {
    let all = candidates(lines);
    let (best, others) = all.split_first()?;
    let is_close = |other: &&Candidate| best.score - other.score <= SCORE_MARGIN || best.is_inverse(other);
    let others: Vec<_> = others.iter().filter(is_close).collect();
    let name = &best.format.name;
    let is_doubtful = best.requests.size_score() + best.requests.range_score() > DOUBT_PENALTY;
    let note = if let [first, ..] = others[..] {
        let but =
            if is_doubtful { format!(", but {}", best.requests.implausibility()) } else { String::new() };
        Some(format!(
            "the format is ambiguous: took {}{but}; the first lines also fit {}; if that is what it is, say so, as in \
             --format {}",
            best.description(),
            best.differences(&others),
            first.columns.as_deref().unwrap_or(&first.format.name)
        ))
    } else if is_doubtful {
        Some(format!(
            "the format is doubtful: took {name}, the only one that fits, but {}; if it is another, say --format",
            best.requests.implausibility()
        ))
    } else if matches!(best.format.encoding, Encoding::Columns(_)) {
        Some(format!("no format with a name fits as well: took {name}; if it is another, say --format"))
    } else {
        None
    };
    Some(Detected { format: best.format.clone(), note })
}

impl Candidate {
    /// Returns its name, with its columns.
    fn description(&self) -> String {
        match &self.columns {
            Some(columns) if *columns != self.format.name => format!("{} ({columns})", self.format.name),
            _ => self.format.name.clone().into_owned(),
        }
    }

    /// Reports whether reads and writes are swapped, and everything else is equal.
    fn is_inverse(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.requests.all, &other.requests.all);
        ours.len() == theirs.len()
            && ours
                .iter()
                .zip(theirs)
                .all(|(one, other)| (one.0, one.2, one.3) == (other.0, other.2, other.3) && one.1 != other.1)
    }

    /// Names the columns in which others differ, or their names.
    fn differences(&self, others: &[&Self]) -> String {
        let mut columns: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut names = Vec::new();
        for other in others {
            let (Some(ours), Some(theirs)) = (&self.columns, &other.columns) else {
                names.push(&*other.format.name);
                continue;
            };
            let parts = |text| str::split_once(text, ':').map_or(text, |(_, columns)| columns).split(',');
            for (own, their) in parts(ours).zip(parts(theirs)).filter(|(own, their)| own != their) {
                let at = columns.iter().position(|(column, _)| *column == own).unwrap_or_else(|| {
                    columns.push((own, Vec::new()));
                    columns.len() - 1
                });
                if !columns[at].1.contains(&their) {
                    columns[at].1.push(their);
                }
            }
        }
        names.truncate(ALTERNATIVES_MAX);
        let columns = columns.into_iter().map(|(own, theirs)| format!("{} for {own}", theirs.join(" or ")));
        columns.chain(names.into_iter().map(Into::into)).collect::<Vec<_>>().join(", ")
    }
}

fn from_bytes(sample: &[u8]) -> Option<Detected> {
    let found = FORMATS.iter().find(|format| match &format.encoding {
        Encoding::Records { is_match: known, .. } => known(sample),
        _ => false,
    })?;
    let note = (&*found.name == super::PAGES_32).then(|| {
        format!(
            "the format is a guess: took {}, for nothing in the file says that it holds numbers of pages; if it is \
             another, say --format",
            found.name
        )
    });
    Some(Detected { format: found.clone(), note })
}

/// An order of columns that occurs in traces.
struct Layout {
    /// `T` stands for the time, `O` and `S` for offset and size, `F` for a digit 0 or 1.
    columns: &'static str,
    bonus: f64,
}

const LAYOUTS: [Layout; 21] = [
    Layout { columns: "T,disk,O,S,F", bonus: 0.0 },
    Layout { columns: "T,O,S,F", bonus: 0.0 },
    Layout { columns: "T,O,S,F,disk", bonus: 0.0 },
    Layout { columns: "T,disk,F,O,S", bonus: 0.0 },
    Layout { columns: "T,F,O,S", bonus: 0.0 },
    Layout { columns: "T,disk,O,S,op", bonus: 0.0 },
    Layout { columns: "T,O,S,op", bonus: 0.0 },
    Layout { columns: "T,disk,op,O,S", bonus: 0.0 },
    Layout { columns: "T,op,O,S", bonus: 0.0 },
    // MSR Cambridge's, rarely in other units.
    Layout { columns: "T,-,disk,op,O,S,-", bonus: -1.0 },
    Layout { columns: "T,-,op,disk,O,S", bonus: 0.0 },
    Layout { columns: "disk,op,O,S,T", bonus: 0.0 },
    Layout { columns: "disk,O,S,op,T", bonus: 0.5 },
    Layout { columns: "disk,O,S,F,T", bonus: -0.5 },
    // Sizes before offsets.
    Layout { columns: "T,disk,S,O,op", bonus: -1.0 },
    Layout { columns: "T,disk,op,S,O", bonus: -1.0 },
    Layout { columns: "T,S,O,op", bonus: -1.0 },
    Layout { columns: "T,op,S,O", bonus: -1.0 },
    Layout { columns: "T,disk,S,O,F", bonus: -1.0 },
    Layout { columns: "T,F,S,O", bonus: -1.0 },
    Layout { columns: "T,S,O,F", bonus: -1.0 },
];

const TIMES: [&str; 5] = ["time_ns", "time_us", "time_ms", "time_s", "time_100ns"];
const RANGE_COLUMNS: [(&str, &str, f64); 4] = [
    ("offset", "size", 0.0),
    ("sector", "sectors", 0.0),
    ("sector", "size", -1.0),
    ("block", "blocks", -1.0),
];
/// Most formats use 1 for a read.
const OP_DIGITS: [(&str, f64); 2] = [("read", 0.0), ("write", -1.5)];

/// A candidate without a name.
struct Variant {
    format: Format,
    bonus: f64,
}

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(variants);

/// Returns every layout in all units.
fn variants() -> Vec<Variant> {
    let mut all = Vec::new();
    for layout in &LAYOUTS {
        for time in TIMES {
            for (offset, size, unusual) in RANGE_COLUMNS {
                for (figure, other) in OP_DIGITS {
                    if figure == "write" && !layout.columns.contains('F') {
                        continue;
                    }
                    let column = |column| match column {
                        "T" => time,
                        "O" => offset,
                        "S" => size,
                        "F" => figure,
                        other => other,
                    };
                    let columns: Vec<_> = layout.columns.split(',').map(column).collect();
                    for kind in ["csv", "blanks"] {
                        let named = Format::named(&format!("{kind}:{}", columns.join(",")));
                        let bonus = layout.bonus + unusual + other;
                        all.extend(named.ok().map(|format| Variant { format, bonus }));
                    }
                }
            }
        }
    }
    all
}

/// Returns the cost of the first tier whose bound exceeds the value; otherwise `beyond`.
fn tier(value: f64, tiers: &[(f64, f64)], beyond: f64) -> f64 {
    tiers.iter().find(|(below, _)| value < *below).map_or(beyond, |(_, cost)| *cost)
}

const MIB: f64 = (1 << 20) as f64;
const TIB: f64 = (1u64 << 40) as f64;
/// Costs by request size in bytes, for whole sectors.
const SIZE_COSTS: &[(f64, f64)] =
    &[(BLOCK as f64, 2.5), (MIB + 1.0, 0.0), (4.0 * MIB + 1.0, 2.0), (16.0 * MIB + 1.0, 4.0)];
/// Costs by the end of the last request, in bytes.
const END_COSTS: &[(f64, f64)] = &[(64.0 * TIB, 0.0), (1024.0 * TIB, 2.0)];
/// Costs by the mean time between two requests, in nanoseconds.
const GAP_COSTS: &[(f64, f64)] =
    &[(50.0, 5.0), (1e3, 3.5), (1e4, 2.2), (5e4, 0.8), (1e9, 0.0), (1e10, 1.5), (6e10, 2.2), (1e12, 3.5)];
/// Costs by bytes per nanosecond, which are gigabytes per second.
const RATE_COSTS: &[(f64, f64)] = &[(20.0, 0.0), (200.0, 1.5), (20_000.0, 4.0)];

/// A format's requests from a sample.
#[derive(Debug, Default)]
struct Requests {
    all: Vec<(Nanos, Op, u64, u64)>,
    /// Number of lines without a request where each should have one: their sizes are 0.
    empty: usize,
}

impl Requests {
    /// Parses the requests of the lines; returns `None` if the format does not fit.
    fn read(format: &Format, lines: &[&[u8]]) -> Option<Self> {
        let mut found = Self::default();
        for (nth, line) in lines.iter().enumerate() {
            let parsed = match &format.encoding {
                Encoding::Lines { separator, parse, .. } => parse(&mut Fields::new(line, *separator)),
                Encoding::Columns(columns) => columns.parse(&mut Fields::new(line, columns.separator)),
                Encoding::Records { .. } | Encoding::Chunks => return None,
            };
            match parsed {
                Ok(LineMeaning::Request(line) | LineMeaning::RequestAndDelay(line, _)) => found.push(&line),
                Ok(LineMeaning::NoRequest | LineMeaning::Delay(_))
                    if EVENT_FORMATS.contains(&&*format.name) => {}
                Ok(LineMeaning::NoRequest | LineMeaning::Delay(_))
                    if !matches!(format.encoding, Encoding::Columns(_)) =>
                {
                    found.empty += 1;
                }
                // A variant must have a request in every line.
                _ if nth < FIRST_LINES => return None,
                _ => {}
            }
        }
        if found
            .all
            .iter()
            .take(FIRST_LINES)
            .any(|(_, op, _, len)| *op != Op::Trim && *len > PLAUSIBLE_LEN_MAX)
        {
            return None;
        }
        let is_arc = || format.name != "arc" || is_arc(lines);
        (!found.all.is_empty() && is_arc()).then_some(found)
    }

    /// Reports whether times are whole milliseconds without a date.
    fn is_whole_millis(&self) -> bool {
        self.date_bonus() == 0.0 && self.share(|request| request.0.0.is_multiple_of(MS)) > 0.99
    }

    fn push(&mut self, line: &Line<'_>) {
        self.all.push((line.at, line.op, line.offset.0, line.len.0));
    }

    /// Returns the plausibility: 0 for typical requests, negative for unusual ones.
    fn score(&self, timed: bool) -> f64 {
        let empty = 8.0 * self.empty as f64 / (self.empty + self.all.len()).max(1) as f64;
        -(empty
            + self.size_score()
            + self.range_score()
            + if timed { self.time_score() - self.date_bonus() } else { 0.0 })
    }

    /// Returns the share of requests that satisfy `is`.
    fn share(&self, is: impl Fn(&(Nanos, Op, u64, u64)) -> bool) -> f64 {
        self.all.iter().filter(|request| is(request)).count() as f64 / self.all.len().max(1) as f64
    }

    fn size_score(&self) -> f64 {
        let unusual = |len: u64| {
            if len.is_multiple_of(SECTOR) { tier(len as f64, SIZE_COSTS, 8.0) } else { 8.0 }
        };
        self.all.iter().map(|request| unusual(request.3)).sum::<f64>() / self.all.len().max(1) as f64
    }

    fn range_score(&self) -> f64 {
        let unaligned = 6.0 * self.share(|request| !request.2.is_multiple_of(SECTOR));
        // If bytes are read as sectors, all are multiples of 512 sectors; if sectors of aligned requests are
        // read as blocks, of 8 blocks.
        let too_even = |unit: u64| {
            let is_even = |request: &(Nanos, Op, u64, u64)| {
                request.2.is_multiple_of(unit) && request.3.is_multiple_of(unit)
            };
            self.all.iter().any(|request| request.2 > 0) && self.share(is_even) > 0.9
        };
        let even = match () {
            () if too_even(SECTOR * SECTOR) => 4.0,
            () if too_even(8 * BLOCK) => 2.0,
            () => 0.0,
        };
        let end = self.all.iter().map(|request| request.2 + request.3).max().unwrap_or(0);
        let far = tier(end as f64, END_COSTS, 5.0);
        unaligned + even + far
    }

    fn time_score(&self) -> f64 {
        let steps = self.all.len().saturating_sub(1);
        if steps == 0 {
            return 0.0;
        }
        let back = self.all.windows(2).filter(|pair| pair[1].0 < pair[0].0).count() as f64 / steps as f64;
        let back = 6.0 * (2.0 * back).min(1.0);
        let (first, last) =
            (self.all.iter().map(|request| request.0).min(), self.all.iter().map(|request| request.0).max());
        let duration = last.zip(first).map_or(0, |(last, first)| last.since(first).0);
        if duration == 0 {
            return back + if steps > 5 { 1.0 } else { 0.0 };
        }
        let gap = tier(duration as f64 / steps as f64, GAP_COSTS, 5.0);
        // A clock without a fraction is likely to have a smaller unit, unless it includes a date.
        let gap = if self.is_whole_millis() && steps > 3 { gap + 0.4 } else { gap };
        let bytes = self.all.iter().map(|request| request.3 as f64).sum::<f64>();
        let rate = tier(bytes / duration as f64, RATE_COSTS, 6.0);
        back + gap + rate
    }

    /// Returns the bonus of a clock with a plausible date: since 1970, or since 1601 as in Windows.
    fn date_bonus(&self) -> f64 {
        const YEAR: u64 = 31_556_952_000_000_000;
        let first = self.all.first().map_or(0, |request| request.0.0);
        let is_date = |year: u64| (year * YEAR..(year + 50) * YEAR).contains(&first);
        if is_date(20) || is_date(389) { 2.5 } else { 0.0 }
    }

    /// Returns what is implausible about sizes and offsets.
    fn implausibility(&self) -> &'static str {
        match () {
            () if self.share(|request| !request.3.is_multiple_of(SECTOR)) > 0.3 => {
                "many sizes are no multiple of 512 bytes"
            }
            () if self.share(|request| !request.2.is_multiple_of(SECTOR)) > 0.3 => {
                "many requests do not begin with a sector"
            }
            () if self.size_score() > 2.0 => "its requests are of unusual sizes",
            () => "its offsets are not plausible",
        }
    }
}

/// Reports whether lines are in the ARC paper's format: the third number is always 0, and the fourth counts
/// the requests.
fn is_arc(lines: &[&[u8]]) -> bool {
    let number = |line: &[u8], nth: usize| {
        let field = fields_of(line, Separator::Blanks).into_iter().nth(nth)?;
        std::str::from_utf8(field).ok()?.parse::<u64>().ok()
    };
    let is_zero = lines.iter().all(|line| number(line, 2) == Some(0));
    is_zero && lines.windows(2).all(|pair| number(pair[0], 3) < number(pair[1], 3))
}

#[cfg(test)]
mod tests;
