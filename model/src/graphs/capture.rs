//! Stream captures in progress: which streams take part, and what their next work depends on.

use rustc_hash::FxHashMap;

use super::graph::{Graph, Node, Work};
use crate::objects::Site;

/// A capture.
#[derive(Debug)]
pub struct Capture {
    /// What was captured so far.
    pub graph: Graph,
    /// The call that began it.
    pub site: Site,
    /// The handle of the graph that it adds to; 0 if it makes one.
    pub(super) target: u64,
    /// The stream that it began on.
    origin: u32,
}

/// A capture and the nodes that the next work of a stream, or the waiters of an event, depend on.
type Progress = (u64, Vec<usize>);

/// All captures in progress.
#[derive(Debug, Default)]
pub(super) struct Captures {
    last: u64,
    open: FxHashMap<u64, Capture>,
    streams: FxHashMap<u32, Progress>,
    events: FxHashMap<u64, Progress>,
}

impl Captures {
    pub(super) fn open(&self) -> impl Iterator<Item = &Capture> {
        self.open.values()
    }

    pub(super) fn is_any(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn begin(&mut self, stream: u32, site: Site, target: u64, whole: bool) {
        self.last += 1;
        let graph = Graph {
            nodes: Vec::new(),
            whole,
        };
        let capture = Capture {
            graph,
            site,
            target,
            origin: stream,
        };
        self.open.insert(self.last, capture);
        self.streams.insert(stream, (self.last, Vec::new()));
    }

    /// Ends the capture that began on the stream.
    pub(super) fn end(&mut self, stream: u32) -> Option<Capture> {
        let mut open = self.open.iter();
        let (&id, _) = open.find(|(_, capture)| capture.origin == stream)?;
        self.streams.retain(|_, progress| progress.0 != id);
        self.events.retain(|_, progress| progress.0 != id);
        self.open.remove(&id)
    }

    /// Work on a stream; false if the stream captures nothing.
    pub(super) fn add(&mut self, stream: u32, work: impl FnOnce() -> Work, site: Site) -> bool {
        let Some((id, before)) = self.streams.get_mut(&stream) else {
            return false;
        };
        let Some(capture) = self.open.get_mut(id) else {
            return false;
        };
        let node = Node {
            handle: 0,
            site,
            work: work(),
            before: std::mem::take(before),
            is_removed: false,
            is_device_updatable: false,
        };
        before.push(capture.graph.nodes.len());
        capture.graph.nodes.push(node);
        true
    }

    /// An event was recorded on a stream.
    pub(super) fn recorded(&mut self, event: u64, stream: u32) {
        match self.streams.get(&stream) {
            Some(progress) => self.events.insert(event, progress.clone()),
            None => self.events.remove(&event),
        };
    }

    /// A stream waits for an event; it joins the capture that the event was recorded in.
    pub(super) fn waited(&mut self, stream: u32, event: u64) {
        let Some((id, nodes)) = self.events.get(&event).cloned() else {
            return;
        };
        let (own, before) = self.streams.entry(stream).or_insert((id, Vec::new()));
        if *own != id {
            return;
        }
        for node in nodes {
            if !before.contains(&node) {
                before.push(node);
            }
        }
    }

    /// The capture of a stream has nodes or edges that no call shows.
    pub(super) fn is_changed(&mut self, stream: u32) {
        if let Some((id, _)) = self.streams.get(&stream)
            && let Some(capture) = self.open.get_mut(id)
        {
            capture.graph.whole = false;
        }
    }
}
