//! Which object of the replay a recorded handle refers to: the live handle of each object of the
//! model.

use std::collections::HashSet;

use cutape_model::{NewObject, Object, ObjectId, Objects, Origin, Retention, Site};
use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::objects::skip::Root;

/// A handle of the recording.
pub(crate) type Key = (Kind, u64);

/// Something else than the call itself made or ended an object, at that call.
pub(crate) fn other_site(index: u64, function: &'static str) -> Site {
    Site {
        index,
        function,
        thread: 0,
        caller: 0,
        stack: 0,
        result: Some(0),
    }
}

/// What a new object belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Belongs {
    pub parent: Option<Key>,
    /// The live context that it goes with; 0 if none.
    pub context: u64,
}

/// What a recorded handle is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// The live object.
    Live(u64),
    /// It was destroyed; its last live value.
    Dead(u64),
    /// The replay could not make it.
    Missing,
    /// No call of the trace that was re-issued made it.
    Unknown,
}

/// Kinds of which a use after the end crashes the real driver, there or later, instead of failing
/// (observed, driver 580: a destroyed context that was pushed crashed the call after it, or the
/// push itself; a launch of a function whose module was unloaded failed in the program, and crashed
/// at replay, twenty times of twenty, where its memory had been given to somebody else by then).
pub(crate) fn crashes_after_end(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Stream | Kind::Event | Kind::Link | Kind::Library | Kind::Context | Kind::Function
    )
}

/// Kinds that end with the context they were made in. Without a wildcard, so that the compiler asks
/// about a new kind.
fn dies_with_context(kind: Kind) -> bool {
    match kind {
        Kind::Module
        | Kind::Function
        | Kind::Stream
        | Kind::Event
        | Kind::Array
        | Kind::MipmappedArray
        | Kind::TextureReference
        | Kind::SurfaceReference
        | Kind::TextureObject
        | Kind::SurfaceObject => true,
        Kind::Device
        | Kind::Context
        | Kind::Library
        | Kind::Kernel
        | Kind::Link
        | Kind::Memory
        | Kind::HostMemory
        | Kind::Registration
        | Kind::Global
        | Kind::Graph
        | Kind::GraphNode
        | Kind::GraphExec
        | Kind::UserObject
        | Kind::MemoryPool
        | Kind::Allocation
        | Kind::Reservation
        | Kind::ExternalMemory
        | Kind::ExternalSemaphore
        | Kind::GraphicsResource
        | Kind::GreenContext
        | Kind::ResourceDescriptor
        | Kind::LogCallback
        | Kind::AsyncCallback
        | Kind::EglStream => false,
    }
}

/// All handles of the recording.
#[derive(Debug)]
pub(crate) struct Handles {
    /// With the live handle; `None` if the replay could not make the object.
    objects: Objects<Option<u64>>,
    /// How many objects that live have a live handle.
    live: FxHashMap<Key, u32>,
    /// Contexts by live handle.
    contexts: FxHashMap<u64, ObjectId>,
    /// What goes with a context although it belongs to something else, by the context's live
    /// handle: functions of kernels.
    also_in_context: FxHashMap<u64, Vec<ObjectId>>,
    /// Some texture or surface object has had another handle than recorded.
    any_moved_texture: bool,
}

/// The texture or surface object whose recorded handle a value equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedTexture {
    pub kind: Kind,
    /// Its handle here, which differs from the recorded one.
    pub live: u64,
    /// The call that made it.
    pub made: u64,
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            objects: Objects::new(Retention::PerHandle),
            live: FxHashMap::default(),
            contexts: FxHashMap::default(),
            also_in_context: FxHashMap::default(),
            any_moved_texture: false,
        }
    }
}

impl Handles {
    /// A call found an object that may be known already.
    pub(crate) fn find(&mut self, key: Key, live: Option<u64>, belongs: Belongs, site: Site) {
        let known = self.objects.live(key.0, key.1);
        let known = known.and_then(|id| self.objects.get(id));
        match known {
            Some(known) if known.data == live || live.is_none() => {}
            _ => self.insert(key, live, belongs, site),
        }
    }

    /// A call made an object; what had the handle before has ended without a call that shows it.
    pub(crate) fn insert(&mut self, key: Key, live: Option<u64>, belongs: Belongs, site: Site) {
        let (kind, handle) = key;
        let owner = belongs.parent.and_then(|parent| {
            let owner = self.objects.find(parent.0, parent.1);
            owner.live()
        });
        let in_context = belongs.context != 0 && dies_with_context(kind);
        let context = self.contexts.get(&belongs.context);
        let context = context.copied().filter(|_| in_context);
        let new = NewObject {
            kind,
            handle,
            origin: Origin::Created,
            created: site,
            created_ticks: 0,
            parent: owner.or(context),
            context: None,
            name: None,
        };
        let (id, ended) = self.objects.create(new, live);
        self.count_ended(&ended);
        if let Some(live) = live {
            let is_texture = matches!(kind, Kind::TextureObject | Kind::SurfaceObject);
            self.any_moved_texture |= is_texture && live != handle;
            *self.live.entry((kind, live)).or_default() += 1;
            if kind == Kind::Context {
                self.contexts.insert(live, id);
            }
        }
        if in_context
            && belongs
                .parent
                .is_some_and(|parent| !dies_with_context(parent.0))
        {
            let others = self.also_in_context.entry(belongs.context).or_default();
            others.retain(|&other| self.objects.end_of(other).is_none());
            others.push(id);
        }
    }

    /// The newest object that had the handle.
    pub(crate) fn object(&self, key: Key) -> Option<&Object<Option<u64>>> {
        let id = self.objects.find(key.0, key.1).known()?;
        self.objects.get(id)
    }

    /// True if an object that lives has the handle.
    pub(crate) fn is_live(&self, key: Key) -> bool {
        self.objects.live(key.0, key.1).is_some()
    }

    /// The live function or kernel of a handle where a function is expected, and its
    /// live handle.
    #[inline]
    pub(crate) fn live_function(&self, handle: u64) -> Option<(ObjectId, u64)> {
        let id = self.objects.resolve(Kind::Function, handle).live()?;
        Some((id, self.objects.get(id)?.data?))
    }

    /// The live handles of all kernels that live.
    pub(crate) fn live_kernels(&self) -> impl Iterator<Item = u64> {
        let kernels = self.objects.all_live(Kind::Kernel).into_iter();
        kernels.filter_map(|id| self.objects.get(id)?.data)
    }

    /// The call that made the module or library of a live function or kernel.
    pub(crate) fn owner_of_live(&self, live: u64) -> Option<u64> {
        let functions = self.objects.all_live(Kind::Function).into_iter();
        let mut all = functions.chain(self.objects.all_live(Kind::Kernel));
        let is_it = |id: &ObjectId| {
            let object = self.objects.get(*id);
            object.is_some_and(|object| object.data == Some(live))
        };
        let id = all.find(is_it)?;
        self.owner_of_function(self.objects.get(id)?.handle)
    }

    /// The call that loaded the module or library of a function or kernel.
    pub(crate) fn owner_of_function(&self, handle: u64) -> Option<u64> {
        self.objects.loaded_by(handle)
    }

    /// The calls that made the modules and libraries that live.
    pub(crate) fn live_code(&self) -> HashSet<u64> {
        let kinds = [Kind::Module, Kind::Library].into_iter();
        let live = kinds.flat_map(|kind| self.objects.all_live(kind));
        live.filter_map(|id| Some(self.objects.get(id)?.created.index))
            .collect()
    }

    /// The object of a handle. A kernel may be passed as a function (cuLaunchKernel, CUDA Driver
    /// API).
    #[inline]
    pub(crate) fn resolve(&self, kind: Kind, value: u64) -> Resolved {
        let found = self.objects.resolve(kind, value);
        let Some(object) = found.known().and_then(|id| self.objects.get(id)) else {
            return Resolved::Unknown;
        };
        match (object.data, found.live()) {
            (None, _) => Resolved::Missing,
            (Some(live), Some(_)) => Resolved::Live(live),
            (Some(live), None) => Resolved::Dead(live),
        }
    }

    /// The call that made an object which the replay could not make.
    pub(crate) fn root_of_missing(&self, kind: Kind, value: u64) -> Root {
        let id = self.objects.resolve(kind, value).known();
        let object = id.and_then(|id| self.objects.get(id));
        object.map_or(Root::Itself, |object| Root::Object(object.created.index))
    }

    /// True if some texture or surface object has had another handle than recorded.
    #[inline]
    pub(crate) fn any_moved_texture(&self) -> bool {
        self.any_moved_texture
    }

    /// The live texture or surface object with that recorded handle, if its handle here differs.
    /// `Err` if one of each kind has the recorded handle, and their handles here differ.
    pub(crate) fn moved_texture(&self, recorded: u64) -> Result<Option<MovedTexture>, ()> {
        let named = [Kind::TextureObject, Kind::SurfaceObject].map(|kind| {
            let object = self.objects.get(self.objects.live(kind, recorded)?)?;
            Some(MovedTexture {
                kind,
                live: object.data?,
                made: object.created.index,
            })
        });
        let named = match named {
            [Some(one), Some(other)] if one.live != other.live => return Err(()),
            [one, other] => one.or(other),
        };
        Ok(named.filter(|named| named.live != recorded))
    }

    fn count(&self, kind: Kind, live: u64) -> u32 {
        self.live.get(&(kind, live)).copied().unwrap_or(0)
    }

    /// True if an object that lives has that live handle: a dead one of the same value would hit
    /// it.
    pub(crate) fn is_taken(&self, kind: Kind, live: u64) -> bool {
        self.count(kind, live) > 0 || (kind == Kind::Function && self.count(Kind::Kernel, live) > 0)
    }

    /// True if no more than one context is known to live.
    pub(crate) fn is_one_context(&self) -> bool {
        self.contexts.len() <= 1
    }

    /// True if an array lives.
    pub(crate) fn any_array(&self) -> bool {
        let lives = |kind| !self.objects.all_live(kind).is_empty();
        lives(Kind::Array) || lives(Kind::MipmappedArray)
    }

    /// True if a live handle is that of a kernel, and of no function.
    pub(crate) fn is_live_kernel(&self, live: u64) -> bool {
        self.count(Kind::Kernel, live) > 0 && self.count(Kind::Function, live) == 0
    }

    /// Ends an object and everything that belongs to it; returns the keys that ended.
    pub(crate) fn end(&mut self, key: Key, site: Site) -> Vec<Key> {
        let Some(id) = self.objects.live(key.0, key.1) else {
            return Vec::new();
        };
        let live = self.objects.get(id).and_then(|object| object.data);
        let ended = self.objects.end(id, site);
        let mut keys = self.count_ended(&ended);
        if key.0 == Kind::Context
            && let Some(live) = live
        {
            self.contexts.remove(&live);
            keys.extend(self.end_also_in_context(live, site));
        }
        keys
    }

    /// Ends everything of a live context, which itself stays known (a primary context that was
    /// released or reset).
    pub(crate) fn end_context_content(&mut self, context: u64, site: Site) -> Vec<Key> {
        let Some(&id) = self.contexts.get(&context) else {
            return Vec::new();
        };
        let ended = self.objects.end_children(id, site);
        let mut keys = self.count_ended(&ended);
        keys.extend(self.end_also_in_context(context, site));
        keys
    }

    fn end_also_in_context(&mut self, context: u64, site: Site) -> Vec<Key> {
        let others = self.also_in_context.remove(&context).unwrap_or_default();
        let mut keys = Vec::new();
        for id in others {
            if self.objects.end_of(id).is_none() {
                let ended = self.objects.end(id, site);
                keys.extend(self.count_ended(&ended));
            }
        }
        keys
    }

    fn count_ended(&mut self, ended: &[ObjectId]) -> Vec<Key> {
        let objects = ended.iter().filter_map(|&id| self.objects.get(id));
        let mut keys = Vec::new();
        for object in objects {
            keys.push((object.kind, object.handle));
            if let Some(live) = object.data
                && let Some(count) = self.live.get_mut(&(object.kind, live))
            {
                *count = count.saturating_sub(1);
            }
        }
        keys
    }

    /// Where a handle comes from and where it ended, in one line.
    pub(crate) fn describe(&self, kind: Kind, value: u64) -> Option<String> {
        let kernel = || {
            self.object((Kind::Kernel, value))
                .filter(|_| kind == Kind::Function)
        };
        let object = self.object((kind, value)).or_else(kernel)?;
        let name = object.kind.name();
        let made = object.created;
        let mut text = format!(
            "{name} {value:#x}: created by {} at call {}",
            made.function, made.index
        );
        if object.handle_use > 1 {
            text += &format!(", the handle value's use number {}", object.handle_use);
        }
        let parent = object.parent.and_then(|parent| self.objects.get(parent));
        if let Some(parent) = parent.filter(|parent| parent.kind != Kind::Context) {
            text += &format!(", of {} {:#x}", parent.kind.name(), parent.handle);
        }
        if let Some(end) = &object.end {
            text += &format!(
                ", ended by {} at call {}",
                end.site.function, end.site.index
            );
        }
        if object.data.is_none() {
            text += ", not made at replay";
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: Key = (Kind::Context, 0x1);

    /// Handles with an object of each line, made by some call: key, live handle, parent, live
    /// context.
    fn handles(objects: &[(Key, u64, Option<Key>, u64)]) -> Handles {
        let mut handles = Handles::default();
        for &(key, live, parent, context) in objects {
            let belongs = Belongs { parent, context };
            handles.insert(key, Some(live), belongs, other_site(1, "cuInit"));
        }
        handles
    }

    #[test]
    fn handle_values_are_recycled() {
        let key = (Kind::Stream, 0x10);
        let mut handles = handles(&[(key, 0x99, None, 7)]);
        let resolved = |handles: &Handles| handles.resolve(Kind::Stream, 0x10);
        assert_eq!(resolved(&handles), Resolved::Live(0x99));
        assert_eq!(handles.resolve(Kind::Event, 0x10), Resolved::Unknown);
        handles.end(key, other_site(2, "cuStreamDestroy_v2"));
        assert_eq!(resolved(&handles), Resolved::Dead(0x99));
        assert!(!handles.is_taken(Kind::Stream, 0x99));
        let create = other_site(3, "cuStreamCreate");
        handles.insert(key, Some(0x77), Belongs::default(), create);
        assert_eq!(resolved(&handles), Resolved::Live(0x77));
        let text = handles.describe(Kind::Stream, 0x10).unwrap();
        assert!(
            text.ends_with("at call 3, the handle value's use number 2"),
            "{text}"
        );
    }

    #[test]
    fn what_belongs_to_an_object_ends_with_it() {
        let (module, library) = ((Kind::Module, 0x2), (Kind::Library, 0x4));
        let (function, kernel) = ((Kind::Function, 0x3), (Kind::Kernel, 0x5));
        let of_kernel = (Kind::Function, 0x6);
        let mut handles = handles(&[
            (CONTEXT, 0xc, None, 0),
            (module, 0x20, None, 0xc),
            (function, 0x30, Some(module), 0xc),
            (library, 0x40, None, 0),
            (kernel, 0x50, Some(library), 0),
            (of_kernel, 0x60, Some(kernel), 0xc),
        ]);
        let mut ended = handles.end(CONTEXT, other_site(9, "cuCtxDestroy_v2"));
        ended.sort();
        assert_eq!(ended, [CONTEXT, module, function, of_kernel]);
        for (handle, resolved) in [
            (0x3, Resolved::Dead(0x30)),
            // A kernel as a function.
            (0x5, Resolved::Live(0x50)),
            (0x6, Resolved::Dead(0x60)),
        ] {
            assert_eq!(handles.resolve(Kind::Function, handle), resolved);
        }
        let unload = other_site(10, "cuLibraryUnload");
        assert_eq!(handles.end(library, unload), [library, kernel]);
        assert_eq!(handles.resolve(Kind::Function, 0x5), Resolved::Dead(0x50));
        assert!(handles.end(library, unload).is_empty(), "only once");
    }

    #[test]
    fn what_has_ended_or_moved_does_not_end_again() {
        let (old, new) = ((Kind::Module, 0x2), (Kind::Module, 0x9));
        let function = (Kind::Function, 0x3);
        let mut handles = handles(&[
            (CONTEXT, 0xc, None, 0),
            (old, 0x20, None, 0xc),
            (new, 0x21, None, 0xc),
            (function, 0x30, Some(old), 0xc),
            // The same value again, of another module.
            (function, 0x31, Some(new), 0xc),
        ]);
        assert_eq!(handles.end(old, other_site(6, "cuModuleUnload")), [old]);
        let reset = other_site(7, "cuDevicePrimaryCtxReset_v2");
        let mut ended = handles.end_context_content(0xc, reset);
        ended.sort();
        assert_eq!(ended, [new, function]);
        assert!(handles.end_context_content(0xc, reset).is_empty());
        assert_eq!(handles.resolve(Kind::Context, 0x1), Resolved::Live(0xc));
    }

    #[test]
    fn a_dead_value_that_the_driver_gave_out_again_is_noticed() {
        let (first, second) = ((Kind::Module, 1), (Kind::Module, 2));
        let mut handles = handles(&[(first, 0x50, None, 0)]);
        handles.end(first, other_site(1, "cuModuleUnload"));
        let load = other_site(2, "cuModuleLoadData");
        handles.insert(second, Some(0x50), Belongs::default(), load);
        assert_eq!(handles.resolve(Kind::Module, 1), Resolved::Dead(0x50));
        assert!(handles.is_taken(Kind::Module, 0x50));
    }

    #[test]
    fn a_texture_is_found_by_its_recorded_handle() {
        let (texture, surface) = (Kind::TextureObject, Kind::SurfaceObject);
        let mut handles = handles(&[((texture, 1), 1, None, 0), ((surface, 2), 2, None, 0)]);
        assert!(!handles.any_moved_texture());
        for (key, live) in [
            ((texture, 3), 7),
            ((texture, 4), 8),
            ((surface, 4), 8),
            ((texture, 5), 9),
            ((surface, 5), 5),
            ((texture, 6), 10),
        ] {
            let site = other_site(11, "cuTexObjectCreate");
            handles.insert(key, Some(live), Belongs::default(), site);
        }
        handles.end((texture, 6), other_site(12, "cuTexObjectDestroy"));
        assert!(handles.any_moved_texture());
        for (recorded, live) in [
            (1, Ok(None)),
            (2, Ok(None)),
            (3, Ok(Some(7))),
            // One of each kind, with the same handle here.
            (4, Ok(Some(8))),
            // And with different ones.
            (5, Err(())),
            // Destroyed.
            (6, Ok(None)),
            (7, Ok(None)),
        ] {
            let found = handles.moved_texture(recorded);
            assert_eq!(
                found.map(|found| found.map(|found| found.live)),
                live,
                "{recorded}"
            );
        }
    }

    #[test]
    fn an_object_that_replay_could_not_make_is_missing() {
        let mut handles = Handles::default();
        let create = other_site(0, "cuEventCreate");
        handles.insert((Kind::Event, 1), None, Belongs::default(), create);
        assert_eq!(handles.resolve(Kind::Event, 1), Resolved::Missing);
    }
}
