//! What the recording does not tell any more, once the program has done something else: which memory
//! may hold other bytes, and which kernels have other code.
//!
//! A launch writes all memory that it is given, and the variables of modules; a graph launch writes
//! everything. So kernels are taken to reach memory through their parameters, or by such variables.

use std::sync::Arc;

use cutape_diff::Used;
use cutape_registry::{Family, Function, GraphOp, Kind, MemoryOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Why something is unknown: since which call.
pub(crate) type Since = Arc<str>;

#[derive(Debug, Default)]
pub(crate) struct Unknown {
    /// By object: another one of its group. What a texture reads, it shares a group with.
    groups: FxHashMap<u32, u32>,
    /// By the object that stands for the group.
    since: FxHashMap<u32, Since>,
    /// The program can read it without a call.
    visible: FxHashMap<u32, Used>,
    globals: FxHashSet<u32>,
    /// The first call that was not the recorded one.
    first: Option<Since>,
    everything: Option<Since>,
    /// By index of the recorded call: one in its place has not returned.
    changed: FxHashMap<u64, Since>,
}

impl Unknown {
    fn group(&self, object: u32) -> u32 {
        let mut at = object;
        while let Some(&next) = self.groups.get(&at) {
            at = next;
        }
        at
    }

    fn join(&mut self, one: u32, other: u32) {
        let [one, other] = [one, other].map(|object| self.group(object));
        if one != other {
            self.groups.insert(other, one);
            if let Some(since) = self.since.remove(&other) {
                self.since.entry(one).or_insert(since);
            }
        }
    }

    /// Since when an object is unknown.
    pub(crate) fn since(&self, used: &Used) -> Option<Since> {
        if !used.kind.has_memory() && !used.kind.has_code() {
            return None;
        }
        let of_object = self.since.get(&self.group(used.number)).cloned();
        of_object.or_else(|| self.everything.clone().filter(|_| used.kind.has_memory()))
    }

    fn set(&mut self, used: &Used, since: &Since) {
        let group = self.group(used.number);
        self.since.entry(group).or_insert_with(|| since.clone());
    }

    fn set_memory<'u>(&mut self, used: impl IntoIterator<Item = &'u Used>, since: &Since) {
        for one in used.into_iter().filter(|used| used.kind.has_memory()) {
            self.set(one, since);
        }
    }

    fn set_globals(&mut self, since: &Since) {
        for number in self.globals.clone() {
            let group = self.group(number);
            self.since.entry(group).or_insert_with(|| since.clone());
        }
    }

    /// A call was not the recorded one, or is not made; `used` are the objects that either is given.
    /// With `writes_all` the memory that it writes is not known.
    pub(crate) fn differs(
        &mut self,
        function: &Function,
        used: &[Used],
        since: &Since,
        writes_all: bool,
    ) {
        self.first.get_or_insert_with(|| since.clone());
        // Which memory a graph writes is not followed.
        if writes_all || function.family == Family::Graph(GraphOp::Launch) {
            self.everything.get_or_insert_with(|| since.clone());
        }
        self.set_memory(used, since);
        if matches!(function.family, Family::Launch(_)) {
            self.set_globals(since);
        }
    }

    /// A call is made in place of a recorded one.
    pub(crate) fn begin_changed(&mut self, recorded: u64, since: Since) {
        self.changed.insert(recorded, since);
    }

    /// A call has returned: what it has created is not what the recording has, if it is in place of the
    /// recorded call.
    pub(crate) fn created(&mut self, recorded: u64, created: &[Used]) {
        let Some(since) = self.changed.remove(&recorded) else {
            return;
        };
        for one in created {
            if one.kind.has_memory() || one.kind.has_code() {
                self.set(one, &since);
            }
        }
    }

    /// The program has made a call: `given` and `created` are its objects. Since when the bytes that it
    /// moves are unknown, if they are.
    pub(crate) fn follow(
        &mut self,
        function: &Function,
        given: &[Used],
        created: &[Used],
    ) -> Option<Since> {
        let all = || given.iter().chain(created);
        let globals = all().filter(|one| one.kind == Kind::Global);
        self.globals.extend(globals.map(|one| one.number));
        let is_managed = function.family == Family::Memory(MemoryOp::AllocateManaged);
        for one in all() {
            let is_host = matches!(one.kind, Kind::HostMemory | Kind::Registration);
            if is_host || (is_managed && one.kind == Kind::Memory) {
                self.visible.insert(one.number, one.clone());
            }
        }
        let of_given = || given.iter().find_map(|one| self.since(one));
        match function.family {
            Family::Graph(GraphOp::Launch) => {
                if self.everything.is_none() {
                    self.everything = self.first.clone();
                }
                self.everything.clone()
            }
            Family::Launch(_) => {
                let mut globals = self.globals.iter();
                let of_globals =
                    || globals.find_map(|&number| self.since.get(&self.group(number)).cloned());
                let since = of_given().or_else(of_globals)?;
                self.set_memory(given, &since);
                self.set_globals(&since);
                Some(since)
            }
            Family::Copy(_) => {
                let since = of_given()?;
                self.set_memory(given, &since);
                Some(since)
            }
            Family::Memset | Family::Prefetch | Family::StreamMemory(_) | Family::Graph(_) => None,
            _ => {
                self.join_all(all().filter(|one| one.kind.has_code()));
                self.join_all(
                    all().filter(|one| one.kind.has_memory() && one.kind != Kind::Global),
                );
                None
            }
        }
    }

    fn join_all<'u>(&mut self, mut used: impl Iterator<Item = &'u Used>) {
        if let Some(first) = used.next() {
            for other in used {
                self.join(first.number, other.number);
            }
        }
    }

    /// Memory that is unknown and that the program can read after a wait.
    pub(crate) fn readable(&self) -> Option<(&Used, Since)> {
        let mut visible = self.visible.values();
        visible.find_map(|used| Some((used, self.since(used)?)))
    }

    /// Memory has been freed, or a handle ended.
    pub(crate) fn ends(&mut self, used: &[Used]) {
        for one in used {
            self.visible.remove(&one.number);
            self.globals.remove(&one.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn used(number: u32, kind: Kind) -> Used {
        Used {
            number,
            kind,
            label: format!("{}#{number}", kind.key()),
        }
    }

    fn function(name: &str) -> &'static Function {
        cutape_registry::function(name).expect("it exists")
    }

    #[test]
    fn what_follows_from_unknown_bytes_is_unknown() {
        let [a, b, c, d] = [0, 1, 2, 3].map(|number| used(number, Kind::Memory));
        let kernel = used(4, Kind::Function);
        let array = used(5, Kind::Array);
        let texture = used(6, Kind::TextureObject);
        let mut unknown = Unknown::default();
        let texture_create = function("cuTexObjectCreate");
        unknown.follow(texture_create, from_ref(&array), from_ref(&texture));
        let launch = function("cuLaunchKernel");
        let known = [kernel.clone(), a.clone(), b.clone()];
        assert_eq!(unknown.follow(launch, &known, &[]), None);
        let set = function("cuMemsetD8_v2");
        unknown.differs(set, from_ref(&a), &"call 7".into(), false);
        assert!(unknown.follow(launch, &known, &[]).is_some());
        assert!(unknown.since(&b).is_some());
        assert_eq!(unknown.since(&kernel), None, "its code is the recorded one");
        let copy = function("cuMemcpyDtoD_v2");
        assert_eq!(unknown.follow(copy, &[c.clone(), d.clone()], &[]), None);
        assert!(unknown.follow(copy, &[array, b], &[]).is_some());
        assert!(
            unknown
                .follow(launch, &[kernel.clone(), texture, c.clone()], &[])
                .is_some()
        );
        assert!(unknown.since(&c).is_some());
        assert_eq!(unknown.since(&d), None);
        unknown.follow(function("cuGraphLaunch"), &[], &[]);
        assert!(unknown.since(&d).is_some(), "a graph may write everything");
    }

    #[test]
    fn another_graph_launch_writes_everything() {
        let memory = used(0, Kind::Memory);
        for name in ["cuGraphLaunch", "cuGraphInstantiateWithFlags"] {
            let mut unknown = Unknown::default();
            unknown.differs(function(name), &[], &"call 3".into(), false);
            let is_unknown = unknown.since(&memory).is_some();
            assert_eq!(is_unknown, name == "cuGraphLaunch", "{name}");
        }
    }

    #[test]
    fn changed_code_makes_what_its_kernels_write_unknown() {
        let module = used(0, Kind::Module);
        let kernel = used(1, Kind::Function);
        let [a, b] = [2, 3].map(|number| used(number, Kind::Memory));
        let mut unknown = Unknown::default();
        unknown.begin_changed(2, "call 2".into());
        unknown.created(2, from_ref(&module));
        unknown.follow(
            function("cuModuleGetFunction"),
            &[module],
            from_ref(&kernel),
        );
        assert!(
            unknown
                .follow(function("cuLaunchKernel"), &[kernel, a.clone()], &[])
                .is_some()
        );
        assert!(unknown.since(&a).is_some());
        assert_eq!(unknown.since(&b), None);
    }
}
