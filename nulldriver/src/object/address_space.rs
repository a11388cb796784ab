//! Device address space: 32 MiB slots in the highest gaps of the process's map, filled by 2 MiB
//! blocks.
//!
//! As measured on a real driver (580, H200): small allocations share a 2 MiB block, 512 bytes
//! apart; device memory and pinned host memory share slots; the driver honours a reservation's hint
//! exactly when hint and size are multiples of 32 MiB and the range is free; a range that was
//! mapped when `cuInit` ran stays unusable as long as the process lives.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::object::pages::{self, Pages};
use crate::object::shared_file::{IpcHandle, SharedFile, Sharing};

/// Unit and alignment of reserved address space, in bytes.
pub(crate) const SLOT: u64 = 32 << 20;
/// Unit of memory inside a slot, in bytes.
pub(crate) const BLOCK: u64 = 2 << 20;
/// Distance of allocations that share a block.
const GRAIN: u64 = 512;
/// From this size on, an allocation has blocks of its own.
const LARGE: u64 = 1 << 20;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: u32 = 1;
/// Where memory of the default pool was in every process (measured).
pub(crate) const POOL_BASE: u64 = 0x3_0200_0000;
/// The lowest address that a hint may name; 0x200000000 was refused.
const LOWEST: u64 = 0x3_0000_0000;
/// Above this no reservation is made at all.
const HIGHEST: u64 = 0x1_0000_0000_0000;

/// What a block is used for; a block serves one class of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Not accessible to the CPU.
    Device(i32),
    /// Accessible at the same address.
    Host,
    /// As `Device`, for the variables of modules: never in a block with memory that the program
    /// allocated.
    Variable(i32),
    /// As `Host`, for managed memory.
    Managed,
    /// As `Device`, in the low slots of the stream-ordered allocator.
    Pool(i32),
    /// As `Device`, for memory of another process, which has it.
    Imported,
}

/// Where an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The address that the program sees.
    pub(crate) address: u64,
    /// Where this process has its bytes.
    pub(crate) bytes: u64,
}

/// Consecutive blocks used together.
struct Group {
    class: Class,
    size: u64,
    /// The bytes, if the CPU cannot access them at the group's own address.
    pages: Option<Pages>,
    /// The file that has the bytes, once another process may use them.
    file: Option<SharedFile>,
    /// Unused parts (offset to length); `None` if one allocation has the whole group.
    gaps: Option<BTreeMap<u64, u64>>,
}

impl Group {
    fn bytes(&self, base: u64) -> u64 {
        self.pages.as_ref().map_or(base, Pages::base)
    }
}

/// A range that the program has reserved, in bytes.
struct Reservation {
    size: u64,
    /// What was taken from the system for it.
    taken: u64,
}

/// All address space that this library has taken.
pub(crate) struct Space {
    /// Slots for allocations: base to size.
    slots: BTreeMap<u64, u64>,
    /// Blocks in use: base to what they are.
    groups: BTreeMap<u64, Group>,
    /// Ranges of the program's own reservations, by base.
    reservations: BTreeMap<u64, Reservation>,
    /// What was mapped at `cuInit`, in whole slots.
    lost: Vec<Range<u64>>,
}

impl Default for Space {
    fn default() -> Space {
        let mut lost = mapped_now();
        // Taken on the real driver (measured): a reservation with the first of these as its hint
        // got the second.
        lost.push(0x100_0000_0000..0x100_0400_0000);
        Space {
            slots: BTreeMap::new(),
            groups: BTreeMap::new(),
            reservations: BTreeMap::new(),
            lost,
        }
    }
}

impl Space {
    /// Reserves address space for the program, anywhere for a `hint` of 0. `None`: no free range,
    /// or a hint beyond the space.
    pub(crate) fn reserve(&mut self, size: u64, hint: u64) -> Option<u64> {
        if hint >= HIGHEST || size > HIGHEST / 4 {
            return None;
        }
        let honoured = hint >= LOWEST
            && hint.is_multiple_of(SLOT)
            && size.is_multiple_of(SLOT)
            && self.take(hint, size);
        let taken = size.next_multiple_of(SLOT);
        let base = if honoured {
            hint
        } else {
            self.take_anywhere(taken, hint)?
        };
        self.reservations.insert(base, Reservation { size, taken });
        Some(base)
    }

    /// Reserves exactly that range; false if it is not free.
    pub(crate) fn reserve_at(&mut self, base: u64, size: u64) -> bool {
        let is_taken = base.is_multiple_of(BLOCK)
            && size.is_multiple_of(BLOCK)
            && size <= HIGHEST / 4
            && pages::reserve_exactly(base, size);
        if is_taken {
            let taken = size;
            self.reservations.insert(base, Reservation { size, taken });
        }
        is_taken
    }

    /// The size of the reservation that begins there.
    pub(crate) fn reservation_at(&self, base: u64) -> Option<u64> {
        Some(self.reservations.get(&base)?.size)
    }

    /// Whether the range lies in one reservation.
    pub(crate) fn is_reserved(&self, address: u64, size: u64) -> bool {
        let below = self.reservations.range(..=address).next_back();
        let Some(end) = address.checked_add(size) else {
            return false;
        };
        below.is_some_and(|(base, reservation)| end <= base + reservation.size)
    }

    /// Releases a reservation.
    pub(crate) fn unreserve(&mut self, base: u64) {
        if let Some(reservation) = self.reservations.remove(&base) {
            pages::release_range(base, reservation.taken);
        }
    }

    /// Whether the address is in space that this library manages, allocated or not.
    pub(crate) fn is_ours(&self, address: u64) -> bool {
        let slot = self.slots.range(..=address).next_back();
        slot.is_some_and(|(base, size)| address < base + size) || self.is_reserved(address, 1)
    }

    /// Places that many bytes in a block of the class or a new one; `None` if there is no free
    /// range.
    pub(crate) fn allocate(&mut self, class: Class, size: u64) -> Option<Placed> {
        if size > HIGHEST / 4 {
            return None;
        }
        let grains = size.max(1).next_multiple_of(GRAIN);
        if grains <= LARGE {
            let of_class = |(_, group): &(&u64, &mut Group)| group.class == class;
            for (&base, group) in self.groups.iter_mut().filter(of_class) {
                if let Some(offset) = group.gaps.as_mut().and_then(|gaps| take_gap(gaps, grains)) {
                    return Some(Placed {
                        address: base + offset,
                        bytes: group.bytes(base) + offset,
                    });
                }
            }
        }
        let length = size.max(1).checked_next_multiple_of(BLOCK)?;
        let base = self.find_blocks(class, length)?;
        let gaps = (grains <= LARGE).then(|| BTreeMap::from([(grains, length - grains)]));
        let bytes = self.use_blocks(class, base, length, gaps)?;
        Some(Placed {
            address: base,
            bytes,
        })
    }

    /// The same at that address; `None` if it is not free.
    pub(crate) fn allocate_at(&mut self, class: Class, size: u64, address: u64) -> Option<Placed> {
        if size > HIGHEST / 4 || !address.is_multiple_of(GRAIN) {
            return None;
        }
        let grains = size.max(1).next_multiple_of(GRAIN);
        let base = address / BLOCK * BLOCK;
        let offset = address - base;
        let is_small = grains <= LARGE;
        if let Some(group) = self.groups.get_mut(&base) {
            let gaps = group
                .gaps
                .as_mut()
                .filter(|_| is_small && group.class == class)?;
            let bytes = group.pages.as_ref().map_or(base, Pages::base) + offset;
            return take_gap_at(gaps, offset, grains).then_some(Placed { address, bytes });
        }
        let length = size.max(1).checked_add(offset)?;
        let length = length.checked_next_multiple_of(BLOCK)?;
        self.take_slots(base, length)?;
        let gaps = is_small.then(|| {
            let mut gaps = BTreeMap::from([(0, length)]);
            take_gap_at(&mut gaps, offset, grains);
            gaps
        });
        let bytes = self.use_blocks(class, base, length, gaps)? + offset;
        Some(Placed { address, bytes })
    }

    /// Makes unused blocks of a slot a group; the address of its bytes in this process.
    fn use_blocks(
        &mut self,
        class: Class,
        base: u64,
        length: u64,
        gaps: Option<BTreeMap<u64, u64>>,
    ) -> Option<u64> {
        let pages = match class {
            Class::Host | Class::Managed if !pages::open_range(base, length) => return None,
            Class::Host | Class::Managed => None,
            Class::Imported => return None,
            Class::Device(_) | Class::Variable(_) | Class::Pool(_) => {
                Some(Pages::anonymous(length)?)
            }
        };
        let group = Group {
            class,
            size: length,
            pages,
            file: None,
            gaps,
        };
        let bytes = group.bytes(base);
        self.groups.insert(base, group);
        Some(bytes)
    }

    /// Takes what slots lack of a range; `None` if some of it is in use.
    fn take_slots(&mut self, base: u64, length: u64) -> Option<()> {
        let end = base.checked_add(length)?;
        if self.end_of_groups(end)? > base {
            return None;
        }
        let before = self.slots.range(..=base).next_back();
        let mut at = before.map_or(base, |(slot, size)| base.max(slot + size));
        while at < end {
            let next = self.slots.range(at..end).next();
            let (stop, resume) = next.map_or((end, end), |(&slot, size)| (slot, slot + size));
            if at < stop {
                pages::reserve_exactly(at, stop - at).then_some(())?;
                self.slots.insert(at, stop - at);
            }
            at = resume;
        }
        Some(())
    }

    /// Where the last group that begins before an address ends.
    fn end_of_groups(&self, address: u64) -> Option<u64> {
        let last = self.groups.range(..address).next_back();
        last.map_or(Some(0), |(base, group)| base.checked_add(group.size))
    }

    /// Lets other processes use the blocks that an allocation is in, and returns what they find it
    /// by; `None` for memory that is not the device's, or without resources of the system.
    pub(crate) fn share(&mut self, address: u64, size: u64) -> Option<IpcHandle> {
        let (&base, group) = self.groups.range_mut(..=address).next_back()?;
        let (Class::Device(device) | Class::Pool(device)) = group.class else {
            return None;
        };
        if group.file.is_none() {
            let file = SharedFile::new(Sharing::Blocks, group.size, (DEVICE, device))?;
            file.take_over(group.pages.as_ref()?).then_some(())?;
            group.file = Some(file);
        }
        let file = group.file.as_ref()?;
        Some(file.handle(address - base, size))
    }

    /// Places memory that another process has.
    pub(crate) fn import(&mut self, size: u64, pages: Pages) -> Option<Placed> {
        let base = self.find_blocks(Class::Imported, size)?;
        let bytes = pages.base();
        let group = Group {
            class: Class::Imported,
            size,
            pages: Some(pages),
            file: None,
            gaps: None,
        };
        self.groups.insert(base, group);
        Some(Placed {
            address: base,
            bytes,
        })
    }

    /// Releases what `allocate` or `import` placed there for that size.
    pub(crate) fn release(&mut self, address: u64, size: u64) {
        let Some((&base, group)) = self.groups.range_mut(..=address).next_back() else {
            return;
        };
        if let Some(gaps) = &mut group.gaps {
            add_gap(gaps, address - base, size.max(1).next_multiple_of(GRAIN));
            if gaps.get(&0) != Some(&group.size) {
                return;
            }
        }
        let length = group.size;
        if group.pages.is_none() {
            pages::close_range(base, length);
        }
        self.groups.remove(&base);
    }

    /// Bytes of blocks in use for memory of that device.
    pub(crate) fn used(&self, device: i32) -> u64 {
        let of_device = |class| match class {
            Class::Device(owner) | Class::Variable(owner) | Class::Pool(owner) => owner == device,
            Class::Host | Class::Managed | Class::Imported => false,
        };
        self.groups
            .values()
            .filter(|group| of_device(group.class))
            .map(|group| group.size)
            .sum()
    }

    /// Whether an allocation of that size fits into a block that is in use already.
    pub(crate) fn fits_in_use(&self, class: Class, size: u64) -> bool {
        let grains = size.max(1).saturating_add(GRAIN - 1) / GRAIN * GRAIN;
        self.groups.values().any(|group| {
            let has_gap = |gaps: &BTreeMap<u64, u64>| gaps.values().any(|&gap| gap >= grains);
            group.class == class && group.gaps.as_ref().is_some_and(has_gap)
        })
    }

    /// The lowest run of unused blocks, in a slot in use or a new one.
    fn find_blocks(&mut self, class: Class, length: u64) -> Option<u64> {
        let low = matches!(class, Class::Pool(_));
        for (&slot, &size) in &self.slots {
            if (slot < HIGHEST_POOL) != low {
                continue;
            }
            // A group that was placed at its address may begin in the slot before.
            let mut start = self.end_of_groups(slot)?.max(slot);
            for (&base, group) in self.groups.range(slot..slot + size) {
                if base - start >= length {
                    return Some(start);
                }
                start = base + group.size;
            }
            if (slot + size).saturating_sub(start) >= length {
                return Some(start);
            }
        }
        let size = length.checked_next_multiple_of(SLOT)?;
        let base = if low {
            let end = self
                .slots
                .range(..HIGHEST_POOL)
                .next_back()
                .map(|(base, size)| base + size);
            let mut at = end.unwrap_or(POOL_BASE);
            while !self.take(at, size) {
                at += SLOT;
                if at >= HIGHEST_POOL {
                    return None;
                }
            }
            at
        } else {
            self.take_anywhere(size, 0)?
        };
        self.slots.insert(base, size);
        Some(base)
    }

    /// Takes exactly that range from the system.
    fn take(&self, base: u64, size: u64) -> bool {
        let Some(end) = base.checked_add(size) else {
            return false;
        };
        let is_lost = self
            .lost
            .iter()
            .any(|range| range.start < end && base < range.end);
        !is_lost && pages::reserve_exactly(base, size)
    }

    /// Takes the next free range after a refused hint if there was one, else the highest gap.
    fn take_anywhere(&self, size: u64, hint: u64) -> Option<u64> {
        let refused = hint / SLOT * SLOT;
        if refused >= LOWEST {
            for step in 1..64 {
                if self.take(refused + step * SLOT, size) {
                    return Some(refused + step * SLOT);
                }
            }
        }
        pages::reserve_anywhere(size, SLOT)
    }
}

/// Pool slots are below, all others above.
const HIGHEST_POOL: u64 = 0x100_0000_0000;

/// Takes the first gap that is long enough.
fn take_gap(gaps: &mut BTreeMap<u64, u64>, length: u64) -> Option<u64> {
    let (&offset, &gap) = gaps.iter().find(|&(_, &gap)| gap >= length)?;
    gaps.remove(&offset);
    if gap > length {
        gaps.insert(offset + length, gap - length);
    }
    Some(offset)
}

/// Takes that part, if it is in a gap.
fn take_gap_at(gaps: &mut BTreeMap<u64, u64>, offset: u64, length: u64) -> bool {
    let Some((&start, &gap)) = gaps.range(..=offset).next_back() else {
        return false;
    };
    let (end, end_of_gap) = (offset + length, start + gap);
    if end > end_of_gap {
        return false;
    }
    gaps.remove(&start);
    for (from, to) in [(start, offset), (end, end_of_gap)] {
        if from < to {
            gaps.insert(from, to - from);
        }
    }
    true
}

/// Adds a gap and joins it with its neighbours.
fn add_gap(gaps: &mut BTreeMap<u64, u64>, mut offset: u64, mut length: u64) {
    if let Some(after) = gaps.remove(&(offset + length)) {
        length += after;
    }
    if let Some((&before, &gap)) = gaps.range(..offset).next_back()
        && before + gap == offset
    {
        offset = before;
        length += gap;
    }
    gaps.insert(offset, length);
}

/// What the process has mapped, in whole slots; nothing if it cannot be read.
fn mapped_now() -> Vec<Range<u64>> {
    let list = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for mapping in cutape_maps::mappings(&list) {
        let end = mapping.end.checked_next_multiple_of(SLOT);
        let range = mapping.start / SLOT * SLOT..end.unwrap_or(u64::MAX);
        match ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_share_a_block_that_is_reused() {
        let mut space = Space::default();
        let first = space.allocate(Class::Device(0), 256).expect("space");
        let second = space.allocate(Class::Device(0), 256).expect("space");
        assert_eq!(first.address % BLOCK, 0);
        assert_eq!(second.address, first.address + 0x200);
        let host = space.allocate(Class::Host, 4096).expect("space");
        assert_eq!(
            host.address / SLOT,
            first.address / SLOT,
            "pinned memory shares the slot"
        );
        assert_ne!(host.address / BLOCK, first.address / BLOCK);
        assert_eq!((space.used(0), space.used(1)), (BLOCK, 0));
        space.release(first.address, 256);
        assert_eq!(
            space.allocate(Class::Device(0), 100).map(|p| p.address),
            Some(first.address)
        );
        space.release(second.address, 256);
        space.release(first.address, 100);
        assert_eq!(space.used(0), 0);
    }

    #[test]
    fn large_allocations_have_blocks_of_their_own() {
        let mut space = Space::default();
        let big = space.allocate(Class::Device(0), 100 << 20).expect("space");
        let next = space.allocate(Class::Device(0), 3 << 20).expect("space");
        assert_eq!(big.address % SLOT, 0);
        assert!(next.address >= big.address + (100 << 20));
        space.release(big.address, 100 << 20);
        assert_eq!(
            space
                .allocate(Class::Device(0), 50 << 20)
                .map(|p| p.address),
            Some(big.address)
        );
    }

    #[test]
    fn an_allocation_is_where_it_is_wanted_if_that_is_free() {
        let mut space = Space::default();
        let base = 0x6145_0000_0000;
        let rows = [
            (Class::Device(0), base + 0x400, 512, true),
            (Class::Device(0), base + 0x400, 512, false), // taken now
            (Class::Device(0), base, 0x400, true),
            (Class::Host, base + 0x800, 512, false), // another class has the block
            (Class::Device(0), base + BLOCK, 3 << 20, true),
            (Class::Device(0), base + 2 * BLOCK, 3 << 20, false), // in the one before
            (Class::Host, base + 4 * BLOCK, 40 << 20, true),
            (Class::Device(0), base + 3 * BLOCK, 4 << 20, false), // reaches the next one
            (Class::Device(0), base + 3 * BLOCK, 2 << 20, true),
            (Class::Device(0), base + 0x401, 16, false), // no multiple
        ];
        for (class, address, size, is_free) in rows {
            let placed = space.allocate_at(class, size, address);
            let placed = placed.map(|placed| placed.address);
            assert_eq!(placed, is_free.then_some(address), "{address:#x} {size:#x}");
        }
        // What is placed elsewhere overlaps none of them.
        let others = [5 << 20, 30 << 20].map(|size| (space.allocate(Class::Device(0), size), size));
        for (other, size) in others {
            let other = other.expect("space").address;
            assert!(
                other + size <= base || other >= base + (48 << 20),
                "{other:#x}"
            );
        }
        space.release(base + 4 * BLOCK, 40 << 20);
        let again = space.allocate_at(Class::Device(0), 40 << 20, base + 4 * BLOCK);
        assert!(again.is_some(), "the blocks are free again");
    }

    #[test]
    fn a_range_is_reserved_where_it_is_wanted_if_that_is_free() {
        let mut space = Space::default();
        let base = 0x6146_0040_0000;
        assert!(space.reserve_at(base, BLOCK));
        assert!(!space.reserve_at(base, BLOCK));
        // Beside it, in the same slot.
        let host = space.allocate_at(Class::Host, BLOCK, base + BLOCK);
        assert!(host.is_some());
        space.unreserve(base);
        assert!(space.reserve_at(base, BLOCK), "it was released alone");
    }

    #[test]
    fn a_hint_is_honoured_for_whole_free_slots_only() {
        let mut space = Space::default();
        let free = 0x6123_0000_0000;
        let rows = [
            (free, SLOT, true),
            (free, SLOT, false),                    // taken now
            (free + 8 * SLOT + BLOCK, SLOT, false), // hint not a multiple
            (free + 16 * SLOT, 4 << 20, false),     // size not a multiple
            (0x2_0000_0000, SLOT, false),           // below what may be named
            (0x100_0000_0000, SLOT, false),         // taken by the driver
        ];
        for (hint, size, honoured) in rows {
            let got = space.reserve(size, hint).expect("some address");
            assert_eq!(got == hint, honoured, "{hint:#x} {size:#x} -> {got:#x}");
            assert_eq!(got % SLOT, 0);
        }
        assert_eq!(space.reserve(SLOT, HIGHEST), None);
        space.unreserve(free);
        assert_eq!(space.reserve(SLOT, free), Some(free));
    }

    #[test]
    fn what_was_mapped_at_the_start_is_lost() {
        let kept = 0x6200_0000_0000;
        assert!(pages::reserve_exactly(kept, SLOT));
        let mut space = Space::default();
        pages::release_range(kept, SLOT);
        assert_eq!(space.reserve(SLOT, kept), Some(kept + SLOT));
    }
}
