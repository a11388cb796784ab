//! Which object of the replay a recorded handle stands for.

use std::collections::{HashMap, HashSet};

use cutape_registry::Kind;
use rustc_hash::FxBuildHasher;

/// A handle of the recording.
pub(crate) type Key = (Kind, u64);

/// What a handle value stands for now.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The live handle; `None` if the replay could not make it.
    pub live: Option<u64>,
    pub alive: bool,
    /// How many objects had this value before.
    pub generation: u32,
    pub parent: Option<Key>,
    /// The live context that it goes with; 0 if none.
    pub context: u64,
    pub made: u64,
    pub made_by: &'static str,
    pub ended: Option<(u64, &'static str)>,
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

/// Kinds of which a use after the end crashes the real driver, there or later, instead of failing (observed, driver 580: a
/// destroyed context that was pushed crashed the call after it, or the push itself; a launch of a function whose module was
/// unloaded failed in the program, and crashed at replay, twenty times of twenty, where its memory had been given to somebody
/// else by then).
pub(crate) fn crashes_after_end(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Stream | Kind::Event | Kind::Link | Kind::Library | Kind::Context | Kind::Function
    )
}

/// Kinds that end with the context they were made in.
fn dies_with_context(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Module
            | Kind::Function
            | Kind::Stream
            | Kind::Event
            | Kind::Array
            | Kind::MipmappedArray
            | Kind::TextureReference
            | Kind::SurfaceReference
            | Kind::TextureObject
            | Kind::SurfaceObject
    )
}

/// All handles of the recording.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    objects: HashMap<Key, Object, FxBuildHasher>,
    /// How many alive objects have a live handle.
    live: HashMap<Key, u32, FxBuildHasher>,
    /// The alive objects by what they hang on.
    children: HashMap<Key, Keys, FxBuildHasher>,
    /// The alive objects that end with a context, by its live handle.
    in_context: HashMap<u64, Keys, FxBuildHasher>,
    /// How often a function or kernel was made or ended.
    changes: u64,
}

type Keys = HashSet<Key, FxBuildHasher>;

impl Handles {
    /// A call found an object that may be known already.
    pub(crate) fn find(
        &mut self,
        key: Key,
        live: Option<u64>,
        parent: Option<Key>,
        context: u64,
        made: u64,
        made_by: &'static str,
    ) {
        match self.objects.get(&key) {
            Some(old) if old.alive && (old.live == live || live.is_none()) => {}
            _ => self.insert(key, live, parent, context, made, made_by),
        }
    }

    /// A call made an object; what had the handle before has ended unnoticed.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        live: Option<u64>,
        parent: Option<Key>,
        context: u64,
        made: u64,
        made_by: &'static str,
    ) {
        if self.objects.get(&key).is_some_and(|old| old.alive) {
            self.end(key, made, made_by);
        }
        self.changed(key.0);
        let generation = self.objects.get(&key).map_or(0, |old| old.generation + 1);
        if let Some(live) = live {
            *self.live.entry((key.0, live)).or_default() += 1;
        }
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().insert(key);
        }
        if context != 0 && dies_with_context(key.0) {
            self.in_context.entry(context).or_default().insert(key);
        }
        let object = Object {
            live,
            alive: true,
            generation,
            parent,
            context,
            made,
            made_by,
            ended: None,
        };
        self.objects.insert(key, object);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Object> {
        self.objects.get(&key)
    }

    fn changed(&mut self, kind: Kind) {
        self.changes += u64::from(matches!(kind, Kind::Function | Kind::Kernel));
    }

    /// While this number stays the same, every handle of a function or kernel stands for what it stood for.
    #[inline]
    pub(crate) fn changes_of_functions(&self) -> u64 {
        self.changes
    }

    /// The object for which [`Handles::resolve`] says [`Resolved::Live`].
    pub(crate) fn live_object(&self, kind: Kind, value: u64) -> Option<&Object> {
        let of = |kind| {
            let object = self.objects.get(&(kind, value))?;
            (object.alive && object.live.is_some()).then_some(object)
        };
        let kernel = || (kind == Kind::Function).then(|| of(Kind::Kernel)).flatten();
        of(kind).or_else(kernel)
    }

    /// What a handle stands for. A kernel may stand in for a function (cuLaunchKernel, CUDA Driver API).
    pub(crate) fn resolve(&self, kind: Kind, value: u64) -> Resolved {
        let of = |kind| match self.objects.get(&(kind, value)) {
            Some(Object { live: None, .. }) => Resolved::Missing,
            Some(Object {
                live: Some(live),
                alive: true,
                ..
            }) => Resolved::Live(*live),
            Some(Object {
                live: Some(live),
                alive: false,
                ..
            }) => Resolved::Dead(*live),
            None => Resolved::Unknown,
        };
        let own = of(kind);
        if kind != Kind::Function || matches!(own, Resolved::Live(_)) {
            return own;
        }
        match of(Kind::Kernel) {
            Resolved::Unknown => own,
            kernel => kernel,
        }
    }

    /// True if an object that lives has that live handle: a dead one of the same value would hit it.
    pub(crate) fn is_taken(&self, kind: Kind, live: u64) -> bool {
        let count = |kind| self.live.get(&(kind, live)).copied().unwrap_or(0);
        count(kind) > 0 || (kind == Kind::Function && count(Kind::Kernel) > 0)
    }

    /// True if an array lives.
    pub(crate) fn any_array(&self) -> bool {
        let is_array = |kind: Kind| matches!(kind, Kind::Array | Kind::MipmappedArray);
        let mut objects = self.objects.iter();
        objects.any(|(key, object)| object.alive && is_array(key.0))
    }

    /// True if a live handle is that of a kernel, and of no function.
    pub(crate) fn is_live_kernel(&self, live: u64) -> bool {
        let count = |kind| self.live.get(&(kind, live)).copied().unwrap_or(0);
        count(Kind::Kernel) > 0 && count(Kind::Function) == 0
    }

    /// Ends an object and everything that hangs on it; returns the keys that ended.
    pub(crate) fn end(&mut self, key: Key, call: u64, by: &'static str) -> Vec<Key> {
        let mut ended = Vec::new();
        let mut queue = vec![key];
        while let Some(key) = queue.pop() {
            let Some(object) = self.objects.get_mut(&key) else {
                continue;
            };
            if !object.alive {
                continue;
            }
            object.alive = false;
            object.ended = Some((call, by));
            let (live, parent, context) = (object.live, object.parent, object.context);
            self.changed(key.0);
            if let Some(live) = live
                && let Some(count) = self.live.get_mut(&(key.0, live))
            {
                *count = count.saturating_sub(1);
            }
            ended.push(key);
            if let Some(siblings) = parent.and_then(|parent| self.children.get_mut(&parent)) {
                siblings.remove(&key);
            }
            if let Some(others) = self.in_context.get_mut(&context) {
                others.remove(&key);
            }
            queue.extend(self.children.remove(&key).into_iter().flatten());
            if key.0 == Kind::Context
                && let Some(content) = live.and_then(|live| self.in_context.remove(&live))
            {
                queue.extend(content);
            }
        }
        ended
    }

    /// Ends everything of a live context, which itself stays known (a primary context that was released or reset).
    pub(crate) fn end_context_content(
        &mut self,
        context: u64,
        call: u64,
        by: &'static str,
    ) -> Vec<Key> {
        let keys = self.in_context.remove(&context).unwrap_or_default();
        keys.into_iter()
            .flat_map(|key| self.end(key, call, by))
            .collect()
    }

    /// Where a handle comes from and where it ended, in one line.
    pub(crate) fn describe(&self, kind: Kind, value: u64) -> Option<String> {
        let mut found = (kind, self.objects.get(&(kind, value)));
        if found.1.is_none() && kind == Kind::Function {
            found = (Kind::Kernel, self.objects.get(&(Kind::Kernel, value)));
        }
        let object = found.1?;
        let mut text = format!(
            "{} {value:#x}: made by {} at call {}",
            found.0.name(),
            object.made_by,
            object.made
        );
        if object.generation > 0 {
            text += &format!(", the handle value's use number {}", object.generation + 1);
        }
        if let Some((kind, parent)) = object.parent {
            text += &format!(", of {} {parent:#x}", kind.name());
        }
        if let Some((call, by)) = object.ended {
            text += &format!(", ended by {by} at call {call}");
        }
        if object.live.is_none() {
            text += ", not made at replay";
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_values_are_recycled() {
        let mut handles = Handles::default();
        let key = (Kind::Stream, 0x10);
        assert_eq!(handles.resolve(Kind::Stream, 0x10), Resolved::Unknown);
        handles.insert(key, Some(0x99), None, 7, 1, "cuStreamCreate");
        assert_eq!(handles.resolve(Kind::Stream, 0x10), Resolved::Live(0x99));
        assert_eq!(
            handles.resolve(Kind::Event, 0x10),
            Resolved::Unknown,
            "kinds are apart"
        );
        handles.end(key, 2, "cuStreamDestroy");
        assert_eq!(handles.resolve(Kind::Stream, 0x10), Resolved::Dead(0x99));
        assert!(!handles.is_taken(Kind::Stream, 0x99));
        handles.insert(key, Some(0x77), None, 7, 3, "cuStreamCreate");
        assert_eq!(handles.resolve(Kind::Stream, 0x10), Resolved::Live(0x77));
        assert_eq!(handles.get(key).map(|object| object.generation), Some(1));
        assert!(
            handles
                .describe(Kind::Stream, 0x10)
                .unwrap()
                .contains("use number 2")
        );
    }

    #[test]
    fn what_hangs_on_an_object_ends_with_it() {
        let mut handles = Handles::default();
        let context = (Kind::Context, 0x1);
        handles.insert(context, Some(0xc), None, 0, 0, "cuCtxCreate_v4");
        handles.insert(
            (Kind::Module, 0x2),
            Some(0x20),
            None,
            0xc,
            1,
            "cuModuleLoadData",
        );
        handles.insert(
            (Kind::Function, 0x3),
            Some(0x30),
            Some((Kind::Module, 0x2)),
            0xc,
            2,
            "cuModuleGetFunction",
        );
        handles.insert(
            (Kind::Library, 0x4),
            Some(0x40),
            None,
            0,
            3,
            "cuLibraryLoadData",
        );
        handles.insert(
            (Kind::Kernel, 0x5),
            Some(0x50),
            Some((Kind::Library, 0x4)),
            0,
            4,
            "cuLibraryGetKernel",
        );
        let mut ended = handles.end(context, 9, "cuCtxDestroy");
        ended.sort();
        assert_eq!(ended, [context, (Kind::Module, 0x2), (Kind::Function, 0x3)]);
        assert_eq!(handles.resolve(Kind::Function, 0x3), Resolved::Dead(0x30));
        assert_eq!(
            handles.resolve(Kind::Function, 0x5),
            Resolved::Live(0x50),
            "a kernel as a function"
        );
        handles.end((Kind::Library, 0x4), 10, "cuLibraryUnload");
        assert_eq!(handles.resolve(Kind::Function, 0x5), Resolved::Dead(0x50));
        assert!(
            handles
                .end((Kind::Library, 0x4), 11, "cuLibraryUnload")
                .is_empty(),
            "only once"
        );
    }

    #[test]
    fn what_has_ended_or_moved_does_not_end_again() {
        let mut handles = Handles::default();
        let (old, new) = ((Kind::Module, 0x2), (Kind::Module, 0x9));
        let function = (Kind::Function, 0x3);
        for round in 0..3 {
            handles.insert(
                function,
                Some(0x30),
                Some(old),
                0xc,
                round,
                "cuModuleGetFunction",
            );
            assert_eq!(handles.end(function, round, "end"), [function]);
        }
        // The same value again, of another module.
        handles.insert(
            function,
            Some(0x31),
            Some(new),
            0xc,
            4,
            "cuModuleGetFunction",
        );
        for module in [old, new] {
            handles.insert(module, Some(0x20), None, 0xc, 5, "cuModuleLoadData");
        }
        assert_eq!(handles.end(old, 6, "cuModuleUnload"), [old]);
        let mut ended = handles.end_context_content(0xc, 7, "cuDevicePrimaryCtxReset");
        ended.sort();
        assert_eq!(ended, [new, function]);
        assert!(handles.end_context_content(0xc, 8, "again").is_empty());
        assert!(handles.children.values().all(Keys::is_empty));
    }

    #[test]
    fn a_dead_value_that_the_driver_gave_out_again_is_noticed() {
        let mut handles = Handles::default();
        handles.insert(
            (Kind::Module, 1),
            Some(0x50),
            None,
            0,
            0,
            "cuModuleLoadData",
        );
        handles.end((Kind::Module, 1), 1, "cuModuleUnload");
        handles.insert(
            (Kind::Module, 2),
            Some(0x50),
            None,
            0,
            2,
            "cuModuleLoadData",
        );
        assert_eq!(handles.resolve(Kind::Module, 1), Resolved::Dead(0x50));
        assert!(handles.is_taken(Kind::Module, 0x50));
    }

    #[test]
    fn an_object_that_replay_could_not_make_is_missing() {
        let mut handles = Handles::default();
        handles.insert((Kind::Event, 1), None, None, 0, 0, "cuEventCreate");
        assert_eq!(handles.resolve(Kind::Event, 1), Resolved::Missing);
    }
}
