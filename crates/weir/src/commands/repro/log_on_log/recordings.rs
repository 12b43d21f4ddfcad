//! Recordings of F2FS, which `bench/record-f2fs` makes: what the file system wrote to its device while a file
//! was filled, then under the load of an experiment. The device's log takes both; the second one counts.

use super::super::parameters::{Parameters, unusable};
use super::super::results::{Metrics, finite};
use super::layer;
use crate::failure::Failure;
use crate::traces;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use weir_model::{Bytes, ErrorKind, Nanos, Op, Seed};
use weir_sim::Replay;
use weir_sim::logs::{LayerPlan, Repetition, StackPlan, StackPrecondition, data_size, simulate};
use weir_trace::Trace;

/// What names of experiments on recordings begin with.
const F2FS: &str = "F2FS ";
/// How recordings are made.
const MAKE: &str = "make recordings with bench/record-f2fs --out DIR, and name DIR";

/// The directory of the recordings, if one was named.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Recordings {
    directory: Option<PathBuf>,
}

/// An experiment: a recording on a device's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// The load, by its name in `bench/record-f2fs`.
    load: String,
    /// Number of active logs.
    logs: u32,
    /// Segment of the device in MiB; `None` for that of table 4.1.
    segment: Option<u32>,
}

impl Recorded {
    /// Parses a name; `None` if it is no experiment on a recording.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.strip_prefix(F2FS)?.split(", ").collect();
        let (load, logs, segment) = match parts[..] {
            [load, logs] => (load, logs, None),
            [load, logs, segment] => (load, logs, Some(segment.strip_suffix(" MB")?.parse().ok()?)),
            _ => return None,
        };
        Some(Self { load: load.to_owned(), logs: logs.strip_suffix(" logs")?.parse().ok()?, segment })
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{F2FS}{}, {} logs", self.load, self.logs)?;
        self.segment.map_or(Ok(()), |segment| write!(f, ", {segment} MB"))
    }
}

/// What a recording's description says of how it was made.
#[derive(Clone, Debug, Deserialize)]
struct Description {
    /// The load and the number of active logs.
    load: String,
    logs: u32,
    /// Bytes that the user wrote, in so many requests of so many bytes.
    user: u64,
    requests: u64,
    request: u64,
    /// What F2FS wrote while the file was filled, and under the load.
    fill: Written,
    run: Written,
    /// The published sizes were divided by this.
    scale: f64,
    /// How direct writes were made.
    direct: String,
    kernel: String,
    /// Whether F2FS was not the kernel's own.
    #[serde(default)]
    module: bool,
    seed: u64,
}

/// The statistics of one trace of a recording.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Written {
    /// Bytes that F2FS wrote to its device, by the block layer's counters.
    written: u64,
}

/// A recording.
#[derive(Debug)]
pub(super) struct Recording {
    description: Description,
    /// Requests of the part that fills the file, and those under the load.
    fill: Trace,
    load: Trace,
}

impl Recording {
    /// Returns what in the description contradicts the experiment or the traces.
    fn contradiction(&self, of: &Recorded) -> Option<String> {
        let Description { load, logs, user, requests, request, fill, run, .. } = &self.description;
        if (load, *logs) != (&of.load, of.logs) {
            return Some(format!("it says {load}, {logs} logs"));
        }
        for (name, says, trace) in [("fill", fill.written, &self.fill), ("run", run.written, &self.load)] {
            let writes = trace.records.iter().filter(|record| record.op == Op::Write);
            let found = writes.map(|record| record.len.0).sum::<u64>();
            if found != says {
                return Some(format!("{name}.written is {says}, and its trace has {found} bytes of writes"));
            }
        }
        (requests.checked_mul(*request) != Some(*user))
            .then(|| format!("user is {user}, and {requests} requests of {request} bytes are not that many"))
    }
}

impl Recordings {
    /// Takes the recordings of a directory.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or holds no recording.
    pub(in super::super) fn open(directory: &Path) -> Result<Self, Failure> {
        let entries = std::fs::read_dir(directory).map_err(|error| Failure::os("read", directory, &error))?;
        let recordings = Self { directory: Some(directory.to_owned()) };
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        if names.any(|name| name.ends_with("-fill.weirtrace")) {
            return Ok(recordings);
        }
        Err(Failure::usage(format!("there is no recording of F2FS in {}", directory.display()), MAKE))
    }

    fn file(&self, of: &Recorded, end: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{}-{}{end}", of.load, of.logs)))
    }

    /// Reports whether the experiment needs no recording that is not there.
    pub(in super::super) fn can_run(&self, experiment: &str) -> bool {
        let Some(recorded) = Recorded::parse(experiment) else { return true };
        self.file(&recorded, ".weirtrace").is_some_and(|path| path.exists())
    }

    /// Reads the recording of an experiment.
    ///
    /// # Errors
    /// Fails if a file is absent or cannot be used.
    pub(super) fn read(&self, of: &Recorded) -> Result<Recording, Failure> {
        let file = |end: &str| {
            self.file(of, end).ok_or_else(|| Failure::usage(format!("there is no recording of {of}"), MAKE))
        };
        let trace = |end: &str| {
            let reader = traces::open(&file(end)?, None, MAKE)?;
            Trace::load(reader, true).map_err(|error| traces::trace_failure(&error))
        };
        let recording = Recording {
            description: self.description(&file(".json")?)?,
            fill: trace("-fill.weirtrace")?,
            load: trace(".weirtrace")?,
        };
        match recording.contradiction(of) {
            Some(why) => Err(Failure::usage(
                format!("{} is of another recording: {why}", file(".json")?.display()),
                MAKE,
            )),
            None => Ok(recording),
        }
    }

    fn description(&self, path: &Path) -> Result<Description, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::os("read", path, &error))?;
        let unusable = |why: &str| {
            Failure::usage(format!("{} does not describe a recording of F2FS: {why}", path.display()), MAKE)
        };
        let found: Description = serde_json::from_str(&text).map_err(|error| unusable(&error.to_string()))?;
        match found.user > 0 && found.scale >= 1.0 && found.scale.is_finite() {
            true => Ok(found),
            false => Err(unusable("its user bytes are 0, or its scale is below 1")),
        }
    }

    /// Describes the recordings of these experiments.
    pub(super) fn notes<'e>(&self, experiments: impl Iterator<Item = &'e Recorded>) -> Vec<String> {
        let note = |of: &Recorded| {
            let Description { scale, direct, kernel, module, seed, .. } =
                self.description(&self.file(of, ".json")?).ok()?;
            let module = if module { " with another F2FS" } else { "" };
            Some(format!(
                "F2FS {}, {} logs: recorded at 1/{scale} of the published sizes, Linux {kernel}{module}, \
                 direct writes: {direct}, seed {seed}",
                of.load, of.logs
            ))
        };
        let mut notes: Vec<String> = experiments.filter_map(note).collect();
        notes.dedup();
        notes
    }
}

/// The device below F2FS.
#[derive(Debug)]
pub(super) struct Device {
    page: Bytes,
    /// Its log, but for sizes.
    log: LayerPlan,
    /// Bytes that the device of table 4.1 takes after the fill before it erases, and its segment.
    free: Bytes,
    segment: Bytes,
    /// The device of figure 4.5.
    ssd: Bytes,
    /// Whether the device heeds discards.
    discards: bool,
}

impl Device {
    /// Reads the parameters.
    ///
    /// # Errors
    /// Fails if one is unusable.
    pub(super) fn new(p: &Parameters) -> Result<Self, Failure> {
        let discards = match p.word("recorded_discards")? {
            "ignored" => false,
            "heeded" => true,
            _ => return Err(unusable("recorded_discards", "is neither ignored nor heeded")),
        };
        Ok(Self {
            page: p.size("page")?,
            log: layer(p, Bytes(0), 0, vec![1.0])?,
            free: p.size("recorded_free")?,
            segment: p.size("recorded_segment")?,
            ssd: p.size("recorded_ssd")?,
            discards,
        })
    }

    /// Plays a recording to the device's log; returns the metrics of the part under the load.
    ///
    /// # Errors
    /// Fails if the log is too small, or if its cleaning is stuck.
    pub(super) fn play(&self, of: &Recorded, recording: Recording, seed: u64) -> Result<Metrics, Failure> {
        let Recording { description, mut fill, mut load } = recording;
        if !self.discards {
            fill.records.retain(|record| record.op != Op::Trim);
            load.records.retain(|record| record.op != Op::Trim);
        }
        let [filled, written] = [&fill, &load].map(|trace| self.pages(trace));
        if written == 0 {
            return Err(Failure::usage(format!("the recording of {of} has no writes"), MAKE));
        }
        let scaled = |size: Bytes| size.0 as f64 / description.scale;
        let (size, segment) = match of.segment {
            // F2FS's own segments do not scale, nor do the device's then.
            Some(segment) => (scaled(self.ssd), Bytes::mib(segment.into())),
            None => {
                let used = (filled * self.page.0) as f64 + scaled(self.free);
                (used / (1.0 - self.log.reserve), Bytes(scaled(self.segment) as u64))
            }
        };
        let requests = fill.records.len() as u64;
        let mut replay = Replay::new(joined(fill, load), 1.0);
        let plan = StackPlan {
            page: self.page,
            layers: vec![LayerPlan { size: Bytes(size as u64), segment, ..self.log.clone() }],
            defragger: None,
            precondition: StackPrecondition::Requests(requests),
            repetition: Repetition {
                warm_up_max: 0.0,
                // Half a page less: a quotient that is rounded must not add a request.
                measured: (written as f64 - 0.5) * self.page.0 as f64 / data_size(&replay).0 as f64,
            },
            seed: Seed(seed),
        };
        let outcome = simulate(&mut replay, &plan)
            .map_err(|error| Failure::from_message(ErrorKind::Usage, &format!("{of}: {error}")))?;
        let user = description.user as f64 / self.page.0 as f64;
        let logs = outcome.layers.iter().flat_map(|layer| &layer.logs);
        let (copied, erases) =
            logs.fold((0, 0), |(copied, erases), log| (copied + log.copied_pages, erases + log.erases));
        // A cleaner that did nothing counts as one that did one thing: 0 has no place among ratios.
        let (copied, erases) = (copied.max(1) as f64, erases.max(1) as f64);
        let received = outcome.user_pages as f64;
        let values = [
            ("fswa", received / user),
            ("flwa", outcome.last_amplification),
            ("tcwa", received * outcome.last_amplification / user),
            ("cleaning", copied / received),
            ("copied", copied / user),
            ("erases", erases),
        ];
        Ok(finite(values.into_iter().map(|(name, value)| (name.to_owned(), value))))
    }

    /// Returns the number of pages that the writes touch.
    fn pages(&self, trace: &Trace) -> u64 {
        let writes = trace.records.iter().filter(|record| record.op == Op::Write);
        let page = self.page.0;
        writes.map(|one| (one.offset.0 + one.len.0).div_ceil(page) - one.offset.0 / page).sum()
    }
}

/// Returns both traces as one.
fn joined(mut first: Trace, second: Trace) -> Trace {
    let end = first.records.last().map_or(Nanos(0), |record| record.at);
    first.records.extend(second.records.into_iter().map(|mut record| {
        record.at += end;
        record
    }));
    first
}
