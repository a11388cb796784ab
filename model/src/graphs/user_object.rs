//! References to user objects: who holds how many.

use rustc_hash::FxHashMap;

use crate::site::Site;

/// Who holds references to a user object.
#[derive(Clone, Debug)]
pub struct UserObjectState {
    /// The call that created it.
    pub created: Site,
    /// References that the program holds itself.
    pub own: u64,
    /// References of graphs, by handle. Executable graphs hold more, which are not counted.
    pub graphs: FxHashMap<u64, u64>,
    /// The last call that gave references of the program's to a graph.
    pub moved: Option<Site>,
}

/// All user objects whose creation was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct UserObjects(FxHashMap<u64, UserObjectState>);

impl UserObjects {
    pub(super) fn get(&self, handle: u64) -> Option<&UserObjectState> {
        self.0.get(&handle)
    }

    /// The first that has references of this graph alone.
    pub(super) fn ends_with(&self, graph: u64) -> Option<&UserObjectState> {
        let ends = |object: &&UserObjectState| {
            object.own == 0 && object.graphs.len() == 1 && object.graphs.contains_key(&graph)
        };
        let objects = self.0.values().filter(ends);
        objects.min_by_key(|object| object.created.index)
    }

    pub(super) fn get_mut(&mut self, handle: u64) -> Option<&mut UserObjectState> {
        self.0.get_mut(&handle)
    }

    pub(super) fn create(&mut self, handle: u64, created: Site, own: u64) {
        let state = UserObjectState {
            created,
            own,
            graphs: FxHashMap::default(),
            moved: None,
        };
        self.0.insert(handle, state);
    }

    /// A graph was destroyed, with its references; objects without any are forgotten.
    pub(super) fn graph_destroyed(&mut self, graph: u64) {
        self.0.retain(|_, object| {
            object.graphs.remove(&graph);
            object.own > 0 || !object.graphs.is_empty()
        });
    }
}
