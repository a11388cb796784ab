//! Objects that the program creates at one place again and again and never ends, and images that it
//! loads so.

use std::hash::{Hash, Hasher};

use cutape_format::Bytes;
use cutape_model::{ObjectId, Site};
use cutape_registry::Kind;
use rustc_hash::{FxHashMap, FxHasher};

/// As many live objects of one place are looked at more closely.
pub(crate) const SUSPICIOUS: u32 = 8;

/// A place of the program that creates objects of a kind: its address, and the function called.
pub(crate) type Place = (Kind, u64, &'static str);

/// The objects of a place.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) first: Site,
    pub(crate) live: u32,
    pub(crate) bytes: u64,
    pub(crate) newest: ObjectId,
    /// The program has ended one, or used one after it had created the next.
    pub(super) is_managed: bool,
    /// The program has used the newest one, when enough lived to look.
    pub(super) is_used: bool,
}

impl Created {
    /// True if the program seems to have lost its objects: many live, none was ended, and none was
    /// used once the next one existed.
    pub(crate) fn seems_lost(&self) -> bool {
        self.live >= SUSPICIOUS && !self.is_managed
    }

    /// True if none was used. Memory may be used in ways that calls do not show. Streams or events
    /// that were not used may be kept for later: PyTorch creates 128 streams with the first one.
    pub(crate) fn is_reserve(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Stream | Kind::Event) && !self.is_used
    }
}

/// By place, and by image.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    pub(crate) places: FxHashMap<Place, Created>,
    /// How much memory of a context the program has freed.
    pub(super) freed: FxHashMap<ObjectId, u32>,
    /// How many places seem to have lost their objects.
    pub(super) suspicious: usize,
    /// Live modules and libraries by context and fingerprint of the image.
    pub(super) images: FxHashMap<(u64, u64), u32>,
    /// Calls are missing, which may have used what was created before.
    has_gap: bool,
}

impl Growth {
    /// The place of the only memory that lives, if the program has freed other memory of that context;
    /// and how much.
    pub(crate) fn only_memory(&self, context: ObjectId) -> Option<(Place, &Created, u32)> {
        if self.has_gap {
            return None;
        }
        let freed = *self.freed.get(&context)?;
        let memory = self.places.iter();
        let mut living =
            memory.filter(|(place, created)| place.0 == Kind::Memory && created.live > 0);
        let (&place, created) = living.next().filter(|(_, created)| created.live == 1)?;
        living.next().is_none().then_some((place, created, freed))
    }

    /// How many live modules of a context have an image.
    pub(crate) fn of_image(&self, context: u64, fingerprint: u64) -> u32 {
        let count = self.images.get(&(context, fingerprint));
        count.copied().unwrap_or(0)
    }

    /// Calls are missing here: what they have used is not lost, so only objects count that are
    /// created from now on.
    pub(super) fn apply_gap(&mut self) {
        self.places.clear();
        self.suspicious = 0;
        self.has_gap = true;
    }

    pub(super) fn manage(&mut self, place: Place) {
        if let Some(created) = self.places.get_mut(&place)
            && !created.is_managed
        {
            self.suspicious -= usize::from(created.seems_lost());
            created.is_managed = true;
        }
    }
}

/// A number that images of the same bytes have in common; 0 if the bytes are not known.
pub(crate) fn fingerprint(bytes: Bytes<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    match bytes {
        Bytes::Inline(bytes) => bytes.hash(&mut hasher),
        // Equal bytes are stored once.
        Bytes::Blob(blob) => blob.hash(&mut hasher),
        Bytes::InFile(range) => {
            let mut encoded = vec![0; range.encoded_length()];
            if range.encode(&mut encoded).is_none() {
                return 0;
            }
            encoded.hash(&mut hasher);
        }
        Bytes::Hashed(length, hash) => (length, hash).hash(&mut hasher),
        Bytes::Omitted(_) | Bytes::Unreadable => return 0,
    }
    hasher.finish().max(1)
}

/// The kinds of which a program may lose many.
pub(super) fn is_counted(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Memory
            | Kind::Array
            | Kind::MipmappedArray
            | Kind::Stream
            | Kind::Event
            | Kind::Graph
            | Kind::GraphExec
            | Kind::TextureObject
            | Kind::SurfaceObject
            | Kind::Module
            | Kind::Library
    )
}
