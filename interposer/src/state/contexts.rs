//! Which contexts belong to a device's primary context, so that what ends with one ends with that
//! one alone. A table without locks.

use core::sync::atomic::{AtomicU64, Ordering};

use cutape_registry::id;

use crate::driver::ask;
use crate::queries::{current_context, current_device};

/// More contexts than any program was seen to have at once.
const ENTRIES: usize = 64;

/// How a context became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A call created it; it does not end with a primary context.
    Created = 1,
    /// A call retained it as the primary context of its device.
    Retained = 2,
    /// It was current: a primary context that the CUDA runtime has from a private table of the
    /// driver, or a green one.
    Current = 3,
}

struct Entry {
    /// 0 while the entry is free.
    handle: AtomicU64,
    /// The device's ordinal, above it the origin; 0 while they are not known.
    what: AtomicU64,
}

struct Table([Entry; ENTRIES]);

static TABLE: Table = Table::new();

impl Table {
    const fn new() -> Self {
        Self(
            [const {
                Entry {
                    handle: AtomicU64::new(0),
                    what: AtomicU64::new(0),
                }
            }; ENTRIES],
        )
    }

    fn what(&self, context: u64) -> Option<u64> {
        let mut entries = self.0.iter();
        let entry = entries.find(|entry| entry.handle.load(Ordering::Acquire) == context)?;
        Some(entry.what.load(Ordering::Acquire)).filter(|&what| what != 0)
    }

    /// Notes what a context is; not if the table is full.
    fn note(&self, context: u64, device: u64, origin: Origin) {
        let claimed = self.0.iter().find(|entry| {
            let claim =
                entry
                    .handle
                    .compare_exchange(0, context, Ordering::AcqRel, Ordering::Acquire);
            claim.is_ok() || claim == Err(context)
        });
        if let Some(entry) = claimed {
            let what = (origin as u64) << 32 | u64::from(device as u32);
            entry.what.store(what, Ordering::Release);
        }
    }

    fn forget(&self, context: u64) {
        for entry in &self.0 {
            if entry.handle.load(Ordering::Acquire) == context {
                entry.what.store(0, Ordering::Release);
                entry.handle.store(0, Ordering::Release);
            }
        }
    }

    fn is_of_primary(&self, context: u64, device: u64) -> bool {
        let Some(what) = self.what(context) else {
            // It may be any.
            return true;
        };
        what as u32 == device as u32 && what >> 32 != Origin::Created as u64
    }

    fn primary(&self, device: u64) -> Option<u64> {
        let what = (Origin::Retained as u64) << 32 | u64::from(device as u32);
        let mut entries = self.0.iter();
        let entry = entries.find(|entry| entry.what.load(Ordering::Acquire) == what)?;
        Some(entry.handle.load(Ordering::Acquire)).filter(|&context| context != 0)
    }
}

/// After a call that has created a context.
pub(crate) fn created(context: u64) {
    TABLE.note(context, 0, Origin::Created);
}

/// After a call that has retained the primary context of a device.
pub(crate) fn retained(context: u64, device: u64) {
    TABLE.note(context, device, Origin::Retained);
}

/// After a call that has destroyed a context.
pub(crate) fn destroyed(context: u64) {
    TABLE.forget(context);
}

/// The calling thread's context, which is known from then on.
pub(crate) fn known_current() -> u64 {
    let context = current_context();
    if context != 0
        && TABLE.what(context).is_none()
        && let Some(device) = current_device()
    {
        TABLE.note(context, device, Origin::Current);
    }
    context
}

/// Whether a context ends with the primary context of a device; true where that is not known.
pub(crate) fn is_of_primary(context: u64, device: u64) -> bool {
    TABLE.is_of_primary(context, device)
}

/// The primary context of a device, if a call has retained it.
pub(crate) fn primary(device: u64) -> Option<u64> {
    TABLE.primary(device)
}

/// The primary context of a device, if a call has retained it and it has ended, after a call that
/// has released or reset it.
pub(crate) fn ended_primary(device: u64) -> Option<u64> {
    primary(device).filter(|_| has_primary_ended(device))
}

/// Whether a primary context has ended, after a call that has released or reset it: others may hold
/// it still.
pub(crate) fn has_primary_ended(device: u64) -> bool {
    let arguments = |flags| [device, flags, flags + size_of::<i32>() as u64, 0];
    // SAFETY: it writes two ints, the flags and whether it is active.
    let state: Option<[i32; 2]> = unsafe { ask(id::cuDevicePrimaryCtxGetState, arguments) };
    matches!(state, Some([_, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_context_takes_what_is_its_own() {
        let table = Table::new();
        table.note(0x10, 0, Origin::Retained);
        table.note(0x11, 1, Origin::Retained);
        table.note(0x20, 0, Origin::Created);
        table.note(0x21, 1, Origin::Current);
        for (context, of_first, of_second) in [
            (0x10, true, false),
            (0x11, false, true),
            (0x20, false, false),
            (0x21, false, true),
            (0x99, true, true),
        ] {
            let of = [0, 1].map(|device| table.is_of_primary(context, device));
            assert_eq!(of, [of_first, of_second], "{context:#x}");
        }
        assert_eq!(
            [0, 1, 2].map(|device| table.primary(device)),
            [Some(0x10), Some(0x11), None]
        );
        // The driver gives a handle out again, to another device's context.
        table.forget(0x20);
        table.note(0x20, 1, Origin::Retained);
        assert!(table.is_of_primary(0x20, 1) && !table.is_of_primary(0x20, 0));
        table.note(0x21, 0, Origin::Created);
        assert!(!table.is_of_primary(0x21, 1) && !table.is_of_primary(0x21, 0));
    }

    #[test]
    fn a_full_table_knows_nothing_of_others() {
        let table = Table::new();
        for context in 1..=2 * ENTRIES as u64 {
            table.note(context, 0, Origin::Created);
        }
        let last = ENTRIES as u64;
        assert!(!table.is_of_primary(last, 0) && table.is_of_primary(last + 1, 0));
        table.forget(last);
        table.note(last + 1, 0, Origin::Created);
        assert!(!table.is_of_primary(last + 1, 0));
    }
}
