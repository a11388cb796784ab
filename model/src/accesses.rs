//! Accesses to memory that may still run: which bytes work in which stream reads and writes.

use std::ops::Range;

use cutape_registry::Extent;
use rustc_hash::FxHashMap;

use crate::objects::ObjectId;
use crate::order::Order;
use crate::site::Site;

/// How many accesses of an object are remembered.
const KEPT: usize = 16;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessEffect {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It reads or writes, or both.
    Unknown,
}

/// What the access is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A copy.
    Copy,
    /// A copy from pageable memory that may go on when its call has returned.
    Upload,
    /// A memset, or a value that a stream writes.
    Memset,
    /// A kernel that gets the address in a parameter. Which bytes it uses is not known, so the
    /// access stands for the byte at the address.
    Kernel {
        /// The number of the parameter.
        number: u16,
        /// Where the address is in it, if it is a struct.
        member: Option<u16>,
    },
    /// A copy or memset of a graph that is launched.
    Node,
    /// The allocation itself, in the order of a stream.
    Allocation,
}

/// An access of enqueued work to an object's memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The memory.
    pub object: ObjectId,
    /// Its first byte.
    pub address: u64,
    /// Its rows.
    pub extent: Extent,
    /// What is done.
    pub effect: AccessEffect,
    /// What does it.
    pub work: AccessKind,
    /// The function is not an asynchronous one, but may return before the work is complete.
    pub synchronous: bool,
    /// The number of the stream, and of the work.
    pub stream: (u32, u64),
    /// The call.
    pub site: Site,
}

impl Access {
    /// The addresses from the first byte to the last, padding between rows included.
    pub fn span(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.extent.span())
    }

    fn is_flat(&self) -> bool {
        self.extent.rows <= 1 || self.extent.row >= self.extent.pitch
    }

    /// The bytes that both are certain to touch; `None` if there are none, or if that is uncertain.
    pub fn overlap(&self, other: &Self) -> Option<Range<u64>> {
        let (a, b) = (self.span(), other.span());
        let both = a.start.max(b.start)..a.end.min(b.end);
        if both.is_empty() {
            return None;
        }
        match (self.is_flat(), other.is_flat()) {
            (true, true) => Some(both),
            (true, false) => rows_in(other, &both),
            (false, true) => rows_in(self, &both),
            // Two grids share bytes for certain only where they are the same.
            (false, false) => {
                let same = self.address == other.address && self.extent.pitch == other.extent.pitch;
                let row = self.extent.row.min(other.extent.row);
                same.then_some(self.address..self.address.saturating_add(row))
            }
        }
    }

    /// Whether one of them writes; `None` if that is uncertain.
    pub fn conflicts(&self, other: &Self) -> Option<bool> {
        match (self.effect, other.effect) {
            (AccessEffect::Read, AccessEffect::Read) => Some(false),
            (AccessEffect::Write, _) | (_, AccessEffect::Write) => Some(true),
            _ => None,
        }
    }

    /// Whether this access tells all that the other does, being later in the same stream.
    fn replaces(&self, other: &Self) -> bool {
        if self.stream.0 != other.stream.0 {
            return false;
        }
        let (a, b) = (self.span(), other.span());
        let stronger = self.effect == other.effect || self.effect == AccessEffect::Write;
        let certain = matches!(self.work, AccessKind::Kernel { .. })
            == matches!(other.work, AccessKind::Kernel { .. });
        stronger && certain && self.is_flat() && a.start <= b.start && a.end >= b.end
    }
}

/// The first bytes of a row of an access within a range.
fn rows_in(access: &Access, range: &Range<u64>) -> Option<Range<u64>> {
    let Extent { row, pitch, .. } = access.extent;
    let offset = range.start.checked_sub(access.address)?;
    let column = offset.checked_rem(pitch)?;
    let start = match column < row {
        true => range.start,
        // The next row.
        false => range.start.checked_add(pitch - column)?,
    };
    let left = if column < row { row - column } else { row };
    let end = range.end.min(start.saturating_add(left));
    (start < end).then_some(start..end)
}

/// Accesses by the object whose memory they touch; those that are known to be complete are
/// forgotten.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    by_object: FxHashMap<ObjectId, Vec<Access>>,
}

impl Accesses {
    /// Adds one.
    pub fn add(&mut self, access: Access, order: &Order) {
        let known = self.by_object.entry(access.object).or_default();
        known.retain(|old| !access.replaces(old) && !order.is_done(old.stream.0, old.stream.1));
        if known.len() >= KEPT {
            known.remove(0);
        }
        known.push(access);
    }

    /// Those to an object's memory, the oldest first.
    pub fn of(&self, object: ObjectId) -> &[Access] {
        self.by_object.get(&object).map_or(&[], Vec::as_slice)
    }

    /// Forgets an object; returns its accesses.
    pub fn remove(&mut self, object: ObjectId) -> Vec<Access> {
        self.by_object.remove(&object).unwrap_or_default()
    }

    /// The first access that conflicts with this one, which is to be enqueued next in its stream,
    /// and that is not ordered before it.
    pub fn unordered<'a>(&'a self, access: &'a Access, order: &Order) -> Option<&'a Access> {
        let is_kernel = |access: &Access| matches!(access.work, AccessKind::Kernel { .. });
        self.of(access.object).iter().find(|other| {
            // Two kernels may both only read.
            let conflict = match is_kernel(access) && is_kernel(other) {
                true => access.conflicts(other) == Some(true),
                false => access.conflicts(other) != Some(false),
            };
            conflict
                && other.stream.0 != access.stream.0
                && access.overlap(other).is_some()
                && !order.is_before(other.stream, access.stream.0)
        })
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use cutape_registry::Kind;

    use super::*;
    use crate::objects::{NewObject, Objects, Origin, Retention};
    use crate::order::StreamKind;

    fn site() -> Site {
        Site {
            index: 0,
            function: "f",
            thread: 0,
            caller: 0,
            result: Some(0),
            stack: 0,
        }
    }

    #[test]
    fn bytes_that_two_accesses_share() {
        let mut objects: Objects<()> = Objects::new(Retention::PerHandle);
        let new = NewObject {
            kind: Kind::Memory,
            handle: 1,
            origin: Origin::Created,
            created: site(),
            created_ticks: 0,
            parent: None,
            context: None,
            name: None,
        };
        let object = objects.create(new, ()).0;
        let access = |address, extent, effect| Access {
            object,
            address,
            extent,
            effect,
            work: AccessKind::Copy,
            synchronous: false,
            stream: (0, 1),
            site: site(),
        };
        let flat = |address, bytes| access(address, Extent::flat(bytes), AccessEffect::Write);
        // Three rows of 16 bytes, 64 bytes apart.
        let grid = |address| {
            let extent = Extent {
                row: 16,
                pitch: 64,
                rows: 3,
            };
            access(address, extent, AccessEffect::Write)
        };
        for (a, b, shared) in [
            (flat(0, 64), flat(64, 64), None),
            (flat(0, 65), flat(64, 64), Some(64..65)),
            (grid(0), flat(16, 48), None),
            (grid(0), flat(16, 49), Some(64..65)),
            (grid(0), flat(8, 4), Some(8..12)),
            (flat(100, 28), grid(0), None),
            (flat(140, 100), grid(0), Some(140..144)),
            (flat(144, 100), grid(0), None),
            (grid(0), grid(16), None),
            (grid(0), grid(0), Some(0..16)),
            (flat(0, 0), flat(0, 10), None),
        ] {
            assert_eq!(a.overlap(&b), shared, "{a:?} {b:?}");
            assert_eq!(b.overlap(&a), shared, "{b:?} {a:?}");
        }
        // What is ordered, and what is not.
        let mut order = Order::default();
        let [first, second] =
            [(10, 1), (11, 2)].map(|key| order.stream(key, 7, StreamKind::NonBlocking));
        let mut accesses = Accesses::default();
        let on = |mut access: Access, stream, number| {
            access.stream = (stream, number);
            access
        };
        let number = order.submit(first).unwrap();
        accesses.add(on(flat(0, 64), first, number), &order);
        let next = on(access(32, Extent::flat(4), AccessEffect::Read), second, 0);
        assert!(accesses.unordered(&next, &order).is_some());
        let clock = order.clock(first);
        order.wait(second, &clock);
        assert!(accesses.unordered(&next, &order).is_none());
        // The table keeps only what may still run.
        for _ in 0..100 {
            let number = order.submit(first).unwrap();
            accesses.add(on(flat(0, 64), first, number), &order);
        }
        assert_eq!(accesses.of(object).len(), 1);
        for n in 0..100 {
            let number = order.submit(first).unwrap();
            accesses.add(on(flat(64 * n, 64), first, number), &order);
        }
        assert_eq!(accesses.of(object).len(), KEPT);
        order.complete_stream(first);
        accesses.add(on(flat(0, 64), second, 1000), &order);
        assert_eq!(accesses.of(object).len(), 1);
        assert_eq!(accesses.remove(object).len(), 1);
        assert!(accesses.is_empty());
    }
}
