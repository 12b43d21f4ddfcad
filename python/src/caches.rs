//! Simulates caches over a trace.

use crate::input::{Source, Stop};
use crate::traces::eviction;
use crate::{json, wrong};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use weir_model::Bytes;
use weir_sim::cache::{
    self, AdmissionPolicy, AdmissionSettings, BlockSize, CacheConfig, CacheFigures, Setup, Size, WriteMode,
};

/// Configurations of caches, independent of a trace.
#[pyclass(frozen, module = "weir._native")]
pub(crate) struct Caches {
    caches: Vec<CacheConfig>,
    mode: WriteMode,
    block: BlockSize,
}

#[pymethods]
impl Caches {
    /// Each cache is an eviction policy, an admission policy and a size.
    #[new]
    fn new(
        caches: Vec<(String, String, String)>,
        block_size: &str,
        write_mode: &str,
        dirty: &str,
    ) -> PyResult<Self> {
        let block =
            cache::block_size(block_size).map_err(|allowed| wrong(format!("block_size: {allowed}")))?;
        let dirty = cache::share(dirty).map_err(|allowed| wrong(format!("dirty: {allowed}")))?;
        let mode = WriteMode::named(write_mode, dirty).ok_or_else(|| {
            let all = WriteMode::NAMES.join(", ");
            wrong(format!("there is no write mode {write_mode:?}; there are {all}"))
        })?;
        let parsed = |(policy, admission, size): &(String, String, String)| {
            let (eviction, admission) = (eviction(policy)?, admission_policy(admission)?);
            let settings = AdmissionSettings::default();
            Ok(CacheConfig { eviction, admission, settings, size: size_of(size, block)?, mode })
        };
        Ok(Self { caches: caches.iter().map(parsed).collect::<PyResult<_>>()?, mode, block })
    }

    /// The sizes, each in its canonical form.
    #[getter]
    fn sizes(&self) -> Vec<String> {
        self.caches.iter().map(|cache| cache.size.to_string()).collect()
    }

    #[getter]
    fn block_bytes(&self) -> u64 {
        self.block.bytes().0
    }

    /// The share of the cache that may be dirty with write-back.
    #[getter]
    fn dirty(&self) -> Option<f64> {
        self.mode.dirty()
    }
}

fn admission_policy(name: &str) -> PyResult<&'static AdmissionPolicy> {
    AdmissionPolicy::by_name(name).ok_or_else(|| {
        let all: Vec<_> = AdmissionPolicy::ALL.iter().map(|policy| policy.name).collect();
        wrong(format!("there is no admission policy {name:?}; there are {}", all.join(", ")))
    })
}

fn size_of(text: &str, block: BlockSize) -> PyResult<Size> {
    let size = cache::size(text).map_err(|allowed| wrong(format!("size {text:?}: {allowed}")))?;
    if size.fits(block) {
        return Ok(size);
    }
    let (least, most) = (block.bytes(), Bytes(u64::from(u32::MAX) * block.bytes().0));
    Err(wrong(format!("size {text:?} cannot be of blocks of {least}; name sizes from {least} to {most}")))
}

/// A trace in memory, to be played to caches.
#[pyclass(frozen, module = "weir._native")]
pub(crate) struct BlockTrace {
    trace: Arc<cache::BlockTrace>,
    #[pyo3(get)]
    notes: Vec<String>,
    stop: Stop,
}

#[pymethods]
impl BlockTrace {
    /// Reads a trace for these caches.
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        format: Option<&str>,
        strict: bool,
        caches: &Caches,
        stop: &Stop,
    ) -> PyResult<Self> {
        let source = Source::new(path, format, stop)?;
        py.detach(|| {
            let read = |reader| cache::BlockTrace::read(reader, caches.block, strict);
            let (mut trace, tally) = source.read(read)?;
            trace.stop_when(stop.0.clone());
            let notes = tally.notes(trace.requests());
            Ok(Self { trace: Arc::new(trace), notes, stop: stop.clone() })
        })
    }

    /// The number of distinct blocks.
    #[getter]
    fn blocks(&self) -> u32 {
        self.trace.blocks()
    }

    #[getter]
    fn block_bytes(&self) -> u64 {
        self.trace.block().bytes().0
    }

    /// Returns the run of this trace over the caches.
    fn run(&self, caches: &Caches) -> Run {
        let setups: Vec<_> = caches.caches.iter().map(|cache| cache.setup(&self.trace)).collect();
        Run { trace: self.trace.clone(), passes: cache::passes(&setups), setups, stop: self.stop.clone() }
    }
}

/// A run of caches over a trace, divided into passes, which may run in parallel.
#[pyclass(frozen, module = "weir._native")]
pub(crate) struct Run {
    trace: Arc<cache::BlockTrace>,
    setups: Vec<Setup>,
    passes: Vec<Vec<usize>>,
    stop: Stop,
}

#[pymethods]
impl Run {
    /// The number of passes.
    #[getter]
    fn passes(&self) -> usize {
        self.passes.len()
    }

    /// Runs a pass; returns the indices of its caches, and their outcomes.
    fn play(&self, py: Python<'_>, pass: usize) -> PyResult<(Vec<usize>, String)> {
        let pass = self.passes.get(pass).ok_or_else(|| wrong(format!("there is no pass {pass}")))?;
        py.detach(|| {
            let setups: Vec<_> = pass.iter().map(|at| self.setups[*at]).collect();
            let outcomes = cache::play_pass(&self.trace, &setups);
            self.stop.check()?;
            let figures: Vec<CacheFigures> = outcomes.iter().map(Into::into).collect();
            Ok((pass.clone(), json(&figures)?))
        })
    }
}
