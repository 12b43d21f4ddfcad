//! The native part of the Python package `weir`: traces, their analysis, and cache simulation.
//!
//! Long operations run without the interpreter's lock, so that other Python threads continue, and end soon
//! after their `Stop` is set. Results are the documents that the command line prints with `--json`, as
//! text.
#![forbid(unsafe_code)]

mod caches;
mod input;
mod traces;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;
    use weir_sim::cache::{AdmissionPolicy, COUNTING_VERSION, EvictionPolicy};

    #[pymodule_export]
    use super::caches::{BlockTrace, Caches, Run};
    #[pymodule_export]
    use super::input::{Stop, TraceError};
    #[pymodule_export]
    use super::traces::{Batch, Reader, analyze, formats, generate};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let evictions: Vec<_> = EvictionPolicy::ALL.iter().map(|policy| policy.name).collect();
        let admissions: Vec<_> = AdmissionPolicy::ALL.iter().map(|policy| policy.name).collect();
        module.add("POLICIES", evictions)?;
        module.add("ADMISSIONS", admissions)?;
        module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
        module.add("COUNTED_AS", COUNTING_VERSION)
    }
}

/// Makes the exception for an invalid argument.
fn wrong(message: impl Into<String>) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(message.into())
}

/// Serializes a document.
fn json(document: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(document).map_err(|error| wrong(error.to_string()))
}
