//! Traces as columns, and their generation and analysis.

use crate::input::{Source, Stop, refused, unusable};
use crate::{json, wrong};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use weir_model::{ExtentSize, Nanos, Op};
use weir_sim::analysis::{Sampling, Settings, TraceAnalysis};
use weir_sim::cache::EvictionPolicy;
use weir_sim::{load, units};
use weir_trace::{Disk, FORMATS, Format, MaybeGzip, Record, Tally, Writer, writable};

/// Reads a trace in batches, in constant memory.
#[pyclass(frozen, module = "weir._native")]
pub(crate) struct Reader {
    state: Mutex<Reading>,
    strict: bool,
    #[pyo3(get)]
    format: String,
    #[pyo3(get)]
    timed: bool,
    /// Whether batches have response times.
    #[pyo3(get)]
    responses: bool,
}

struct Reading {
    reader: weir_trace::Reader<'static>,
    tally: Tally,
    records: usize,
    disks: Vec<String>,
}

/// Columns, as bytes of numbers in the machine's byte order.
#[pyclass(frozen, module = "weir._native", get_all)]
pub(crate) struct Batch {
    rows: usize,
    time_ns: Py<PyBytes>,
    disk: Py<PyBytes>,
    op: Py<PyBytes>,
    offset: Py<PyBytes>,
    size: Py<PyBytes>,
    /// Response times, and one byte each that is 1 if there is one; empty if the format has none.
    response_ns: Py<PyBytes>,
    has_response: Py<PyBytes>,
    /// Disk names, indexed by the numbers in `disk`.
    disks: Vec<String>,
}

#[derive(Default)]
struct Columns {
    rows: usize,
    time_ns: Vec<u8>,
    disk: Vec<u8>,
    op: Vec<u8>,
    offset: Vec<u8>,
    size: Vec<u8>,
    response_ns: Vec<u8>,
    has_response: Vec<u8>,
}

impl Columns {
    fn push(&mut self, record: &Record) {
        self.rows += 1;
        self.time_ns.extend(record.at.0.to_ne_bytes());
        self.disk.extend((record.disk.0 as i32).to_ne_bytes());
        self.op.push(match record.op {
            Op::Write => 1,
            Op::Trim => 2,
            _ => 0,
        });
        self.offset.extend(record.offset.0.to_ne_bytes());
        self.size.extend(record.len.0.to_ne_bytes());
    }
}

impl Reading {
    /// Reads up to `rows` records; fewer only at the end.
    fn next(&mut self, rows: usize, strict: bool) -> PyResult<Columns> {
        let mut columns = Columns::default();
        let responses = self.reader.format().has_response_times();
        while columns.rows < rows
            && let Some(record) = self.tally.next(&mut self.reader, strict).map_err(unusable)?
        {
            let named = self.disks.len() as u32..=record.disk.0;
            self.disks.extend(named.map(|disk| self.reader.disk(Disk(disk)).unwrap_or_default()));
            columns.push(&record);
            if responses {
                let response = self.reader.response();
                columns.response_ns.extend(response.map_or(0, |response| response.0).to_ne_bytes());
                columns.has_response.push(u8::from(response.is_some()));
            }
        }
        self.records += columns.rows;
        Ok(columns)
    }
}

#[pymethods]
impl Reader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, format: Option<&str>, strict: bool) -> PyResult<Self> {
        let source = Source::new(path, format, &Stop::default())?;
        let reader = py.detach(|| source.read(Ok::<_, weir_trace::TraceError>))?;
        let reader = reader.with_responses();
        let (format, timed) = (reader.format().name.clone().into_owned(), reader.format().timed);
        let responses = reader.format().has_response_times();
        let state = Reading { reader, tally: Tally::default(), records: 0, disks: Vec::new() };
        Ok(Self { state: Mutex::new(state), strict, format, timed, responses })
    }

    /// Returns the next `rows` records; `None` at the end.
    fn batch(&self, py: Python<'_>, rows: usize) -> PyResult<Option<Batch>> {
        let read = || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            Ok::<_, PyErr>((state.next(rows, self.strict)?, state.disks.clone()))
        };
        let (columns, disks) = py.detach(read)?;
        let bytes = |column: &[u8]| PyBytes::new(py, column).unbind();
        Ok((columns.rows > 0).then(|| Batch {
            rows: columns.rows,
            time_ns: bytes(&columns.time_ns),
            disk: bytes(&columns.disk),
            op: bytes(&columns.op),
            offset: bytes(&columns.offset),
            size: bytes(&columns.size),
            response_ns: bytes(&columns.response_ns),
            has_response: bytes(&columns.has_response),
            disks,
        }))
    }

    /// Returns notes about data that could not be used as it is, so far.
    fn notes(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.tally.notes(state.records)
        })
    }
}

/// Analyses a trace: `weir trace analyze --json`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
pub(crate) fn analyze(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
    disk: Option<&str>,
    strict: bool,
    policies: Vec<String>,
    sample: Option<&str>,
    blocks: Option<u32>,
    stop: &Stop,
) -> PyResult<String> {
    let source = Source::new(path, format, stop)?;
    let sampling = match sample {
        None => Sampling::default(),
        Some(text) => text.parse().map_err(|allowed: String| wrong(format!("sample {text:?}: {allowed}")))?,
    };
    let blocks = blocks.unwrap_or_else(|| Settings::default().blocks);
    let policies = policies.iter().map(|name| eviction(name)).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| {
        let read = |reader| TraceAnalysis::read(reader, disk, strict, blocks, sampling);
        let (mut analysis, sample) = source.read(read)?;
        for policy in policies {
            analysis.add_curve(&sample, policy);
            stop.check()?;
        }
        json(&analysis)
    })
}

/// Returns the eviction policy of this name.
pub(crate) fn eviction(name: &str) -> PyResult<&'static EvictionPolicy> {
    EvictionPolicy::by_name(name).ok_or_else(|| {
        let all: Vec<_> = EvictionPolicy::ALL.iter().map(|policy| policy.name).collect();
        wrong(format!("there is no policy {name:?}; there are {}", all.join(", ")))
    })
}

/// Writes a synthetic load as a trace to a file that must not exist; returns the number of requests. Without
/// `duration` and `requests` it ends with the load; `gzip` compresses it.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
pub(crate) fn generate(
    py: Python<'_>,
    words: &str,
    path: PathBuf,
    seed: u64,
    requests: Option<u64>,
    duration: Option<&str>,
    format: &str,
    gzip: bool,
    stop: &Stop,
) -> PyResult<u64> {
    let format = Format::named(format).map_err(|error| wrong(error.to_string()))?;
    let duration = duration.map(units::duration).transpose();
    let duration = duration.map_err(|allowed| wrong(format!("duration must be {allowed}")))?;
    let parsed = load::parse(words, seed, units::size, units::duration);
    drop(parsed.map_err(|error| wrong(error.to_string()))?);
    py.detach(|| {
        // A load cannot move between threads.
        let parsed = load::parse(words, seed, units::size, units::duration);
        let mut load = parsed.map_err(|error| wrong(error.to_string()))?;
        let failed = |error: std::io::Error| refused("write", &path, &error);
        let file = BufWriter::new(File::create_new(&path).map_err(failed)?);
        let mut writer =
            Writer::new(&format, MaybeGzip::new(file, gzip)).map_err(|error| wrong(error.to_string()))?;
        let names: Vec<_> =
            (0..load.volumes(ExtentSize::DEFAULT).len()).map(|disk| disk.to_string()).collect();
        let unbounded = if requests.is_some() { Nanos::MAX } else { load.duration() };
        // Requests that the format cannot represent count, too: they may be all of them.
        let most = usize::try_from(requests.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut written = 0;
        for record in load::records(&mut *load, duration.unwrap_or(unbounded)).take(most) {
            stop.check()?;
            let said = writer.write(&record, &names[record.disk.0 as usize]).map_err(failed)?;
            written += u64::from(said);
        }
        let file = writer.finish().and_then(MaybeGzip::finish).map_err(failed)?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        Ok(written)
    })
}

/// Returns all formats: name, description, whether it has times, whether it can be written.
#[pyfunction]
pub(crate) fn formats() -> Vec<(&'static str, &'static str, bool, bool)> {
    let known = |format: &'static Format| {
        let is_written = writable().any(|name| name == format.name);
        (&*format.name, format.about, format.timed, is_written)
    };
    FORMATS.iter().map(known).collect()
}
