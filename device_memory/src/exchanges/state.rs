//! What is known of memory, and the exchanges in progress: the copies before and after each.

use core::sync::atomic::AtomicUsize;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutape_format::layout::exchange_skip;
use cutape_reach::Area;

use super::host_copies::HostCopies;
use super::known_memory::{KnownMemory, Memory};
use super::ring::{ALIGNMENT, Ring};

/// The exchanges of a process with others.
#[derive(Debug)]
pub(crate) struct Exchanges {
    pub(super) copies: HostCopies,
    pub(super) table: Mutex<Table>,
    /// How many exchanges are pending: while there are none, waits take no lock.
    pub(super) pending_count: AtomicUsize,
}

impl Exchanges {
    /// With that many bytes of memory for copies; `None` if the system has not as many. To be
    /// called before the first call of the driver.
    pub(crate) fn new(length: u64) -> Option<Self> {
        Some(Self {
            copies: HostCopies::map(length)?,
            table: Mutex::new(Table::new(length)),
            pending_count: AtomicUsize::new(0),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) memory: KnownMemory,
    pub(super) ring: Ring,
    /// By thread: the exchange that is between the hooks of its call.
    pub(super) begun: HashMap<u32, Begun>,
    pub(super) pending: Vec<Pending>,
    last_mark: u32,
    /// Contexts in which the driver has refused to write a mark.
    pub(super) without_marks: Vec<u64>,
    /// The context that has page-locked the memory for copies.
    pub(super) registered: Option<u64>,
    /// By thread: memory that its call in progress ends.
    pub(super) ending: HashMap<u32, Vec<Area<Memory>>>,
}

/// Copies of a range of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    pub(super) address: u64,
    pub(super) length: u64,
    /// Places in the ring.
    pub(super) before: u64,
    pub(super) after: u64,
}

/// An exchange whose call is in progress.
#[derive(Debug)]
pub(super) struct Begun {
    /// `None` if nothing is kept.
    pub(super) slot: Option<Slot>,
    pub(super) copies: Vec<Copies>,
    pub(super) stream: u64,
    pub(super) left_out: u64,
    pub(super) reason: u8,
}

/// A place in the ring, which begins with the mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) place: u64,
    pub(super) mark: u32,
}

/// An exchange whose copies were enqueued.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) slot: Slot,
    pub(super) copies: Vec<Copies>,
    pub(super) context: u64,
    pub(super) thread: u32,
    pub(super) number: u64,
    /// The call failed: nothing is written.
    pub(super) is_void: bool,
}

impl Pending {
    pub(super) fn is_complete(&self, copies: &HostCopies) -> bool {
        copies.has_mark(self.slot.place, self.slot.mark)
    }

    pub(super) fn overlaps(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let mut copies = self.copies.iter();
        copies.any(|copies| copies.address < end && start < copies.address + copies.length)
    }
}

impl Table {
    /// With that many bytes of room for copies.
    fn new(room: u64) -> Self {
        Self {
            memory: KnownMemory::new(room),
            ring: Ring::default(),
            begun: HashMap::new(),
            pending: Vec::new(),
            last_mark: 0,
            without_marks: Vec::new(),
            registered: None,
            ending: HashMap::new(),
        }
    }

    /// Places for the copies of ranges in a context, and for the mark.
    pub(super) fn take(
        &mut self,
        ranges: &[(u64, u64)],
        context: u64,
        host_copies: &HostCopies,
    ) -> Result<(Slot, Vec<Copies>), u8> {
        if self.registered.is_none() || self.without_marks.contains(&context) {
            return Err(exchange_skip::REFUSED);
        }
        let mut length = ALIGNMENT;
        let mut copies = Vec::with_capacity(ranges.len());
        for &(address, bytes) in ranges {
            let before = length;
            let after = before + bytes.next_multiple_of(ALIGNMENT);
            length = after + bytes.next_multiple_of(ALIGNMENT);
            copies.push(Copies {
                address,
                length: bytes,
                before,
                after,
            });
        }
        let place = self.ring.take(length).ok_or(exchange_skip::FULL)?;
        for copies in &mut copies {
            copies.before += place;
            copies.after += place;
        }
        // 0 is no mark.
        self.last_mark = self.last_mark.checked_add(1).unwrap_or(1);
        let mark = self.last_mark;
        host_copies.clear_mark(place);
        Ok((Slot { place, mark }, copies))
    }
}
