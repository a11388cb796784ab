//! What the recorder knows of the driver's state, which several subjects read.

pub(crate) mod captures;
pub(crate) mod contexts;
pub(crate) mod followed_work;
pub(crate) mod functions;
pub(crate) mod graph_copies;
pub(crate) mod leads;

/// In a forked child: objects and work of the parent are not this process's.
pub(crate) fn forget() {
    captures::forget();
    followed_work::forget();
    graph_copies::forget();
}
