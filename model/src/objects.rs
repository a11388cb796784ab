//! Objects by handle and generation: which call created them, what they belong to, and when they
//! ended.

use std::cell::Cell;
use std::collections::VecDeque;

use cutape_format::Call;
use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::kinds::{Kinds, PerKind};

/// The largest stream handle that names a default stream (cuda.h: CU_STREAM_PER_THREAD).
pub const STREAM_PER_THREAD: u64 = 2;

/// How long an ended object is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The last that many ended objects of each kind.
    Recent(usize),
    /// The last two objects of each handle.
    PerHandle,
}

/// One generation of one object; stays unique when its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    slot: u32,
    serial: u32,
}

impl ObjectId {
    /// A small number that no other remembered object has: an index for a table beside the objects.
    pub fn index(self) -> usize {
        self.slot as usize
    }

    /// A number that tells objects apart while they are remembered.
    pub fn number(self) -> u32 {
        self.slot.rotate_left(12) ^ self.serial
    }
}

/// A call, as short as history keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Call index.
    pub index: u64,
    /// Exported name.
    pub function: &'static str,
    /// Thread ordinal.
    pub thread: u32,
    /// Return address in the program.
    pub caller: u64,
    /// The id of its call stack; 0 if it has none.
    pub stack: u64,
    /// The result; `None` while in flight.
    pub result: Option<i32>,
}

impl Site {
    /// The site of a call of that function.
    #[inline]
    pub fn of(function: &'static str, call: &Call<'_>) -> Self {
        Self {
            index: call.index,
            function,
            thread: call.thread,
            caller: call.caller,
            stack: call.stack().unwrap_or(0),
            result: call.result(),
        }
    }
}

/// How the handle became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A call of the program created the object and gave the program its ownership.
    Created,
    /// Looked up in its parent, which owns it.
    Found,
    /// A call returned the handle of an object whose creation was not seen.
    FirstSeen,
}

/// The end of an object.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The call that ended it.
    pub site: Site,
    /// The object whose destruction took this one with it; `None`: it was destroyed itself.
    pub by: Option<ObjectId>,
}

/// An object of the driver; `D` is what the user of the table keeps with it.
#[derive(Debug)]
pub struct Object<D> {
    /// What it is.
    pub kind: Kind,
    /// The driver's value for it.
    pub handle: u64,
    /// Counts the objects of this kind, from 1.
    pub generation: u32,
    /// Counts the objects with this handle, from 1, as far back as they are remembered.
    pub handle_use: u32,
    /// How the handle became known.
    pub origin: Origin,
    /// The call that created it, or first returned its handle.
    pub created: Site,
    /// Clock when that call had returned.
    pub created_ticks: u64,
    /// What it ends with.
    pub parent: Option<ObjectId>,
    /// The context that was current when it was created, or its parent's.
    pub context: Option<ObjectId>,
    /// How it was ended itself or with its parent; [`Objects::end_of`] also looks at its context.
    pub end: Option<End>,
    /// Bytes, for what occupies an address range; 0 if not known.
    pub size: u64,
    /// Name in the image.
    pub name: Option<Box<str>>,
    /// The user's own.
    pub data: D,
    /// The object that had this handle before, if it was still thought alive.
    superseded: Option<ObjectId>,
    /// The object that had this handle before.
    earlier: Option<ObjectId>,
    first_child: Option<u32>,
    next: Option<u32>,
    previous: Option<u32>,
}

#[derive(Debug)]
struct Slot<D> {
    serial: u32,
    object: Option<Object<D>>,
}

/// What is known of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Never seen, or forgotten.
    Unknown,
    /// It lives.
    Live(ObjectId),
    /// It has ended, and no call has returned the handle since.
    Ended(ObjectId),
}

impl Lookup {
    /// The object, if it lives.
    pub fn live(self) -> Option<ObjectId> {
        match self {
            Self::Live(id) => Some(id),
            _ => None,
        }
    }

    /// The object, live or ended.
    pub fn known(self) -> Option<ObjectId> {
        match self {
            Self::Live(id) | Self::Ended(id) => Some(id),
            Self::Unknown => None,
        }
    }
}

/// What a new object is created from.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// What it is.
    pub kind: Kind,
    /// The driver's value for it.
    pub handle: u64,
    /// How the handle became known.
    pub origin: Origin,
    /// The call.
    pub created: Site,
    /// Clock when the call had returned.
    pub created_ticks: u64,
    /// What it ends with.
    pub parent: Option<ObjectId>,
    /// The context that it ends with, if that is not its parent.
    pub context: Option<ObjectId>,
}

impl NewObject {
    /// One that ends with nothing else.
    pub fn of(kind: Kind, handle: u64, origin: Origin, created: Site, call: &Call<'_>) -> Self {
        Self {
            kind,
            handle,
            origin,
            created,
            created_ticks: call.leave.map_or(0, |leave| leave.ticks),
            parent: None,
            context: None,
        }
    }
}

/// The handle that was looked up last, and its object.
type LastLookup = Cell<Option<(u64, Option<ObjectId>)>>;

/// All objects.
#[derive(Debug)]
pub struct Objects<D> {
    retention: Retention,
    slots: Vec<Slot<D>>,
    free: Vec<u32>,
    /// The newest object of each handle.
    by_handle: FxHashMap<(Kind, u64), ObjectId>,
    /// Loops ask for the same handles again and again.
    last: PerKind<LastLookup>,
    /// The kinds of which there has been an object.
    seen: Kinds,
    /// The kinds of which an object has ended.
    ended: Kinds,
    versions: PerKind<u64>,
    generations: PerKind<u32>,
    /// Ended objects, the oldest first; empty if they are retained by handle.
    tombstones: PerKind<VecDeque<ObjectId>>,
    /// When a call that may have created an object without showing its handle was last seen.
    unobserved: PerKind<Option<u64>>,
}

impl<D> Objects<D> {
    /// A table without objects.
    pub fn new(retention: Retention) -> Self {
        Self {
            retention,
            slots: Vec::new(),
            free: Vec::new(),
            by_handle: FxHashMap::default(),
            last: PerKind::default(),
            seen: Kinds::default(),
            ended: Kinds::default(),
            versions: PerKind::default(),
            generations: PerKind::default(),
            tombstones: PerKind::default(),
            unobserved: PerKind::default(),
        }
    }

    /// The object, unless it has been forgotten.
    pub fn get(&self, id: ObjectId) -> Option<&Object<D>> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.object.as_ref().filter(|_| slot.serial == id.serial)
    }

    /// As [`Objects::get`].
    pub fn get_mut(&mut self, id: ObjectId) -> Option<&mut Object<D>> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.object.as_mut().filter(|_| slot.serial == id.serial)
    }

    /// The newest object of that kind and handle.
    #[inline]
    pub fn find(&self, kind: Kind, handle: u64) -> Lookup {
        let last = self.last.of(kind);
        let found = match last.get() {
            Some((known, found)) if known == handle => found,
            _ => self.look_up(kind, handle),
        };
        match found {
            None => Lookup::Unknown,
            Some(id) if self.has_ended(kind) && self.end_of(id).is_some() => Lookup::Ended(id),
            Some(id) => Lookup::Live(id),
        }
    }

    #[inline(never)]
    fn look_up(&self, kind: Kind, handle: u64) -> Option<ObjectId> {
        let found = self.by_handle.get(&(kind, handle)).copied();
        self.last.of(kind).set(Some((handle, found)));
        found
    }

    /// As [`Objects::find`]; where a function is expected, a kernel's handle will do
    /// (cuLaunchKernel, Execution Control).
    #[inline]
    pub fn resolve(&self, kind: Kind, handle: u64) -> Lookup {
        let found = self.find(kind, handle);
        if kind == Kind::Function && found.live().is_none() {
            match (self.find(Kind::Kernel, handle), found) {
                (Lookup::Unknown, _) | (Lookup::Ended(_), Lookup::Ended(_)) => {}
                (kernel, _) => return kernel,
            }
        }
        found
    }

    /// The live object of that kind and handle.
    pub fn live(&self, kind: Kind, handle: u64) -> Option<ObjectId> {
        self.find(kind, handle).live()
    }

    /// How many objects of that kind there have been: the generation of the newest.
    pub fn generations(&self, kind: Kind) -> u32 {
        *self.generations.of(kind)
    }

    /// False if there has never been an object of that kind.
    pub fn has_had(&self, kind: Kind) -> bool {
        self.seen.contains(kind)
    }

    /// False if no object of that kind can have ended, itself or with its context.
    #[inline]
    pub fn has_ended(&self, kind: Kind) -> bool {
        self.ended.contains(kind) || self.ended.contains(Kind::Context)
    }

    /// False if no object of these kinds can have ended.
    #[inline]
    pub fn any_has_ended(&self, kinds: Kinds) -> bool {
        self.ended.intersects(kinds) || self.ended.contains(Kind::Context)
    }

    /// As long as this number stays the same, every handle of that kind refers to the same object,
    /// which has neither ended itself nor with its parent.
    #[inline]
    pub fn version(&self, kind: Kind) -> u64 {
        *self.versions.of(kind)
    }

    /// How it ended: itself, with its parent, or with its context.
    pub fn end_of(&self, id: ObjectId) -> Option<End> {
        let object = self.get(id)?;
        if object.end.is_some() {
            return object.end;
        }
        // A library's modules and functions end with the context that they were asked for in.
        let context = object.context.filter(|&context| context != id)?;
        let end = self.get(context)?.end?;
        Some(End {
            site: end.site,
            by: Some(context),
        })
    }

    /// The object whose destruction ended this one, often itself.
    pub fn root_of_end(&self, id: ObjectId) -> Option<ObjectId> {
        Some(self.end_of(id)?.by.unwrap_or(id))
    }

    /// What the object belongs to, the nearest first.
    pub fn ancestors(&self, id: ObjectId) -> impl Iterator<Item = ObjectId> {
        // A parent may have been forgotten and its slot used again, but no chain is that long.
        const LONGEST: usize = 16;
        let parent = |&id: &ObjectId| self.get(id)?.parent;
        std::iter::successors(parent(&id), parent).take(LONGEST)
    }

    /// Adds an object. The older one of that handle, if it was thought alive, ends with all that
    /// belongs to it, because the driver gave its handle out again; these are returned as well.
    pub fn create(&mut self, new: NewObject, data: D) -> (ObjectId, Vec<ObjectId>) {
        let key = (new.kind, new.handle);
        let generation = self.generations.of_mut(new.kind);
        *generation += 1;
        let generation = *generation;
        let earlier = self.by_handle.get(&key).copied();
        let superseded = earlier.filter(|&id| self.end_of(id).is_none());
        let known = earlier.and_then(|id| self.get(id));
        let handle_use = known.map_or(1, |object| object.handle_use + 1);
        if self.retention == Retention::PerHandle
            && let Some(oldest) = known.and_then(|object| object.earlier)
        {
            self.forget(oldest);
        }
        let object = Object {
            kind: new.kind,
            handle: new.handle,
            generation,
            handle_use,
            origin: new.origin,
            created: new.created,
            created_ticks: new.created_ticks,
            parent: new.parent,
            context: new.context,
            end: None,
            size: 0,
            name: None,
            data,
            superseded,
            earlier,
            first_child: None,
            next: None,
            previous: None,
        };
        let id = self.place(object);
        self.link(id, new.parent);
        self.by_handle.insert(key, id);
        self.seen.insert(new.kind);
        self.changed(new.kind);
        let ended = superseded.map_or(Vec::new(), |old| {
            self.unlink(old);
            self.end_tree(old, new.created, None)
        });
        (id, ended)
    }

    /// Puts an object into a free slot.
    fn place(&mut self, object: Object<D>) -> ObjectId {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(free) => free.object = Some(object),
            None => self.slots.push(Slot {
                serial: 0,
                object: Some(object),
            }),
        }
        self.id_of(slot)
    }

    fn changed(&mut self, kind: Kind) {
        self.last.of(kind).set(None);
        *self.versions.of_mut(kind) += 1;
    }

    fn in_slot(&mut self, slot: Option<u32>) -> Option<&mut Object<D>> {
        self.slots.get_mut(slot? as usize)?.object.as_mut()
    }

    /// Puts `child` at the head of its parent's list.
    fn link(&mut self, child: ObjectId, parent: Option<ObjectId>) {
        let Some(parent) = parent.and_then(|parent| self.get_mut(parent)) else {
            return;
        };
        let next = parent.first_child.replace(child.slot);
        if let Some(sibling) = self.in_slot(next) {
            sibling.previous = Some(child.slot);
        }
        if let Some(object) = self.get_mut(child) {
            object.next = next;
        }
    }

    /// Takes an object out of its parent's list.
    fn unlink(&mut self, id: ObjectId) {
        let Some(object) = self.get_mut(id) else {
            return;
        };
        let (next, previous) = (object.next.take(), object.previous.take());
        let parent = object.parent;
        if let Some(sibling) = self.in_slot(next) {
            sibling.previous = previous;
        }
        if let Some(sibling) = self.in_slot(previous) {
            sibling.next = next;
        } else if let Some(parent) = parent.and_then(|parent| self.get_mut(parent))
            && parent.first_child == Some(id.slot)
        {
            parent.first_child = next;
        }
    }

    fn id_of(&self, slot: u32) -> ObjectId {
        let serial = self.slots.get(slot as usize).map_or(0, |slot| slot.serial);
        ObjectId { slot, serial }
    }

    /// The live objects that belong to it directly, the newest first.
    pub fn children(&self, id: ObjectId) -> impl Iterator<Item = ObjectId> {
        let first = self.get(id).and_then(|object| object.first_child);
        let next = |&slot: &u32| self.slots.get(slot as usize)?.object.as_ref()?.next;
        std::iter::successors(first, next).map(|slot| self.id_of(slot))
    }

    /// The object that a destroying call entered at `ticks` means; none if that is an older object
    /// of the handle, which ended when the call that created the newer one returned.
    pub fn meant_by_destroy(&self, id: ObjectId, ticks: u64) -> Option<ObjectId> {
        let object = self.get(id)?;
        // Calls are applied in the order of entry; the destroying one came before the creating one
        // returned.
        (ticks >= object.created_ticks || object.superseded.is_none()).then_some(id)
    }

    /// Takes back the last of several calls that returned the same live handle; false if there was
    /// only one.
    pub(crate) fn close_last_opening(&mut self, id: ObjectId) -> bool {
        let earlier = self.get(id).and_then(|object| object.superseded);
        let Some(earlier) = earlier else { return false };
        let first = self.get(earlier).and_then(|object| object.superseded);
        if let Some(object) = self.get_mut(id) {
            object.superseded = first;
        }
        true
    }

    /// Ends an object and all that belongs to it. Returns every object that ended, itself first.
    pub fn end(&mut self, id: ObjectId, site: Site) -> Vec<ObjectId> {
        if self.get(id).is_none_or(|object| object.end.is_some()) {
            return Vec::new();
        }
        self.unlink(id);
        self.end_tree(id, site, None)
    }

    /// Ends all that belongs to an object, but not the object. Returns every object that ended.
    pub fn end_children(&mut self, id: ObjectId, site: Site) -> Vec<ObjectId> {
        let mut ended = Vec::new();
        let children: Vec<_> = self.children(id).collect();
        for child in children {
            self.unlink(child);
            ended.extend(self.end_tree(child, site, Some(id)));
        }
        ended
    }

    fn end_tree(&mut self, top: ObjectId, site: Site, by: Option<ObjectId>) -> Vec<ObjectId> {
        let mut ended = vec![top];
        let mut next = 0;
        while let Some(&id) = ended.get(next) {
            ended.extend(self.children(id));
            let by = if next == 0 { by } else { by.or(Some(top)) };
            next += 1;
            let Some(object) = self.get_mut(id) else {
                continue;
            };
            object.end = Some(End { site, by });
            (object.first_child, object.next, object.previous) = (None, None, None);
            let kind = object.kind;
            self.ended.insert(kind);
            self.changed(kind);
        }
        if let Retention::Recent(limit) = self.retention {
            for &id in &ended {
                self.bury(id, limit);
            }
        }
        ended
    }

    /// Puts an ended object among those of its kind and forgets the oldest beyond the limit.
    fn bury(&mut self, id: ObjectId, limit: usize) {
        let Some(kind) = self.get(id).map(|object| object.kind) else {
            return;
        };
        let tombstones = self.tombstones.of_mut(kind);
        tombstones.push_back(id);
        if tombstones.len() > limit
            && let Some(oldest) = tombstones.pop_front()
        {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, id: ObjectId) {
        let Some(object) = self.get(id) else { return };
        let key = (object.kind, object.handle);
        if self.by_handle.get(&key) == Some(&id) {
            self.by_handle.remove(&key);
            self.changed(key.0);
        }
        // It is still in its parent's list if it ended with its context.
        self.unlink(id);
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            slot.object = None;
            slot.serial = slot.serial.wrapping_add(1);
            self.free.push(id.slot);
        }
    }

    /// A call succeeded that may have created an object of this kind whose handle was not recorded.
    pub fn note_unobserved(&mut self, kind: Kind, index: u64) {
        *self.unobserved.of_mut(kind) = Some(index);
    }

    /// True if the driver may have given the handle of an ended object out again without our seeing
    /// it.
    pub fn may_be_reused(&self, id: ObjectId) -> bool {
        let (Some(object), Some(end)) = (self.get(id), self.end_of(id)) else {
            return true;
        };
        self.unobserved
            .of(object.kind)
            .is_some_and(|index| index > end.site.index)
    }

    /// All remembered objects, live and ended, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object<D>)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(slot, entry)| {
            let serial = entry.serial;
            Some((ObjectId { slot, serial }, entry.object.as_ref()?))
        })
    }

    /// All live objects of a kind, in order of creation.
    pub fn all_live(&self, kind: Kind) -> Vec<ObjectId> {
        let live = self.iter().filter(|(_, object)| object.kind == kind);
        let mut live: Vec<_> = live.filter(|(_, object)| object.end.is_none()).collect();
        live.sort_by_key(|(_, object)| object.generation);
        live.into_iter().map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4096;
    const SITE: Site = Site {
        index: 0,
        function: "f",
        thread: 0,
        caller: 0,
        stack: 0,
        result: Some(0),
    };

    fn new(kind: Kind, handle: u64, parent: Option<ObjectId>) -> NewObject {
        NewObject {
            kind,
            handle,
            origin: Origin::Created,
            created: SITE,
            created_ticks: 0,
            parent,
            context: None,
        }
    }

    #[test]
    fn memory_is_bounded_by_live_objects() {
        for (retention, first, slots) in [
            (Retention::Recent(LIMIT), 0, 2 * LIMIT + 8),
            (Retention::PerHandle, 1, 2 * 20_000 + 8),
        ] {
            let mut objects = Objects::new(retention);
            let context = objects.create(new(Kind::Context, 1, None), ()).0;
            for round in 0..20_000 {
                let module = objects
                    .create(new(Kind::Module, 100 + round, Some(context)), ())
                    .0;
                let function = objects
                    .create(new(Kind::Function, 100 + round, Some(module)), ())
                    .0;
                assert_eq!(objects.end(module, SITE).len(), 2);
                assert_eq!(objects.root_of_end(function), Some(module));
            }
            assert!(objects.slots.len() <= slots, "{}", objects.slots.len());
            let known = objects.find(Kind::Module, 100).known();
            assert_eq!(known.iter().count(), first);
            let last = objects.find(Kind::Module, 20_099);
            assert!(matches!(last, Lookup::Ended(_)));
            assert_eq!(objects.children(context).count(), 0);
        }
    }

    #[test]
    fn an_object_of_a_reused_handle_supersedes_the_older_one() {
        let mut objects = Objects::new(Retention::PerHandle);
        let mut last: Option<ObjectId> = None;
        for round in 1..100 {
            let (module, superseded) = objects.create(new(Kind::Module, 7, None), ());
            let function = objects.create(new(Kind::Function, 7, Some(module)), ()).0;
            assert_eq!(superseded.first(), last.as_ref());
            assert_eq!(objects.get(module).unwrap().handle_use, round);
            assert_eq!(objects.live(Kind::Function, 7), Some(function));
            assert!(superseded.iter().all(|&id| objects.end_of(id).is_some()));
            last = Some(module);
        }
        assert!(objects.slots.len() <= 6, "{}", objects.slots.len());
    }

    #[test]
    fn siblings_end_in_any_order() {
        let mut objects = Objects::new(Retention::Recent(LIMIT));
        let context = objects.create(new(Kind::Context, 1, None), ()).0;
        let all: Vec<_> = (0..5)
            .map(|n| {
                objects
                    .create(new(Kind::Stream, 10 + n, Some(context)), ())
                    .0
            })
            .collect();
        for at in [2, 4, 0] {
            objects.end(all[at], SITE);
        }
        assert!(objects.children(context).eq([all[3], all[1]]));
        assert_eq!(objects.end(context, SITE).len(), 3);
        assert_eq!(objects.end(context, SITE).len(), 0);
    }

    #[test]
    fn a_kernel_stands_for_a_function() {
        let mut objects = Objects::new(Retention::PerHandle);
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Unknown);
        let kernel = objects.create(new(Kind::Kernel, 5, None), ()).0;
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Live(kernel));
        let function = objects.create(new(Kind::Function, 5, None), ()).0;
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Live(function));
        objects.end(function, SITE);
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Live(kernel));
        objects.end(kernel, SITE);
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Ended(function));
        assert_eq!(objects.resolve(Kind::Kernel, 6), Lookup::Unknown);
    }
}
