//! Which host memory of an asynchronous function is looked at when its work is complete.

use core::sync::atomic::{AtomicBool, Ordering};

use cutape_registry::Role;

static CHECKS_SOURCES: AtomicBool = AtomicBool::new(false);

/// Sets whether the sources of copies are read again when these are complete.
pub(crate) fn configure(checks_sources: bool) {
    CHECKS_SOURCES.store(checks_sources, Ordering::Relaxed);
}

/// Whether memory of a parameter with this role is awaited.
pub(crate) fn is_awaited(role: Role) -> bool {
    match role {
        Role::HostWrite(_) => true,
        Role::HostRead(_) => CHECKS_SOURCES.load(Ordering::Relaxed),
        _ => false,
    }
}
