//! Modules and libraries.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::object::code::Code;

/// A module in a context.
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) code: Arc<Code>,
    /// Function handles by position in the code.
    pub(crate) functions: HashMap<usize, u64>,
    /// Variables: (address, bytes).
    pub(crate) globals: HashMap<String, (u64, u64)>,
    /// The library that owns it, or 0.
    pub(crate) library: u64,
}

/// A library: code that belongs to no context.
pub(crate) struct Library {
    pub(crate) code: Arc<Code>,
    /// Kernel handles by position in the code.
    pub(crate) kernels: HashMap<usize, u64>,
    /// Its module in each context that has used it.
    pub(crate) modules: HashMap<u64, u64>,
    /// The contexts in which one of its kernels was launched.
    pub(crate) launched_in: HashSet<u64>,
    /// Managed variables, which all its modules share: (address, bytes).
    pub(crate) managed: HashMap<String, (u64, u64)>,
}
