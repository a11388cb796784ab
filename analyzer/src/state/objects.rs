//! Objects by handle and generation: who made them, what they hang on, when they ended; dead ones stay as tombstones.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use cutape_registry::Kind;

use super::data::Data;

/// How many dead objects of one kind are remembered.
const TOMBSTONES: usize = 4096;

/// A multiplicative hash: keys are handles of the driver, not an enemy's choice of ours to defend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A map keyed by handles or small numbers.
pub(crate) type HandleMap<K, V> = HashMap<K, V, BuildHasherDefault<HandleHasher>>;

/// One generation of one object; stays unique when its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    slot: u32,
    serial: u32,
}

/// A call, as short as history keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Call index.
    pub(crate) index: u64,
    /// Exported name.
    pub(crate) function: &'static str,
    /// Thread ordinal.
    pub(crate) thread: u32,
    /// Return address in the program.
    pub(crate) caller: u64,
    /// The result; `None` while in flight.
    pub(crate) result: Option<i32>,
}

/// How the handle became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A call of the program made the object and gave the program its ownership.
    Made,
    /// Looked up in its parent, which owns it.
    Found,
    /// Asked for; who made it was not seen.
    Got,
}

/// The end of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The call that ended it.
    pub(crate) site: Site,
    /// The object whose destruction took this one with it; `None`: it was destroyed itself.
    pub(crate) by: Option<ObjectId>,
}

/// An object of the driver.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) handle: u64,
    /// Counts the objects of this kind, from 1.
    pub(crate) generation: u32,
    pub(crate) origin: Origin,
    pub(crate) made: Site,
    /// Clock when the making call had returned.
    pub(crate) made_ticks: u64,
    pub(crate) parent: Option<ObjectId>,
    /// The context that was current when it was made, or its parent's.
    pub(crate) context: Option<ObjectId>,
    pub(crate) end: Option<End>,
    /// Bytes, for what occupies an address range; 0 if not known.
    pub(crate) size: u64,
    /// Name in the image.
    pub(crate) name: Option<Box<str>>,
    pub(crate) data: Data,
    /// The object that had this handle and was still thought alive when this one was made.
    overtaken: Option<ObjectId>,
    first_child: Option<u32>,
    next: Option<u32>,
    previous: Option<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    serial: u32,
    object: Option<Object>,
}

/// What is known of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Never seen, or forgotten.
    Unknown,
    Live(ObjectId),
    Dead(ObjectId),
}

/// What a new object is made from.
#[derive(Debug)]
pub(crate) struct NewObject {
    pub(crate) kind: Kind,
    pub(crate) handle: u64,
    pub(crate) origin: Origin,
    pub(crate) made: Site,
    pub(crate) made_ticks: u64,
    pub(crate) parent: Option<ObjectId>,
    pub(crate) context: Option<ObjectId>,
}

/// A handle, and what it stands for, if anything.
type Known = Cell<Option<(u64, Option<ObjectId>)>>;

/// By kind the handle that was looked up last.
#[derive(Debug)]
struct Recent([Known; 64]);

impl Default for Recent {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Cell::new(None)))
    }
}

impl Recent {
    /// `None` for a kind that has no place here.
    fn of(&self, kind: u8) -> Option<&Known> {
        self.0.get(usize::from(kind))
    }

    /// What the kind's handles stand for has changed.
    fn forget(&self, kind: u8) {
        if let Some(known) = self.of(kind) {
            known.set(None);
        }
    }
}

/// A set of kinds. Those beyond the 63rd share a bit, which then says less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u64);

impl Kinds {
    pub(crate) fn insert(&mut self, kind: Kind) {
        self.0 |= 1 << (kind as u8).min(63);
    }

    fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << (kind as u8).min(63) != 0
    }

    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_handle: HandleMap<(u8, u64), ObjectId>,
    /// The last that was asked for, by kind: loops ask for the same ones again and again.
    recent: Recent,
    /// The kinds of which there has been an object.
    kinds: Kinds,
    /// The kinds of which an object has ended.
    ended_kinds: Kinds,
    /// Counts what changes the meaning of a handle.
    version: u64,
    generations: HandleMap<u8, u32>,
    dead: HandleMap<u8, VecDeque<ObjectId>>,
    /// By kind: when a call that may have made an object without showing us its handle was last seen.
    blind: HandleMap<u8, u64>,
}

impl Objects {
    /// The object, unless it has been forgotten.
    pub(crate) fn get(&self, id: ObjectId) -> Option<&Object> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.serial == id.serial {
            slot.object.as_ref()
        } else {
            None
        }
    }

    pub(crate) fn get_mut(&mut self, id: ObjectId) -> Option<&mut Object> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.serial == id.serial {
            slot.object.as_mut()
        } else {
            None
        }
    }

    /// The newest object of that kind and handle.
    pub(crate) fn find(&self, kind: Kind, handle: u64) -> Lookup {
        let recent = self.recent.of(kind as u8);
        let found = match recent.and_then(Cell::get) {
            Some((known, found)) if known == handle => found,
            _ => {
                let found = self.by_handle.get(&(kind as u8, handle)).copied();
                if let Some(recent) = recent {
                    recent.set(Some((handle, found)));
                }
                found
            }
        };
        let Some(id) = found else {
            return Lookup::Unknown;
        };
        if self.has_ended(kind) && self.is_ended(id) {
            Lookup::Dead(id)
        } else {
            Lookup::Live(id)
        }
    }

    /// False if there has never been an object of that kind.
    pub(crate) fn has_had(&self, kind: Kind) -> bool {
        self.kinds.contains(kind)
    }

    /// False if no object of that kind can have come to an end, be it with the context that it was asked for in.
    #[inline]
    pub(crate) fn has_ended(&self, kind: Kind) -> bool {
        self.ended_kinds.contains(kind) || self.ended_kinds.contains(Kind::Context)
    }

    /// False if no object of these kinds can have come to an end.
    #[inline]
    pub(crate) fn any_has_ended(&self, kinds: Kinds) -> bool {
        self.ended_kinds.intersects(kinds) || self.ended_kinds.contains(Kind::Context)
    }

    /// Another number than before if a handle may mean another object since, or one that has ended.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The live object of that kind and handle.
    pub(crate) fn live(&self, kind: Kind, handle: u64) -> Option<ObjectId> {
        match self.find(kind, handle) {
            Lookup::Live(id) => Some(id),
            _ => None,
        }
    }

    /// Whether there is an [`Objects::end_of`] it.
    fn is_ended(&self, id: ObjectId) -> bool {
        let Some(object) = self.get(id) else {
            return false;
        };
        let context = object.context.filter(|&context| context != id);
        object.end.is_some()
            || context
                .and_then(|context| self.get(context))
                .is_some_and(|context| context.end.is_some())
    }

    /// How it ended; a library's modules and functions also end with the context that they were asked for in.
    pub(crate) fn end_of(&self, id: ObjectId) -> Option<End> {
        let object = self.get(id)?;
        if object.end.is_some() {
            return object.end;
        }
        let context = object.context.filter(|&context| context != id)?;
        let end = self.get(context)?.end?;
        Some(End {
            site: end.site,
            by: Some(context),
        })
    }

    /// The explicit destruction behind the end: the object that was destroyed.
    pub(crate) fn root_of_end(&self, id: ObjectId) -> Option<ObjectId> {
        Some(self.end_of(id)?.by.unwrap_or(id))
    }

    /// A new generation of that handle; an older one that was thought alive is no longer found by its handle.
    pub(crate) fn make(&mut self, new: NewObject) -> ObjectId {
        let key = (new.kind as u8, new.handle);
        let generation = self.generations.entry(new.kind as u8).or_default();
        *generation += 1;
        let generation = *generation;
        let overtaken = self
            .by_handle
            .get(&key)
            .copied()
            .filter(|&id| self.end_of(id).is_none());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let id = ObjectId {
            slot,
            serial: self.slots[slot as usize].serial,
        };
        self.slots[slot as usize].object = Some(Object {
            kind: new.kind,
            handle: new.handle,
            generation,
            origin: new.origin,
            made: new.made,
            made_ticks: new.made_ticks,
            parent: new.parent,
            context: new.context,
            end: None,
            size: 0,
            name: None,
            data: Data::None,
            overtaken,
            first_child: None,
            next: None,
            previous: None,
        });
        if let Some(parent) = new.parent {
            self.adopt(parent, id);
        }
        self.by_handle.insert(key, id);
        self.recent.forget(key.0);
        self.kinds.insert(new.kind);
        self.version += 1;
        if let Some(old) = overtaken {
            // If no overlapping destroy claims it, its end was not seen: it goes without a trace.
            self.unlink(old);
            for dead in self.end_tree(old, new.made, None) {
                self.bury(dead);
            }
        }
        id
    }

    /// Hangs `child` on `parent`.
    fn adopt(&mut self, parent: ObjectId, child: ObjectId) {
        let Some(first) = self.get(parent).map(|object| object.first_child) else {
            return;
        };
        if let Some(first) = first
            && let Some(sibling) = self.slots[first as usize].object.as_mut()
        {
            sibling.previous = Some(child.slot);
        }
        if let Some(object) = self.get_mut(child) {
            object.next = first;
            object.previous = None;
        }
        if let Some(object) = self.get_mut(parent) {
            object.first_child = Some(child.slot);
        }
    }

    /// Takes an object out of its parent's list.
    fn unlink(&mut self, id: ObjectId) {
        let Some((next, previous, parent)) = self
            .get(id)
            .map(|object| (object.next, object.previous, object.parent))
        else {
            return;
        };
        if let Some(next) = next
            && let Some(object) = self.slots[next as usize].object.as_mut()
        {
            object.previous = previous;
        }
        match previous {
            Some(previous) => {
                if let Some(object) = self.slots[previous as usize].object.as_mut() {
                    object.next = next;
                }
            }
            None => {
                if let Some(parent) = parent
                    && let Some(object) = self.get_mut(parent)
                    && object.first_child == Some(id.slot)
                {
                    object.first_child = next;
                }
            }
        }
        if let Some(object) = self.get_mut(id) {
            object.next = None;
            object.previous = None;
        }
    }

    fn id_of(&self, slot: u32) -> ObjectId {
        ObjectId {
            slot,
            serial: self.slots[slot as usize].serial,
        }
    }

    /// The live objects that hang on it directly.
    pub(crate) fn children(&self, id: ObjectId) -> Vec<ObjectId> {
        let mut children = Vec::new();
        let mut next = self.get(id).and_then(|object| object.first_child);
        while let Some(slot) = next {
            children.push(self.id_of(slot));
            next = self.slots[slot as usize]
                .object
                .as_ref()
                .and_then(|object| object.next);
        }
        children
    }

    /// The generation that a destroying call entered at `ticks` means: an older one if the newer was made by a call that
    /// had not yet returned then.
    pub(crate) fn meant_by_destroy(&self, id: ObjectId, ticks: u64) -> Option<ObjectId> {
        let object = self.get(id)?;
        if ticks >= object.made_ticks {
            return Some(id);
        }
        // The destroy came first, whatever the order of entry says; the older one is buried already.
        object.overtaken.is_none().then_some(id)
    }

    /// Ends an object and all that hangs on it. Returns every object that ended, itself first.
    pub(crate) fn end(&mut self, id: ObjectId, site: Site) -> Vec<ObjectId> {
        if self.get(id).is_none_or(|object| object.end.is_some()) {
            return Vec::new();
        }
        self.unlink(id);
        let ended = self.end_tree(id, site, None);
        for &dead in &ended {
            self.bury(dead);
        }
        ended
    }

    /// Ends all that hangs on an object, but not the object.
    pub(crate) fn end_children(&mut self, id: ObjectId, site: Site) -> Vec<ObjectId> {
        let mut ended = Vec::new();
        for child in self.children(id) {
            self.unlink(child);
            ended.extend(self.end_tree(child, site, Some(id)));
        }
        for &dead in &ended {
            self.bury(dead);
        }
        ended
    }

    fn end_tree(&mut self, top: ObjectId, site: Site, by: Option<ObjectId>) -> Vec<ObjectId> {
        self.version += 1;
        let mut ended = vec![top];
        let mut at = 0;
        while at < ended.len() {
            let id = ended[at];
            ended.extend(self.children(id));
            let cause = if at == 0 { by } else { Some(by.unwrap_or(top)) };
            if let Some(kind) = self.get(id).map(|object| object.kind) {
                self.ended_kinds.insert(kind);
            }
            if let Some(object) = self.get_mut(id) {
                object.end = Some(End { site, by: cause });
                object.first_child = None;
                object.next = None;
                object.previous = None;
            }
            at += 1;
        }
        ended
    }

    /// Puts a dead object among the tombstones of its kind and forgets the oldest beyond the limit.
    fn bury(&mut self, id: ObjectId) {
        let Some(kind) = self.get(id).map(|object| object.kind as u8) else {
            return;
        };
        let queue = self.dead.entry(kind).or_default();
        queue.push_back(id);
        if queue.len() > TOMBSTONES
            && let Some(oldest) = queue.pop_front()
        {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, id: ObjectId) {
        let Some(object) = self.get(id) else { return };
        let key = (object.kind as u8, object.handle);
        if self.by_handle.get(&key) == Some(&id) {
            self.by_handle.remove(&key);
            self.recent.forget(key.0);
            self.version += 1;
        }
        let slot = &mut self.slots[id.slot as usize];
        slot.object = None;
        slot.serial = slot.serial.wrapping_add(1);
        self.free.push(id.slot);
    }

    /// A call succeeded that may have made an object of this kind whose handle was not recorded.
    pub(crate) fn note_blind(&mut self, kind: Kind, index: u64) {
        self.blind.insert(kind as u8, index);
    }

    /// True if the handle of a dead object may have been given out again by a call that we could not look into.
    pub(crate) fn may_be_reborn(&self, id: ObjectId) -> bool {
        let (Some(object), Some(end)) = (self.get(id), self.end_of(id)) else {
            return true;
        };
        self.blind
            .get(&(object.kind as u8))
            .is_some_and(|&index| index > end.site.index)
    }

    /// All live objects of a kind, in order of making.
    pub(crate) fn all_live(&self, kind: Kind) -> Vec<ObjectId> {
        let mut all: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| {
                slot.object
                    .as_ref()
                    .is_some_and(|object| object.kind == kind && object.end.is_none())
            })
            .map(|(slot, _)| self.id_of(slot as u32))
            .collect();
        all.sort_by_key(|&id| self.get(id).map(|object| object.generation));
        all
    }
}

/// The word for a kind in messages.
pub(crate) fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Device => "device",
        Kind::Context => "context",
        Kind::Module => "module",
        Kind::Function => "function",
        Kind::Library => "library",
        Kind::Kernel => "kernel",
        Kind::Link => "link state",
        Kind::Stream => "stream",
        Kind::Event => "event",
        Kind::Memory => "memory",
        Kind::HostMemory => "host memory",
        Kind::Registration => "registered host memory",
        Kind::Global => "global variable",
        Kind::Array => "array",
        Kind::MipmappedArray => "mipmapped array",
        Kind::TextureReference => "texture reference",
        Kind::SurfaceReference => "surface reference",
        Kind::TextureObject => "texture object",
        Kind::SurfaceObject => "surface object",
        Kind::Graph => "graph",
        Kind::GraphNode => "graph node",
        Kind::GraphExec => "executable graph",
        Kind::UserObject => "user object",
        Kind::MemoryPool => "memory pool",
        Kind::Allocation => "allocation",
        Kind::Reservation => "address reservation",
        Kind::ExternalMemory => "external memory",
        Kind::ExternalSemaphore => "external semaphore",
        Kind::GraphicsResource => "graphics resource",
        Kind::GreenContext => "green context",
        Kind::ResourceDescriptor => "resource descriptor",
        Kind::LogCallback => "log callback",
        Kind::AsyncCallback => "async callback",
        Kind::EglStream => "EGL stream",
    }
}

impl ObjectId {
    /// A number that tells objects apart while they are remembered.
    pub(crate) fn number(self) -> u32 {
        self.slot.rotate_left(12) ^ self.serial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: Site = Site {
        index: 0,
        function: "f",
        thread: 0,
        caller: 0,
        result: Some(0),
    };

    fn new(kind: Kind, handle: u64, parent: Option<ObjectId>) -> NewObject {
        NewObject {
            kind,
            handle,
            origin: Origin::Made,
            made: SITE,
            made_ticks: 0,
            parent,
            context: None,
        }
    }

    #[test]
    fn memory_is_bounded_by_what_lives() {
        let mut objects = Objects::default();
        let context = objects.make(new(Kind::Context, 1, None));
        for round in 0..20_000 {
            let module = objects.make(new(Kind::Module, 100 + round, Some(context)));
            let function = objects.make(new(Kind::Function, 100 + round, Some(module)));
            assert_eq!(objects.end(module, SITE).len(), 2);
            assert!(objects.root_of_end(function) == Some(module));
        }
        assert!(
            objects.slots.len() <= 2 * TOMBSTONES + 8,
            "{} slots",
            objects.slots.len()
        );
        assert_eq!(objects.find(Kind::Module, 100), Lookup::Unknown);
        assert!(matches!(
            objects.find(Kind::Module, 20_099),
            Lookup::Dead(_)
        ));
        assert!(objects.children(context).is_empty());
    }

    #[test]
    fn siblings_leave_in_any_order() {
        let mut objects = Objects::default();
        let context = objects.make(new(Kind::Context, 1, None));
        let all: Vec<_> = (0..5)
            .map(|n| objects.make(new(Kind::Stream, 10 + n, Some(context))))
            .collect();
        for at in [2, 4, 0] {
            objects.end(all[at], SITE);
        }
        assert_eq!(objects.children(context), [all[3], all[1]]);
        assert_eq!(objects.end(context, SITE).len(), 3);
        assert_eq!(objects.end(context, SITE).len(), 0);
    }
}
