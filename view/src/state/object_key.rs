//! Names an object by a call that names it.

use cutape_registry::Kind;

/// An object, as a call names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectKey {
    pub(crate) kind: Kind,
    /// The driver's value for it; of memory its first address.
    pub(crate) handle: u64,
    /// The call that names it: handles are reused.
    pub(crate) call: u64,
}
