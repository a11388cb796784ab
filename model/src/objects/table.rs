//! The table of objects: by id, by handle, and which kinds there have been.

use std::cell::Cell;
use std::collections::VecDeque;

use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use super::object::{NewObject, Object, ObjectId};
use crate::kinds::{Kinds, PerKind};

/// How long an ended object is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The last that many ended objects of each kind.
    Recent(usize),
    /// The last two objects of each handle.
    PerHandle,
}

#[derive(Clone, Debug)]
pub(super) struct Slot<D> {
    pub(super) serial: u32,
    pub(super) object: Option<Object<D>>,
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

/// The handle that was looked up last, and its object.
type LastLookup = Cell<Option<(u64, Option<ObjectId>)>>;

/// All objects.
#[derive(Clone, Debug)]
pub struct Objects<D> {
    pub(super) retention: Retention,
    pub(super) slots: Vec<Slot<D>>,
    pub(super) free: Vec<u32>,
    /// The newest object of each handle.
    pub(super) by_handle: FxHashMap<(Kind, u64), ObjectId>,
    /// Loops ask for the same handles again and again.
    last: PerKind<LastLookup>,
    /// The kinds of which there has been an object.
    seen: Kinds,
    /// The kinds of which an object has ended.
    pub(super) ended: Kinds,
    versions: PerKind<u64>,
    generations: PerKind<u32>,
    /// Ended objects, the oldest first; empty if they are retained by handle.
    pub(super) tombstones: PerKind<VecDeque<ObjectId>>,
    /// When a call that may have created an object without showing its handle was last seen.
    pub(super) unobserved: PerKind<Option<u64>>,
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

    /// The call that loaded the module or library of a function or kernel.
    pub fn loaded_by(&self, function: u64) -> Option<u64> {
        let id = self.resolve(Kind::Function, function).known()?;
        let mut object = self.get(id)?;
        loop {
            let parent = object.parent.and_then(|parent| self.get(parent));
            object = match (object.kind, parent) {
                (Kind::Library, _) => return Some(object.created.index),
                // cuLibraryGetModule loads nothing.
                (Kind::Module, Some(library)) if library.kind == Kind::Library => library,
                (Kind::Module, _) => return Some(object.created.index),
                (_, parent) => parent?,
            };
        }
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

    /// Adds an object. The older one of that handle, if it was thought alive, ends with all that
    /// belongs to it, because the driver gave its handle out again; these are returned as well. If
    /// its creating call returned later, it lives, and has the handle when the new one has ended.
    pub fn create(&mut self, new: NewObject, data: D) -> (ObjectId, Vec<ObjectId>) {
        let key = (new.kind, new.handle);
        let generation = self.generations.of_mut(new.kind);
        *generation += 1;
        let generation = *generation;
        let earlier = self.by_handle.get(&key).copied();
        let live = earlier.filter(|&id| self.end_of(id).is_none());
        // Calls are applied in the order of entry; handles belong to objects in that of return.
        let later = live.filter(|&id| {
            let object = self.get(id);
            object.is_some_and(|object| object.created_ticks > new.created_ticks)
        });
        let superseded = live.filter(|_| later.is_none());
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
            name: new.name,
            data,
            superseded,
            earlier,
            later,
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

    /// A call has returned the handle of an object whose creation was not seen before, and says what
    /// it is. The object stays, with all that belongs to it.
    pub(crate) fn adopt(&mut self, id: ObjectId, new: NewObject, data: D) {
        let Some(object) = self.get_mut(id) else {
            return;
        };
        object.origin = new.origin;
        object.created = new.created;
        object.created_ticks = new.created_ticks;
        object.context = new.context;
        object.data = data;
        if object.parent != new.parent {
            self.unlink(id);
            if let Some(object) = self.get_mut(id) {
                object.parent = new.parent;
            }
            self.link(id, new.parent);
        }
        self.changed(new.kind);
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

    pub(super) fn id_of(&self, slot: u32) -> ObjectId {
        let serial = self.slots.get(slot as usize).map_or(0, |slot| slot.serial);
        ObjectId { slot, serial }
    }

    pub(super) fn changed(&mut self, kind: Kind) {
        self.last.of(kind).set(None);
        *self.versions.of_mut(kind) += 1;
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
