//! Stream Management: stream capture. Work on a stream that captures becomes nodes of a graph.

use std::collections::HashSet;

use cutape_registry::STREAM_LEGACY;

use crate::call::answer::{
    Answer, ILLEGAL_STATE, INVALID_VALUE, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNJOINED, STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD, invalid_if, reject_if,
};
use crate::call::argument::{Extra, In, Out, OutRef, Stream};
use crate::call::entry::entries;
use crate::object::capture::{Capture, GLOBAL, RELAXED, replace_mode, this_thread};
use crate::object::graph::{Dependency, Edge, read_dependencies};
use crate::object::stream_key::Key;
use crate::state::{Locked, State, lock};
use crate::work::host_function::run_destructors;

entries! {
    [symbol] cuStreamBeginCapture: |stream: Stream| begin(stream, None, GLOBAL);
    [symbol] cuStreamBeginCapture_v2: |stream: Stream, mode: u32| begin(stream, None, mode);
    cuStreamBeginCaptureToGraph: begin_to_graph;
    cuStreamEndCapture: end;
    cuStreamIsCapturing: is_capturing;
    [symbol] cuStreamGetCaptureInfo: info::<false, false>;
    [symbol] cuStreamGetCaptureInfo_v2: info::<true, false>;
    [symbol] cuStreamGetCaptureInfo_v3: info::<true, true>;
    [symbol] cuStreamUpdateCaptureDependencies: update::<false>;
    [symbol] cuStreamUpdateCaptureDependencies_v2: update::<true>;
    cuThreadExchangeStreamCaptureMode: exchange_mode;
}

// CUstreamCaptureStatus.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

fn begin(stream: Stream, graph: Option<(u64, Vec<Dependency>)>, mode: u32) -> Answer {
    let mut state = lock();
    let context = state.stream_context(stream)?;
    state.current()?;
    invalid_if(mode > RELAXED)?;
    reject_if(stream.0 == STREAM_LEGACY, STREAM_CAPTURE_UNSUPPORTED)?;
    let origin = state.capture_key(stream)?;
    let is_capturing = state.captures.get_mut().streams.contains_key(&origin);
    reject_if(is_capturing, ILLEGAL_STATE)?;
    let is_own = graph.is_none();
    let (graph, after) = match graph {
        Some((graph, after)) => {
            state.check_nodes(graph, &after)?;
            (graph, after)
        }
        None => (state.create_graph(None)?, Vec::new()),
    };
    let capture = Capture {
        graph,
        is_own,
        mode,
        thread: this_thread(),
        origin,
        context,
        is_valid: true,
        lent: Vec::new(),
    };
    state.captures.get_mut().open(capture, after);
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
    let after = read_dependencies(nodes, data, count)?;
    lock().graphs.find(graph)?;
    begin(stream, Some((graph, after)), mode)
}

fn end(mut state: Locked, stream: Stream, graph: Out<u64>) -> Answer {
    state.stream_context(stream)?;
    graph.check()?;
    let key = state.capture_key(stream)?;
    let captures = state.captures.get_mut();
    // On a stream that does not capture: ILLEGAL_STATE (measured).
    let (id, last) = captures.streams.get(&key).cloned().ok_or(ILLEGAL_STATE)?;
    let capture = captures.open.get_mut(&id).ok_or(ILLEGAL_STATE)?;
    if capture.origin != key {
        capture.is_valid = false;
        return Err(STREAM_CAPTURE_UNMATCHED);
    }
    let is_wrong_thread = capture.mode != RELAXED && capture.thread != this_thread();
    reject_if(is_wrong_thread, STREAM_CAPTURE_WRONG_THREAD)?;
    let (made, is_own, is_valid) = (capture.graph, capture.is_own, capture.is_valid);
    let others = captures.streams.iter();
    let others = others.filter(|(other, of)| of.0 == id && **other != key);
    let others: Vec<u64> = others
        .flat_map(|(_, of)| of.1.iter().map(|node| node.0))
        .collect();
    captures.close(id);
    let reached = reached_from(&state, &last);
    let failure = if !is_valid {
        STREAM_CAPTURE_INVALIDATED
    } else if others.iter().any(|node| !reached.contains(node)) {
        STREAM_CAPTURE_UNJOINED
    } else {
        return graph.set(made);
    };
    graph.set(0)?;
    if is_own {
        state.remove_graph(made);
        run_destructors(state)?;
    }
    Err(failure)
}

/// The nodes that these nodes depend on, themselves included.
fn reached_from(state: &State, last: &[Dependency]) -> HashSet<u64> {
    let mut reached = HashSet::new();
    let mut queue: Vec<u64> = last.iter().map(|node| node.0).collect();
    while let Some(node) = queue.pop() {
        if reached.insert(node)
            && let Ok(node) = state.nodes.find(node)
        {
            queue.extend(node.after.iter().map(|node| node.0));
        }
    }
    reached
}

/// Status of a stream. The legacy stream has none while a blocking one captures; the capture stays
/// valid.
fn status_of(state: &State, stream: Stream) -> Answer<u32> {
    state.check_stream(stream)?;
    let key = state.capture_key(stream)?;
    let captures = state.captures.borrow();
    if let Some((id, _)) = captures.streams.get(&key) {
        let is_valid = captures.is_valid(*id);
        return Ok(if is_valid { ACTIVE } else { INVALIDATED });
    }
    let current = state.current().unwrap_or(0);
    let is_blocking = |key: &Key| {
        let stream = state.streams.get(&key.handle);
        stream.is_some_and(|stream| stream.context == current && stream.is_blocking())
    };
    let is_implicit = stream.0 == STREAM_LEGACY && captures.streams.keys().any(is_blocking);
    reject_if(is_implicit, STREAM_CAPTURE_IMPLICIT)?;
    Ok(NONE)
}

fn is_capturing(state: Locked, stream: Stream, status: OutRef<u32>) -> Answer {
    status.set(status_of(&state, stream)?)
}

/// The optional outputs of `cuStreamGetCaptureInfo`; the first version has none.
fn info<const HAS_OUTPUTS: bool, const HAS_DATA: bool>(
    mut state: Locked,
    stream: Stream,
    status: OutRef<u32>,
    id: Out<u64>,
    [graph, nodes_at]: [Extra<Out<u64>, HAS_OUTPUTS>; 2],
    data_at: Extra<Out<u64>, HAS_DATA>,
    count: Extra<Out<u64>, HAS_OUTPUTS>,
) -> Answer {
    let now = status_of(&state, stream)?;
    status.set(now)?;
    if now != ACTIVE {
        // Only the status is written.
        return Ok(());
    }
    let key = state.capture_key(stream)?;
    let captures = state.captures.get_mut();
    let (number, after) = captures.streams[&key].clone();
    let has_data = after.iter().any(|(_, edge)| *edge != Edge::default());
    let is_given = |out: Out<u64>| !out.is_null();
    let is_lossy = has_data && !data_at.0.is_some_and(is_given) && nodes_at.0.is_some_and(is_given);
    invalid_if(is_lossy)?;
    let capture = captures.open.get_mut(&number).ok_or(ILLEGAL_STATE)?;
    id.set_if(number);
    let nodes: Box<[u64]> = after.iter().map(|(node, _)| *node).collect();
    let data: Box<[u64]> = after
        .iter()
        .map(|(_, edge)| u64::from_le_bytes(*edge))
        .collect();
    for (out, value) in [
        (graph.0, capture.graph),
        (nodes_at.0, nodes.as_ptr() as u64),
        (data_at.0, data.as_ptr() as u64),
        (count.0, nodes.len() as u64),
    ] {
        if let Some(out) = out {
            out.set_if(value);
        }
    }
    capture.lent.extend([nodes, data]);
    Ok(())
}

fn update<const HAS_DATA: bool>(
    mut state: Locked,
    stream: Stream,
    nodes: In<u64>,
    data: Extra<In<Edge>, HAS_DATA>,
    count: usize,
    flags: u32,
) -> Answer {
    const ADD: u32 = 0;
    const SET: u32 = 1;
    state.check_stream(stream)?;
    let new = read_dependencies(nodes, data.0.unwrap_or(In::at(0)), count)?;
    let key = state.capture_of(stream)?.ok_or(ILLEGAL_STATE)?;
    let captures = state.captures.get_mut();
    let graph = captures.open[&captures.streams[&key].0].graph;
    state.check_nodes(graph, &new)?;
    let captures = state.captures.get_mut();
    let (_, after) = captures.streams.get_mut(&key).ok_or(ILLEGAL_STATE)?;
    match flags {
        ADD => after.extend(new),
        SET => *after = new,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn exchange_mode(mode: Out<u32>) -> Answer {
    let new = mode.get()?;
    invalid_if(new > RELAXED)?;
    mode.set(replace_mode(new))
}
