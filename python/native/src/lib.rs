//! Traces for Python: the module `cutape._native` of the package `cutape`.
//!
//! [`trace`] opens traces, [`calls`] iterates over their calls, [`table`] has the tables of
//! `cutape-export` as Arrow data. What needs no trace in memory (check, replay, record) is Python
//! code of the package.
//!
//! Invariant: no unsafe code; what goes wrong is a Python exception.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

mod call;
mod calls;
mod error;
mod table;
mod table_writer;
mod trace;
mod value;

use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::calls::Calls;
    #[pymodule_export]
    use crate::error::{DamagedTrace, Error, NewerVersion, NotATrace};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::trace::{Thread, Trace, open, recorded_process, schema};
    #[pymodule_export]
    use crate::value::Blob;
}
