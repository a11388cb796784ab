//! An object, and what it is created from.

use cutape_format::Call;
use cutape_registry::Kind;

use crate::site::Site;

/// One generation of one object; stays unique when its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    pub(super) slot: u32,
    pub(super) serial: u32,
}

impl ObjectId {
    /// A small number that no other remembered object has: an index for a table beside the objects.
    pub fn index(self) -> usize {
        self.slot as usize
    }

    /// A number that no other object has.
    pub fn serial_number(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.serial)
    }

    /// A number that tells objects apart while they are remembered.
    pub fn number(self) -> u32 {
        self.slot.rotate_left(12) ^ self.serial
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
#[derive(Clone, Debug)]
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
    /// How it was ended itself or with its parent; [`super::Objects::end_of`] also looks at its
    /// context.
    pub end: Option<End>,
    /// Bytes, for what occupies an address range; 0 if not known.
    pub size: u64,
    /// Name in the image.
    pub name: Option<Box<str>>,
    /// The user's own.
    pub data: D,
    /// The object that had this handle before, if it was still thought alive.
    pub(super) superseded: Option<ObjectId>,
    /// The object that had this handle before.
    pub(super) earlier: Option<ObjectId>,
    /// The object that has this handle afterwards: its creating call was entered before this one's,
    /// and returned later.
    pub(super) later: Option<ObjectId>,
    pub(super) first_child: Option<u32>,
    pub(super) next: Option<u32>,
    pub(super) previous: Option<u32>,
}

/// What a new object is created from.
#[derive(Clone, Debug)]
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
    /// Its name in the image.
    pub name: Option<Box<str>>,
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
            name: None,
        }
    }
}
