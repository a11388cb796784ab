//! What rules about defects of the driver remember.

use std::cell::Cell;
use std::ops::Range;

use cutape_format::Call;
use cutape_model::Site;
use cutape_registry::DriverVersion;
use rustc_hash::FxHashMap;

/// A driver and the compute capabilities of its devices, by ordinal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverWithDevices {
    /// The driver.
    pub version: DriverVersion,
    /// Of devices; `None` where it is not known.
    pub capabilities: Vec<Option<(u16, u16)>>,
}

/// The body of a conditional node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    /// The handle of the body.
    pub(crate) graph: u64,
    /// That of the graph with the node.
    pub(crate) parent: u64,
    /// The call that added the node.
    pub(crate) site: Site,
    /// A call has added something to the body.
    pub(crate) is_filled: bool,
    /// The call that added an empty node.
    pub(crate) empty_node: Option<Site>,
}

/// Memory of a pool that was freed.
#[derive(Clone, Debug)]
pub(crate) struct FreedBlock {
    pub(crate) bytes: Range<u64>,
    /// The stream in which it was freed, and the last work then.
    pub(crate) work: (u32, u64),
    pub(crate) site: Site,
}

/// What rules about defects remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errata {
    /// The driver that is asked about instead of the recorded one.
    pub(crate) present: Option<DriverWithDevices>,
    /// The recorded one, once it is known.
    pub(super) recorded: Cell<Option<DriverVersion>>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) freed: Vec<FreedBlock>,
    /// A pool was told not to reuse memory opportunistically.
    pub(crate) forbids_reuse: bool,
    pub(crate) has_managed_pool: bool,
    /// A pool has given out memory.
    pub(super) has_pool_memory: bool,
    /// The reset of a device after that.
    pub(crate) reset: Option<Site>,
    /// Live pools to which a device was given access, and the call.
    pub(super) granted: FxHashMap<u64, Site>,
    /// Destroyed pools whose handles no call has returned since, with that call.
    pub(crate) left_granted: FxHashMap<u64, Site>,
    /// The last launch of executable graphs: its stream, its number, the call.
    pub(crate) launches: FxHashMap<u64, ((u32, u64), Site)>,
}

impl Errata {
    /// Calls are missing: what they may have changed is not known any more.
    pub(crate) fn forget(&mut self) {
        self.bodies.clear();
        self.freed.clear();
        self.granted.clear();
        self.left_granted.clear();
        self.launches.clear();
    }

    /// A call adds something to a graph: an empty node, if it says which call that is.
    pub(super) fn add_node(&mut self, call: &Call<'_>, empty_node: Option<Site>) {
        if self.bodies.is_empty() {
            return;
        }
        let Some(graph) = call.argument_named("hGraph") else {
            return;
        };
        for body in self.bodies.iter_mut().filter(|body| body.graph == graph) {
            body.is_filled = true;
            body.empty_node = body.empty_node.or(empty_node);
        }
    }

    /// The bodies of conditional nodes in a graph, also of nodes in bodies.
    pub(crate) fn bodies_of(&self, graph: u64) -> Vec<&Body> {
        let mut graphs = vec![graph];
        let mut found: Vec<&Body> = Vec::new();
        while let Some(graph) = graphs.pop() {
            let within = self.bodies.iter().filter(|body| body.parent == graph);
            for body in within {
                if !found.iter().any(|known| known.graph == body.graph) {
                    graphs.push(body.graph);
                    found.push(body);
                }
            }
        }
        found
    }
}
