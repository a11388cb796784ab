//! Graphs that stop after each of their nodes.
//!
//! Some nodes only their graph can run: they allocate or free its memory, wait for parallel nodes, or
//! have a condition. Before such a graph is instantiated, it gets a node of memory operations after
//! each of its nodes, which writes the node's number and waits until the replay lets it go on, and an
//! edge from there to the next node. Nodes are only added: a graph with memory nodes cannot lose any
//! (CUDA Driver API, cuGraphAddMemAllocNode). The graph does not wait where nobody looks.
//!
//! It runs in a stream of its own, so that memory can be read through the default stream while it
//! waits.

use std::collections::HashSet;
use std::mem::offset_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cutape_driver::types::CUstreamBatchMemOpParams;
use cutape_driver::types::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st as WriteParams;

use crate::api::buffer::{set_word, word};
use crate::api::{Api, Code, NOT_READY};

/// Bytes that are allocated at a time, and those of one graph: the number of the last node that has
/// run, and of the last stop that it may pass.
const PAGE: u64 = 4096;
const CELL: u64 = 8;
/// Greater than the number of every stop: nobody looks.
const OPEN: u32 = i32::MAX as u32;
/// CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_32.
const WAIT: u32 = 1;
const WRITE: u32 = 2;

/// Page-locked memory of all stops of the process: first addresses, and cells that were given out.
static PAGES: Mutex<(Vec<u64>, u64)> = Mutex::new((Vec::new(), 0));

/// The stops of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stops {
    /// Of the number of the last node that has run. 4 bytes on lies that of the last stop that it may
    /// pass.
    reached: u64,
}

/// A graph that stops are added to: each node that does something, with what is in it.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) graph: u64,
    /// Its edges.
    pub(crate) edges: Vec<(u64, u64)>,
    /// Nodes in the order in which they run, with their child graphs.
    pub(crate) nodes: Vec<(u64, Option<Self>)>,
}

/// Where a node's operations, elements of `CUstreamBatchMemOpParams`, write the number of a node, if
/// it is a stop.
pub(crate) fn is_stop(operations: &[u8]) -> Option<u64> {
    let address = word(operations, offset_of!(WriteParams, address));
    let pages = PAGES.lock().unwrap_or_else(|lock| lock.into_inner());
    let mut pages = pages.0.iter();
    let is_stop = pages.any(|&page| (page..page + PAGE).contains(&address));
    is_stop.then_some(address)
}

impl Stops {
    pub(crate) fn new(api: &Api) -> Result<Self, Code> {
        let mut pages = PAGES.lock().unwrap_or_else(|lock| lock.into_inner());
        let (known, given) = &mut *pages;
        if *given == known.len() as u64 * (PAGE / CELL) {
            known.push(api.allocate_portable(PAGE)?);
        }
        let page = known.last().copied().unwrap_or(0);
        let stops = Self::at(page + *given % (PAGE / CELL) * CELL);
        *given += 1;
        stops.passes().store(OPEN, Ordering::SeqCst);
        Ok(stops)
    }

    /// Those that write there.
    pub(crate) fn at(reached: u64) -> Self {
        Self { reached }
    }

    fn word(&self, offset: u64) -> &'static AtomicU32 {
        // SAFETY: it lies in a page that `new` has allocated, which nothing frees or uses otherwise.
        unsafe { AtomicU32::from_ptr((self.reached + offset) as *mut u32) }
    }

    fn passes(&self) -> &'static AtomicU32 {
        self.word(4)
    }

    /// Adds them to a live graph.
    pub(crate) fn add_to(self, api: &Api, order: &Order) -> Result<Self, Code> {
        self.add(api, order, &mut 0).map(|()| self)
    }

    fn add(&self, api: &Api, order: &Order, number: &mut u32) -> Result<(), Code> {
        let edges: HashSet<&(u64, u64)> = order.edges.iter().collect();
        let mut last: Option<u64> = None;
        for (node, child) in &order.nodes {
            if let Some(last) = last
                && !edges.contains(&(last, *node))
            {
                api.add_edge(order.graph, (last, *node))?;
            }
            last = Some(match child {
                Some(child) => {
                    self.add(api, child, number)?;
                    *node
                }
                None => {
                    *number += 1;
                    api.add_operations(order.graph, &[*node], &self.operations(*number))?
                }
            });
        }
        Ok(())
    }

    /// What a stop does.
    fn operations(&self, number: u32) -> Vec<u8> {
        let mut operations = Vec::new();
        // A wait has the same members, and 0 is CU_STREAM_WAIT_VALUE_GEQ.
        for (kind, address) in [(WRITE, self.reached), (WAIT, self.reached + 4)] {
            let mut operation = vec![0; size_of::<CUstreamBatchMemOpParams>()];
            set_word(&mut operation, 0, kind.into());
            set_word(&mut operation, offset_of!(WriteParams, address), address);
            set_word(
                &mut operation,
                offset_of!(WriteParams, __bindgen_anon_1),
                number.into(),
            );
            operations.extend(operation);
        }
        operations
    }
}

/// A launch of a graph with stops.
#[derive(Debug)]
pub(crate) struct Stopped {
    stops: Stops,
    /// The live executable graph.
    exec: u64,
    stream: u64,
    /// How many nodes have run.
    number: u32,
}

/// How far a graph went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Node,
    /// It does not get there; it stops no more.
    Nothing,
}

impl Stopped {
    pub(crate) fn new(api: &Api, stops: Stops, exec: u64) -> Result<Self, Code> {
        Ok(Self {
            stops,
            exec,
            stream: api.create_stream()?,
            number: 0,
        })
    }

    /// Lets the next node run.
    pub(crate) fn go_on(&mut self, api: &Api, patience: Duration) -> Result<Reached, Code> {
        let reached = self.stops.word(0);
        if self.number == 0 {
            reached.store(0, Ordering::SeqCst);
            self.stops.passes().store(0, Ordering::SeqCst);
            api.launch_graph(self.exec, self.stream)?;
        } else {
            self.stops.passes().store(self.number, Ordering::SeqCst);
        }
        self.number += 1;
        let is_there = || reached.load(Ordering::SeqCst) == self.number;
        let done = api.poll(patience, |api| {
            let done = api.query_stream((self.stream, false));
            if is_there() { Ok(()) } else { done }
        });
        match done {
            _ if is_there() => Ok(Reached::Node),
            Ok(()) | Err(NOT_READY) => Ok(Reached::Nothing),
            Err(code) => Err(code),
        }
    }

    /// Lets the rest of the graph run; what a live stream does next comes after it.
    pub(crate) fn finish(self, api: &Api, next: (u64, bool)) -> Result<(), Code> {
        self.stops.passes().store(OPEN, Ordering::SeqCst);
        let done = api.wait_in(next, self.stream);
        api.destroy_stream(self.stream).and(done)
    }
}
