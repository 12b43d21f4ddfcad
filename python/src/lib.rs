//! The native part of the Python package `weir`: traces, what they are like, and caches over them.
//!
//! What takes long runs without the interpreter's lock, so that other Python threads go on, and ends soon after its
//! [`Stop`] is set. Results are the very documents that the command line prints with `--json`, as text.
#![forbid(unsafe_code)]

mod caches;
mod input;
mod traces;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;
    use weir_sim::cache::{AdmissionPolicy, COUNTED_AS, EvictionPolicy};

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
        module.add("COUNTED_AS", COUNTED_AS)
    }
}

/// An argument that makes no sense.
fn wrong(message: impl Into<String>) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(message.into())
}

/// A document as text.
fn json(document: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(document).map_err(|error| wrong(error.to_string()))
}
