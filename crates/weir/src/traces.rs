//! `weir trace`: traces from one format to another, and which formats there are.

use crate::args::ConvertArgs;
use crate::failure::Failure;
use crate::output::table;
use crate::progress;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use weir_model::ErrorKind;
use weir_trace::{Disk, FORMATS, Format, Reader, TraceError, WriteError, Writer, writable};

/// weir's own format.
const OWN: &str = "weir";
/// What stands for standard input and output.
pub const STANDARD: &str = "-";

/// A reader of the trace in a file, or of standard input for `-`. `help` says what to do if there is none; without
/// `format` it is found out.
///
/// # Errors
/// If it is not there, or cannot be opened, or is no trace.
pub fn open(path: &Path, format: Option<&Format>, help: &str) -> Result<Reader<'static>, Failure> {
    let input: Box<dyn BufRead> = if path.as_os_str() == STANDARD {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::usage(format!("there is no trace {}", path.display()), help),
            _ => Failure::os("open", path, &error),
        })?;
        Box::new(BufReader::with_capacity(1 << 20, file))
    };
    Reader::open(path.display().to_string(), input, format).map_err(|error| told(&error))
}

/// What is wrong with a trace.
pub fn told(error: &TraceError) -> Failure {
    Failure::told(ErrorKind::Usage, &error.to_string())
}

/// What came of a conversion.
#[derive(Debug, Serialize)]
pub struct Converted {
    from: String,
    to: String,
    requests: u64,
    disks: Vec<String>,
    /// Lines or records without a request to replay.
    left_out: u64,
    /// Requests the new format has no way to say.
    unsaid: u64,
    /// Lines that could not be read.
    bad: u64,
    notes: Vec<String>,
}

impl Converted {
    /// For people.
    pub fn human(&self) -> String {
        let mut text = format!(
            "{} requests of {} disk{}, from {} to {}\n",
            self.requests,
            self.disks.len(),
            if self.disks.len() == 1 { "" } else { "s" },
            self.from,
            self.to
        );
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}

/// Writes a trace again in another format.
///
/// # Errors
/// If the trace cannot be read, or mostly is not what it should be, or the output cannot be written: then there is no
/// output.
pub fn convert(args: &ConvertArgs) -> Result<Converted, Failure> {
    let reader = open(&args.input, args.from.as_ref(), "name a file, or - for standard input")?;
    let mut output = Output::create(&args.output, args.force)?;
    if args.to.name == OWN && output.is_packed() {
        output.give_up();
        return Err(Failure::usage(
            format!("{} would be packed twice: weir's own format is packed already", args.output.display()),
            "leave .gz off its name",
        ));
    }
    let converted =
        progress::during("converting the trace", || copy(reader, &args.to, &mut output, args.strict));
    match converted {
        Ok(converted) => output.keep().map(|()| converted),
        Err(failure) => {
            output.give_up();
            Err(failure)
        }
    }
}

fn copy(
    mut reader: Reader<'_>,
    to: &Format,
    output: &mut Output,
    strict: bool,
) -> Result<Converted, Failure> {
    let (path, is_standard) = (output.path.clone(), output.part.is_none());
    let cannot = |error: &io::Error| Failure::os("write", &path, error);
    let mut writer = Writer::new(to, output.pack()).map_err(|error| match error {
        WriteError::Io(error) => cannot(&error),
        refused @ WriteError::NotWritable { .. } => Failure::told(ErrorKind::Usage, &refused.to_string()),
    })?;
    let (mut requests, mut unsaid, mut bad) = (0, 0, 0);
    let is_closed = |error: &io::Error| is_standard && error.kind() == io::ErrorKind::BrokenPipe;
    let mut notes = Vec::new();
    let (mut disks, mut first_bad) = (Vec::<String>::new(), None);
    while let Some(next) = reader.next() {
        match next {
            Ok(record) => {
                let at = record.disk.0 as usize;
                let named = disks.len() as u32..=record.disk.0;
                disks.extend(named.map(|disk| reader.disk(Disk(disk)).unwrap_or_default()));
                match writer.write(&record, &disks[at]) {
                    Ok(said) => (requests, unsaid) = (requests + u64::from(said), unsaid + u64::from(!said)),
                    // Who reads it has enough.
                    Err(error) if is_closed(&error) => break,
                    Err(error) => return Err(cannot(&error)),
                }
            }
            Err(error) if strict => return Err(told(&error)),
            Err(cut @ TraceError::Cut { .. }) if requests + unsaid > 0 => {
                notes.push(format!("{} requests were read: {cut}", requests + unsaid));
            }
            Err(cut @ TraceError::Cut { .. }) => return Err(told(&cut)),
            Err(error) => {
                bad += 1;
                first_bad.get_or_insert(error);
            }
        }
    }
    match writer.finish().and_then(Packing::finish) {
        Err(error) if !is_closed(&error) => return Err(cannot(&error)),
        _ => {}
    }
    if let Some(first) = first_bad {
        if bad > requests + unsaid {
            let (trace, lines) = (reader.name().to_owned(), reader.lines());
            return Err(told(&TraceError::MostlyBad { trace, bad, lines, first: Box::new(first) }));
        }
        notes.push(format!("{bad} lines were left out; the first: {first}"));
    }
    if unsaid > 0 {
        notes.push(format!("{unsaid} requests were left out that {} has no way to say", to.name));
    }
    if requests == 0 && unsaid == 0 {
        return Err(told(&TraceError::Empty { trace: reader.name().to_owned() }));
    }
    let (from, left_out) = (reader.format().name.clone().into_owned(), reader.left_out());
    Ok(Converted { from, to: to.name.clone().into_owned(), requests, disks, left_out, unsaid, bad, notes })
}

/// Where a trace goes: a file that is there once it is whole, or standard output.
struct Output {
    path: PathBuf,
    /// What is written until then.
    part: Option<(PathBuf, File)>,
}

impl Output {
    fn create(path: &Path, force: bool) -> Result<Self, Failure> {
        if path.as_os_str() == STANDARD {
            return Ok(Self { path: "standard output".into(), part: None });
        }
        match std::fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                return Err(Failure::refused(
                    format!("{} is no ordinary file", path.display()),
                    "name another, or - for standard output",
                ));
            }
            Ok(_) if !force => {
                return Err(Failure::refused(
                    format!("{} is there already", path.display()),
                    "name another file, or write over it with --force",
                ));
            }
            _ => {}
        }
        // A name that nothing else has: what is there is never written to.
        let mut part = OsString::from(path);
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let file = OpenOptions::new().write(true).create_new(true).open(&part);
        let file = file.map_err(|error| Failure::os("create", &part, &error))?;
        Ok(Self { path: path.into(), part: Some((part, file)) })
    }

    fn is_packed(&self) -> bool {
        self.part.is_some() && self.path.extension().is_some_and(|end| end == "gz")
    }

    /// What packs as the file's name says.
    fn pack(&self) -> Packing<'_> {
        let out: Box<dyn Write> = match &self.part {
            None => Box::new(io::stdout().lock()),
            Some((_, file)) => Box::new(file),
        };
        let out = BufWriter::with_capacity(1 << 20, out);
        if self.is_packed() {
            Packing::Gzip(GzEncoder::new(out, flate2::Compression::default()))
        } else {
            Packing::Plain(out)
        }
    }

    /// It is whole.
    fn keep(self) -> Result<(), Failure> {
        let Some((part, file)) = self.part else { return Ok(()) };
        let kept = file.sync_all().and_then(|()| std::fs::rename(&part, &self.path));
        kept.map_err(|error| {
            // What remains of it is told by its name.
            let _ = std::fs::remove_file(&part);
            Failure::os("write", &self.path, &error)
        })
    }

    /// It will not be.
    fn give_up(self) {
        if let Some((part, _)) = self.part {
            // What remains of it is told by its name.
            let _ = std::fs::remove_file(part);
        }
    }
}

/// An output, packed or not.
enum Packing<'f> {
    Plain(BufWriter<Box<dyn Write + 'f>>),
    Gzip(GzEncoder<BufWriter<Box<dyn Write + 'f>>>),
}

impl Packing<'_> {
    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut out) => out.flush(),
            Self::Gzip(out) => out.finish()?.flush(),
        }
    }
}

impl Write for Packing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(out) => out.flush(),
        }
    }
}

/// One format, for `weir trace formats`.
#[derive(Debug, Serialize)]
pub struct Known {
    name: &'static str,
    about: &'static str,
    timed: bool,
    written: bool,
}

/// All formats.
pub fn formats() -> Vec<Known> {
    let known = |format: &'static Format| Known {
        name: &format.name,
        about: format.about,
        timed: format.timed,
        written: writable().any(|name| name == format.name),
    };
    FORMATS.iter().map(known).collect()
}

/// All formats, for people.
pub fn list(formats: &[Known]) -> String {
    let row = |known: &Known| {
        [known.name.into(), if known.written { "read, written" } else { "read" }.into(), known.about.into()]
    };
    let text = table(["NAME", "", "WHAT IT IS"], formats.iter().map(row));
    text + "\nOthers: csv:COLUMN,... or blanks:COLUMN,..., as in csv:time_us,disk,op,offset,size (docs/traces.md)\n"
}
