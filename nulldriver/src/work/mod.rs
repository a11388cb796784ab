//! Work that a stream, a graph or a call does: checked first, then done.

pub(crate) mod batch;
pub(crate) mod compile;
pub(crate) mod copy;
pub(crate) mod graph_launch;
pub(crate) mod host_function;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod launch_attribute;
pub(crate) mod memory_operation;
pub(crate) mod memset;
pub(crate) mod node;
pub(crate) mod nondeterminism;
pub(crate) mod schedule;
pub(crate) mod value_wait;
