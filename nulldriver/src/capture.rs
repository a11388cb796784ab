//! Stream capture: work on a stream that captures becomes nodes of a graph instead of being done.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use cutape_registry::Function;

use crate::answer::{
    Answer, CAPTURED_EVENT, CUresult, ILLEGAL_STATE, INVALID_VALUE, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNJOINED, STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD,
};
use crate::argument::{In, LEGACY, Out, PER_THREAD, Stream};
use crate::dispatch::{Entry, bind};
use crate::graph::{Edge, dependencies};
use crate::graph_work::Work;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    (
        "=cuStreamBeginCapture",
        bind(|stream: Stream| begin(stream, None, GLOBAL)),
    ),
    (
        "=cuStreamBeginCapture_v2",
        bind(|stream: Stream, mode: u32| begin(stream, None, mode)),
    ),
    ("cuStreamBeginCaptureToGraph", bind(begin_to_graph)),
    ("cuStreamEndCapture", bind(end)),
    ("cuStreamIsCapturing", bind(is_capturing)),
    (
        "=cuStreamGetCaptureInfo",
        bind(|stream: Stream, status: Out<u32>, id: Out<u64>| {
            let null = || Out::at(0);
            info(stream, status, id, Out::at(0), null(), Out::at(0), null())
        }),
    ),
    (
        "=cuStreamGetCaptureInfo_v2",
        bind(
            |stream: Stream,
             status: Out<u32>,
             id: Out<u64>,
             graph: Out<u64>,
             nodes: Out<u64>,
             count: Out<u64>| info(stream, status, id, graph, nodes, Out::at(0), count),
        ),
    ),
    ("=cuStreamGetCaptureInfo_v3", bind(info)),
    (
        "=cuStreamUpdateCaptureDependencies",
        bind(|stream: Stream, nodes: In<u64>, count: usize, flags: u32| {
            update(stream, nodes, In::at(0), count, flags)
        }),
    ),
    ("=cuStreamUpdateCaptureDependencies_v2", bind(update)),
    ("cuThreadExchangeStreamCaptureMode", bind(exchange_mode)),
];

// Numbers of CUstreamCaptureMode.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

// Numbers of CUstreamCaptureStatus.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

/// A stream: its handle; for those that every context has, the context, and for a thread's own the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    handle: u64,
    context: u64,
    thread: u64,
}

#[derive(Debug)]
struct Capture {
    graph: u64,
    /// The graph was made for the capture, not given.
    is_own: bool,
    mode: u32,
    thread: u64,
    origin: Key,
    context: u64,
    is_valid: bool,
    /// Arrays that the program was given pointers to.
    lent: Vec<Box<[u64]>>,
}

/// All captures.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    last: u64,
    open: HashMap<u64, Capture>,
    /// The capture that a stream takes part in, and what comes next there depends on.
    streams: HashMap<Key, (u64, Vec<(u64, Edge)>)>,
    /// The same for events that were recorded in captures.
    events: HashMap<u64, (u64, Vec<(u64, Edge)>)>,
}

/// How many captures are open: mostly none, and then nobody looks further.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// `CUstreamCaptureMode` of the thread; global unless exchanged.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// The number of the calling thread. By system call: glibc has a function for it since 2.30, and older ones would not load us.
pub(crate) fn this_thread() -> u64 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

impl Captures {
    fn invalidate(&mut self, wanted: impl Fn(&Capture) -> bool) -> bool {
        let mut any = false;
        for capture in self.open.values_mut().filter(|capture| wanted(capture)) {
            capture.is_valid = false;
            any = true;
        }
        any
    }

    /// Ends a capture; its streams and events are ordinary again.
    fn close(&mut self, id: u64) -> Option<Capture> {
        self.streams.retain(|_, of| of.0 != id);
        self.events.retain(|_, of| of.0 != id);
        let capture = self.open.remove(&id);
        OPEN.store(self.open.len(), Ordering::Release);
        capture
    }
}

impl State {
    fn key(&self, stream: Stream) -> Answer<Key> {
        let is_shared = stream.0 <= PER_THREAD;
        Ok(Key {
            handle: stream.0,
            context: if is_shared { self.current()? } else { 0 },
            thread: if stream.0 == PER_THREAD {
                this_thread()
            } else {
                0
            },
        })
    }

    /// The capture that work on a stream would go into. Work on the legacy stream while a blocking stream of the context
    /// captures would depend on the capture, which is STREAM_CAPTURE_IMPLICIT and ends it (measured).
    pub(crate) fn capture_of(&self, stream: Stream) -> Answer<Option<Key>> {
        if OPEN.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let key = self.key(stream)?;
        let captures = self.captures.borrow();
        if let Some((id, _)) = captures.streams.get(&key) {
            return match captures.open[id].is_valid {
                true => Ok(Some(key)),
                false => Err(STREAM_CAPTURE_INVALIDATED),
            };
        }
        drop(captures);
        if stream.0 == LEGACY && self.break_blocking(key.context) {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        Ok(None)
    }

    /// Invalidates the captures of a context that blocking streams take part in; whether there are any.
    fn break_blocking(&self, context: u64) -> bool {
        let mut captures = self.captures.borrow_mut();
        let blocking: HashSet<u64> = captures
            .streams
            .iter()
            .filter(|(key, _)| {
                let stream = self.streams.get(&key.handle);
                stream.map_or(key.context == context, |stream| {
                    stream.context == context && stream.is_blocking()
                })
            })
            .map(|(_, of)| of.0)
            .collect();
        for id in &blocking {
            if let Some(capture) = captures.open.get_mut(id) {
                capture.is_valid = false;
            }
        }
        !blocking.is_empty()
    }

    /// Refuses what cannot be captured, on a stream that captures; that ends the capture.
    pub(crate) fn refuse_capture(&self, stream: Stream) -> Answer {
        let Some(key) = self.capture_of(stream)? else {
            return Ok(());
        };
        let mut captures = self.captures.borrow_mut();
        let id = captures.streams[&key].0;
        if let Some(capture) = captures.open.get_mut(&id) {
            capture.is_valid = false;
        }
        Err(STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Puts work behind what the stream has captured so far.
    pub(crate) fn add_captured(&mut self, key: Key, work: Work) -> Answer<u64> {
        let (id, after) = self.captures.get_mut().streams[&key].clone();
        let graph = self.captures.get_mut().open[&id].graph;
        let node = self.add_node(graph, after, work)?;
        let next = (id, vec![(node, Edge::default())]);
        self.captures.get_mut().streams.insert(key, next);
        Ok(node)
    }

    /// An event is recorded on a stream: it stands for what was captured there, or for nothing captured any more.
    pub(crate) fn event_captured(&mut self, event: u64, key: Option<Key>) {
        let captures = self.captures.get_mut();
        match key.and_then(|key| captures.streams.get(&key).cloned()) {
            Some(of) => captures.events.insert(event, of),
            None => captures.events.remove(&event),
        };
    }

    /// A stream waits for an event. True if the wait was captured.
    pub(crate) fn wait_captured(&mut self, stream: Stream, event: u64) -> Answer<bool> {
        let site = self.capture_of(stream)?;
        let captures = self.captures.get_mut();
        let of = captures.events.get(&event).cloned();
        match (site, of) {
            (None, None) => Ok(false),
            // A dependency on work outside of the capture (measured).
            (Some(_), None) => Err(STREAM_CAPTURE_ISOLATION),
            (Some(key), Some((id, nodes))) => {
                let Some((mine, after)) = captures.streams.get_mut(&key) else {
                    return Ok(false);
                };
                if *mine != id {
                    let both = [*mine, id];
                    for id in both {
                        if let Some(capture) = captures.open.get_mut(&id) {
                            capture.is_valid = false;
                        }
                    }
                    return Err(STREAM_CAPTURE_MERGE);
                }
                for one in nodes {
                    if after.iter().all(|(other, _)| *other != one.0) {
                        after.push(one);
                    }
                }
                Ok(true)
            }
            (None, Some((id, nodes))) => {
                let key = self.key(stream)?;
                let captures = self.captures.get_mut();
                if !captures
                    .open
                    .get(&id)
                    .is_some_and(|capture| capture.is_valid)
                {
                    return Err(STREAM_CAPTURE_INVALIDATED);
                }
                if stream.0 == LEGACY {
                    captures
                        .open
                        .entry(id)
                        .and_modify(|capture| capture.is_valid = false);
                    return Err(STREAM_CAPTURE_IMPLICIT);
                }
                captures.streams.insert(key, (id, nodes));
                Ok(true)
            }
        }
    }

    /// Refuses to ask or wait for an event that was recorded in a capture; that ends the capture.
    pub(crate) fn refuse_captured_event(&self, event: u64) -> Answer {
        let mut captures = self.captures.borrow_mut();
        let Some(&(id, _)) = captures.events.get(&event) else {
            return Ok(());
        };
        if let Some(capture) = captures.open.get_mut(&id) {
            capture.is_valid = false;
        }
        Err(CAPTURED_EVENT)
    }

    /// A stream is gone, and the capture that it took part in cannot be completed.
    pub(crate) fn stream_ended(&mut self, handle: u64) {
        let captures = self.captures.get_mut();
        let ended: Vec<(Key, u64)> = captures
            .streams
            .iter()
            .filter(|(key, _)| key.handle == handle)
            .map(|(key, of)| (*key, of.0))
            .collect();
        for (key, id) in ended {
            let is_origin = captures.open.get(&id).is_some_and(|one| one.origin == key);
            captures.streams.remove(&key);
            if is_origin {
                captures.close(id);
            } else if let Some(capture) = captures.open.get_mut(&id) {
                capture.is_valid = false;
            }
        }
    }
}

/// Calls that may depend on work in a way that a capture cannot see ("potentially unsafe",
/// cuThreadExchangeStreamCaptureMode): cuMemAlloc is measured, the others are assumed to be like it.
const UNSAFE: &[&str] = &[
    "cuEventQuery",
    "cuMemAlloc",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
];

/// Whether a function is work on the legacy stream that it waits for.
fn is_synchronous_work(function: &Function) -> bool {
    let base = function.base;
    let is_work = base.starts_with("cuMemcpy") || base.starts_with("cuMemset");
    is_work && function.stream.is_none() && !base.contains("Async")
}

/// What a function answers because of captures in progress, before it does anything.
pub(crate) fn forbids(function: &Function) -> Option<CUresult> {
    if OPEN.load(Ordering::Acquire) == 0 {
        return None;
    }
    let state = lock();
    let context = state.current().ok()?;
    if function.base == "cuCtxSynchronize" {
        let mut captures = state.captures.borrow_mut();
        let here = |capture: &Capture| capture.context == context;
        return captures
            .invalidate(here)
            .then_some(STREAM_CAPTURE_UNSUPPORTED);
    }
    let is_work = is_synchronous_work(function);
    if is_work && !function.per_thread && state.break_blocking(context) {
        return Some(STREAM_CAPTURE_IMPLICIT);
    }
    if !is_work && !UNSAFE.contains(&function.base) {
        return None;
    }
    let (mode, thread) = (MODE.get(), this_thread());
    let forbidden = |capture: &Capture| match mode {
        RELAXED => false,
        THREAD_LOCAL => capture.thread == thread && capture.mode != RELAXED,
        _ => match capture.thread == thread {
            true => capture.mode != RELAXED,
            false => capture.mode == GLOBAL,
        },
    };
    let mut captures = state.captures.borrow_mut();
    captures
        .invalidate(forbidden)
        .then_some(STREAM_CAPTURE_UNSUPPORTED)
}

fn begin(stream: Stream, graph: Option<(u64, Vec<(u64, Edge)>)>, mode: u32) -> Answer {
    let mut state = lock();
    let context = state.stream_context(stream)?;
    state.current()?;
    if mode > RELAXED {
        return Err(INVALID_VALUE);
    }
    if stream.0 == LEGACY {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    let key = state.key(stream)?;
    if state.captures.get_mut().streams.contains_key(&key) {
        return Err(ILLEGAL_STATE);
    }
    let is_own = graph.is_none();
    let (graph, after) = match graph {
        Some((graph, after)) => {
            for (node, _) in &after {
                if state.node(*node)?.graph != graph {
                    return Err(INVALID_VALUE);
                }
            }
            (graph, after)
        }
        None => (state.make_graph(None)?, Vec::new()),
    };
    let captures = state.captures.get_mut();
    captures.last += 1;
    let id = captures.last;
    let capture = Capture {
        graph,
        is_own,
        mode,
        thread: this_thread(),
        origin: key,
        context,
        is_valid: true,
        lent: Vec::new(),
    };
    captures.open.insert(id, capture);
    captures.streams.insert(key, (id, after));
    OPEN.store(captures.open.len(), Ordering::Release);
    Ok(())
}

fn begin_to_graph(
    stream: Stream,
    graph: u64,
    nodes: In<u64>,
    data: In<Edge>,
    count: usize,
    mode: u32,
) -> Answer {
    let after = dependencies(nodes, data, count)?;
    lock().graph(graph)?;
    begin(stream, Some((graph, after)), mode)
}

fn end(stream: Stream, graph: Out<u64>) -> Answer {
    let mut state = lock();
    state.stream_context(stream)?;
    graph.check()?;
    let key = state.key(stream)?;
    let captures = state.captures.get_mut();
    // On a stream that does not capture: ILLEGAL_STATE (measured).
    let (id, last) = captures.streams.get(&key).cloned().ok_or(ILLEGAL_STATE)?;
    let capture = captures.open.get_mut(&id).ok_or(ILLEGAL_STATE)?;
    if capture.origin != key {
        capture.is_valid = false;
        return Err(STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != this_thread() {
        return Err(STREAM_CAPTURE_WRONG_THREAD);
    }
    let (made, is_own, is_valid) = (capture.graph, capture.is_own, capture.is_valid);
    let others: Vec<u64> = captures
        .streams
        .iter()
        .filter(|(other, of)| of.0 == id && **other != key)
        .flat_map(|(_, of)| of.1.iter().map(|one| one.0))
        .collect();
    captures.close(id);
    let mut reached = HashSet::new();
    let mut queue: Vec<u64> = last.iter().map(|one| one.0).collect();
    while let Some(node) = queue.pop() {
        if reached.insert(node)
            && let Ok(node) = state.node(node)
        {
            queue.extend(node.after.iter().map(|one| one.0));
        }
    }
    let failure = if !is_valid {
        Some(STREAM_CAPTURE_INVALIDATED)
    } else if others.iter().any(|node| !reached.contains(node)) {
        Some(STREAM_CAPTURE_UNJOINED)
    } else {
        None
    };
    match failure {
        None => graph.set(made),
        Some(code) => {
            graph.set(0)?;
            if is_own {
                let destructors = state.remove_graph(made);
                drop(state);
                destructors.run();
            }
            Err(code)
        }
    }
}

/// Status of a stream; the legacy stream cannot tell while a blocking one captures, which leaves the capture valid.
fn status_of(state: &State, stream: Stream) -> Answer<u32> {
    state.stream_is_there(stream)?;
    let key = state.key(stream)?;
    let captures = state.captures.borrow();
    if let Some((id, _)) = captures.streams.get(&key) {
        return Ok(match captures.open[id].is_valid {
            true => ACTIVE,
            false => INVALIDATED,
        });
    }
    let blocks = |key: &Key| {
        let stream = state.streams.get(&key.handle);
        stream.is_some_and(|stream| {
            stream.context == state.current().unwrap_or(0) && stream.is_blocking()
        })
    };
    if stream.0 == LEGACY && captures.streams.keys().any(blocks) {
        return Err(STREAM_CAPTURE_IMPLICIT);
    }
    Ok(NONE)
}

fn is_capturing(stream: Stream, status: Out<u32>) -> Answer {
    let state = lock();
    status.check()?;
    status.set(status_of(&state, stream)?)
}

fn info(
    stream: Stream,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<u64>,
    data: Out<u64>,
    count: Out<u64>,
) -> Answer {
    let mut state = lock();
    status.check()?;
    let now = status_of(&state, stream)?;
    status.set(now)?;
    if now != ACTIVE {
        // Only the status is written.
        return Ok(());
    }
    let key = state.key(stream)?;
    let captures = state.captures.get_mut();
    let (number, after) = captures.streams[&key].clone();
    if data.is_null() && !nodes.is_null() && after.iter().any(|one| one.1 != Edge::default()) {
        return Err(INVALID_VALUE);
    }
    let capture = captures.open.get_mut(&number).ok_or(ILLEGAL_STATE)?;
    id.set_if(number);
    graph.set_if(capture.graph);
    let handles: Box<[u64]> = after.iter().map(|one| one.0).collect();
    let edges: Box<[u64]> = after.iter().map(|one| u64::from_le_bytes(one.1)).collect();
    nodes.set_if(handles.as_ptr() as u64);
    data.set_if(edges.as_ptr() as u64);
    count.set_if(handles.len() as u64);
    capture.lent.extend([handles, edges]);
    Ok(())
}

fn update(stream: Stream, nodes: In<u64>, data: In<Edge>, count: usize, flags: u32) -> Answer {
    const SET: u32 = 1;
    let mut state = lock();
    state.stream_is_there(stream)?;
    let new = dependencies(nodes, data, count)?;
    let key = state.capture_of(stream)?.ok_or(ILLEGAL_STATE)?;
    let id = state.captures.get_mut().streams[&key].0;
    let graph = state.captures.get_mut().open[&id].graph;
    for (node, _) in &new {
        if state.node(*node)?.graph != graph {
            return Err(INVALID_VALUE);
        }
    }
    let Some((_, after)) = state.captures.get_mut().streams.get_mut(&key) else {
        return Err(ILLEGAL_STATE);
    };
    match flags {
        0 => after.extend(new),
        SET => *after = new,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn exchange_mode(mode: Out<u32>) -> Answer {
    let new = mode.get()?;
    if new > RELAXED {
        return Err(INVALID_VALUE);
    }
    mode.set(MODE.replace(new))
}
