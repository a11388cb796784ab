//! Stream capture: what a capture in progress means for streams, events and other calls.

use std::collections::HashSet;

use cutape_registry::{Function, STREAM_LEGACY, STREAM_PER_THREAD, Waits, canonical_stream};

use crate::call::answer::{
    Answer, CAPTURED_EVENT, CUresult, INVALID_VALUE, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNSUPPORTED, reject_if,
};
use crate::call::argument::{Stream, WORDS};
use crate::object::capture::{Capture, GLOBAL, RELAXED, THREAD_LOCAL};
use crate::object::capture::{is_any_open, mode, this_thread};
use crate::object::graph::{Dependency, Edge};
use crate::object::stream_key::Key;
use crate::object::work::Work;
use crate::state::store::{State, lock};

impl State {
    /// What a stream is in the table of captures.
    pub(crate) fn capture_key(&self, stream: Stream) -> Answer<Key> {
        let is_per_thread = stream.0 == STREAM_PER_THREAD;
        Ok(Key {
            handle: stream.0,
            context: if stream.is_default() {
                self.current()?
            } else {
                0
            },
            thread: if is_per_thread { this_thread() } else { 0 },
        })
    }

    /// The capture that work on a stream goes into. Work on the legacy stream while a blocking
    /// stream of the context captures would depend on the capture: that is STREAM_CAPTURE_IMPLICIT
    /// and invalidates it (measured).
    pub(crate) fn capture_of(&self, stream: Stream) -> Answer<Option<Key>> {
        if !is_any_open() {
            return Ok(None);
        }
        let key = self.capture_key(stream)?;
        let captures = self.captures.borrow();
        if let Some((id, _)) = captures.streams.get(&key) {
            return match captures.is_valid(*id) {
                true => Ok(Some(key)),
                false => Err(STREAM_CAPTURE_INVALIDATED),
            };
        }
        drop(captures);
        if stream.0 == STREAM_LEGACY && self.invalidate_blocking(key.context) {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        Ok(None)
    }

    /// Checks the stream of a function that may have none, and returns the capture that its work
    /// goes into.
    pub(crate) fn site_of(&self, stream: Option<Stream>) -> Answer<Option<Key>> {
        let Some(stream) = stream else {
            return Ok(None);
        };
        self.check_stream(stream)?;
        self.capture_of(stream)
    }

    /// Invalidates the captures of a context that blocking streams take part in; whether there are
    /// any.
    fn invalidate_blocking(&self, context: u64) -> bool {
        let mut captures = self.captures.borrow_mut();
        let is_blocking = |key: &Key| {
            let stream = self.streams.get(&key.handle);
            stream.map_or(key.context == context, |stream| {
                stream.context == context && stream.is_blocking()
            })
        };
        let streams = captures.streams.iter();
        let blocking: HashSet<u64> = streams
            .filter(|(key, _)| is_blocking(key))
            .map(|(_, of)| of.0)
            .collect();
        blocking.iter().for_each(|&id| captures.invalidate(id));
        !blocking.is_empty()
    }

    /// Refuses what cannot be captured on a stream that captures, and invalidates the capture.
    pub(crate) fn refuse_capture(&self, stream: Stream) -> Answer {
        let Some(key) = self.capture_of(stream)? else {
            return Ok(());
        };
        let mut captures = self.captures.borrow_mut();
        let id = captures.streams[&key].0;
        captures.invalidate(id);
        Err(STREAM_CAPTURE_UNSUPPORTED)
    }

    /// What the next work that the stream captures comes after.
    pub(crate) fn captured_before(&mut self, key: Key) -> Vec<Dependency> {
        self.captures.get_mut().streams[&key].1.clone()
    }

    /// Adds work behind what the stream has captured so far.
    pub(crate) fn add_captured(&mut self, key: Key, work: Work) -> Answer {
        let (id, after) = self.captures.get_mut().streams[&key].clone();
        let graph = self.captures.get_mut().open[&id].graph;
        let node = self.add_node(graph, after, work)?;
        let next = (id, vec![(node, Edge::default())]);
        self.captures.get_mut().streams.insert(key, next);
        Ok(())
    }

    /// Notes that an event was recorded on a stream, in its capture or outside of any.
    pub(crate) fn note_captured_event(&mut self, event: u64, key: Option<Key>) {
        let captures = self.captures.get_mut();
        match key.and_then(|key| captures.streams.get(&key).cloned()) {
            Some(of) => captures.events.insert(event, of),
            None => captures.events.remove(&event),
        };
    }

    /// Captures that a stream waits for an event, if either takes part in a capture.
    pub(crate) fn capture_wait(&mut self, stream: Stream, event: u64) -> Answer {
        let site = self.capture_of(stream)?;
        let captures = self.captures.get_mut();
        // After the end of its capture the event stands for nothing (assumed).
        let of = captures.events.get(&event).cloned();
        let of = of.filter(|of| captures.open.contains_key(&of.0));
        match (site, of) {
            (None, None) => Ok(()),
            // A dependency on work outside of the capture (measured).
            (Some(_), None) => Err(STREAM_CAPTURE_ISOLATION),
            (Some(key), Some((id, nodes))) => {
                let captures = self.captures.get_mut();
                let Some((own, after)) = captures.streams.get_mut(&key) else {
                    return Ok(());
                };
                if *own != id {
                    let both = [*own, id];
                    both.into_iter().for_each(|id| captures.invalidate(id));
                    return Err(STREAM_CAPTURE_MERGE);
                }
                for node in nodes {
                    if after.iter().all(|(other, _)| *other != node.0) {
                        after.push(node);
                    }
                }
                Ok(())
            }
            (None, Some((id, nodes))) => {
                let key = self.capture_key(stream)?;
                let captures = self.captures.get_mut();
                if !captures.is_valid(id) {
                    return Err(STREAM_CAPTURE_INVALIDATED);
                }
                if stream.0 == STREAM_LEGACY {
                    captures.invalidate(id);
                    return Err(STREAM_CAPTURE_IMPLICIT);
                }
                captures.streams.insert(key, (id, nodes));
                Ok(())
            }
        }
    }

    /// Refuses to query or wait for an event that was recorded in a capture, and invalidates the
    /// capture. After the end of the capture the answer is INVALID_VALUE (NVIDIA/warp#556 and #983).
    pub(crate) fn refuse_captured_event(&self, event: u64) -> Answer {
        let mut captures = self.captures.borrow_mut();
        let Some(&(id, _)) = captures.events.get(&event) else {
            return Ok(());
        };
        reject_if(!captures.open.contains_key(&id), INVALID_VALUE)?;
        captures.invalidate(id);
        Err(CAPTURED_EVENT)
    }

    /// Closes or invalidates the captures of a destroyed stream: they cannot be completed.
    pub(crate) fn end_stream(&mut self, handle: u64) {
        let captures = self.captures.get_mut();
        let streams = captures.streams.iter();
        let ended: Vec<(Key, u64)> = streams
            .filter(|(key, _)| key.handle == handle)
            .map(|(key, of)| (*key, of.0))
            .collect();
        for (key, id) in ended {
            captures.streams.remove(&key);
            match captures.open.get(&id) {
                Some(capture) if capture.origin == key => drop(captures.close(id)),
                _ => captures.invalidate(id),
            }
        }
    }
}

/// Calls that may depend on work in a way that a capture cannot see ("potentially unsafe",
/// cuThreadExchangeStreamCaptureMode): measured (tests/gpu/captures.c) for the waits, the queries and
/// cuMemAlloc, assumed for the others.
const UNSAFE: &[&str] = &[
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemAlloc",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// Whether a function does work on the legacy stream and waits for it. A capture forbids that only
/// where it forbids that stream (measured as well).
fn is_synchronous_work(function: &Function) -> bool {
    let base = function.base;
    let is_work = base.starts_with("cuMemcpy") || base.starts_with("cuMemset");
    is_work && function.stream.is_none() && !base.contains("Async")
}

/// What a function answers because of captures in progress, before it does anything.
pub(crate) fn forbids(function: &Function, words: &[u64; WORDS]) -> Option<CUresult> {
    if !is_any_open() {
        return None;
    }
    let state = lock();
    let context = state.current().ok()?;
    if function.base == "cuCtxSynchronize" {
        let mut captures = state.captures.borrow_mut();
        let any = captures.invalidate_all(|capture| capture.context == context);
        return any.then_some(STREAM_CAPTURE_UNSUPPORTED);
    }
    let is_work = is_synchronous_work(function);
    let stream = match function.waits {
        Waits::Stream(at) => words[usize::from(at)],
        _ if is_work => 0,
        _ => u64::MAX,
    };
    let is_legacy = canonical_stream(stream, function.per_thread) == STREAM_LEGACY;
    if is_legacy && state.invalidate_blocking(context) {
        return Some(STREAM_CAPTURE_IMPLICIT);
    }
    if is_work || !UNSAFE.contains(&function.base) {
        return None;
    }
    let (mode, thread) = (mode(), this_thread());
    let is_forbidden = |capture: &Capture| match (mode, capture.thread == thread) {
        (RELAXED, _) | (THREAD_LOCAL, false) => false,
        (_, true) => capture.mode != RELAXED,
        (_, false) => capture.mode == GLOBAL,
    };
    let any = state.captures.borrow_mut().invalidate_all(is_forbidden);
    any.then_some(STREAM_CAPTURE_UNSUPPORTED)
}
