//! One call: its arguments, its answer, and the tables that name the implementations.

pub(crate) mod answer;
pub(crate) mod argument;
pub(crate) mod entry;
pub(crate) mod error_log;
