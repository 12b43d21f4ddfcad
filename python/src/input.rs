//! Trace files, and early termination of their reads.

use crate::wrong;
use pyo3::create_exception;
use pyo3::exceptions::{PyInterruptedError, PyIsADirectoryError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_trace::{Format, Reader};

create_exception!(
    weir,
    TraceError,
    PyValueError,
    "A trace that cannot be used: what is wrong, and the way out."
);

/// Makes an exception with the message of the command line.
pub(crate) fn unusable(error: impl Display) -> PyErr {
    TraceError::new_err(error.to_string())
}

/// Terminates the work it was passed to, soon after it is set.
#[pyclass(frozen, module = "weir._native")]
#[derive(Clone, Default)]
pub(crate) struct Stop(pub(crate) Arc<AtomicBool>);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stop {
    /// Fails if it is set: results made meanwhile are incomplete.
    pub(crate) fn check(&self) -> PyResult<()> {
        if self.0.load(Ordering::Relaxed) { Err(PyInterruptedError::new_err("stopped")) } else { Ok(()) }
    }
}

/// An input that ends once it is stopped: the trace then seems truncated, and its results are discarded.
struct Stopped<R> {
    input: R,
    stop: Arc<AtomicBool>,
}

impl<R: Read> Read for Stopped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        self.input.read(buffer)
    }
}

/// A trace file, and how to read it.
pub(crate) struct Source {
    path: PathBuf,
    format: Option<Format>,
    stop: Stop,
}

impl Source {
    pub(crate) fn new(path: PathBuf, format: Option<&str>, stop: &Stop) -> PyResult<Self> {
        let format = format.map(Format::named).transpose().map_err(|error| wrong(error.to_string()))?;
        Ok(Self { path, format, stop: stop.clone() })
    }

    /// Opens the trace and passes its reader to `read`.
    pub(crate) fn read<T, E: Display + From<weir_trace::TraceError>>(
        &self,
        read: impl FnOnce(Reader<'static>) -> Result<T, E>,
    ) -> PyResult<T> {
        let input = Stopped { input: open(&self.path)?, stop: self.stop.0.clone() };
        let input = BufReader::with_capacity(1 << 20, input);
        let reader = Reader::open(self.path.display().to_string(), input, self.format.as_ref());
        let made = reader.map_err(E::from).and_then(read);
        self.stop.check()?;
        made.map_err(unusable)
    }
}

fn open(path: &Path) -> PyResult<File> {
    let file = File::open(path).map_err(|error| refused("open", path, &error))?;
    if file.metadata().is_ok_and(|there| there.is_dir()) {
        return Err(PyIsADirectoryError::new_err(format!(
            "{} is a folder; name a trace in it",
            path.display()
        )));
    }
    Ok(file)
}

/// Makes the exception for a failed system operation, of Python's class for the error.
pub(crate) fn refused(what: &str, path: &Path, error: &io::Error) -> PyErr {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display())).into()
}
