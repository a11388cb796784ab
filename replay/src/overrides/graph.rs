//! Graphs: launches with the host memory of their copies, lists of nodes, captures in progress,
//! callbacks, files.

use std::collections::VecDeque;

use cutape_format::TemporaryFile;
use cutape_format::layout::field;
use cutape_registry::{AttributeType, Kind, Meaning, attributes};

use crate::api::buffer::{copy_common, first, number};
use crate::calls::frame::Expect;
use crate::compare::payload::Payload;
use crate::compare::readbacks::Target;
use crate::compare::received::read_memory;
use crate::objects::handles::{Belongs, Resolved};
use crate::objects::skip::skip;
use crate::overrides::{callback, launch};
use crate::plan::host_ranges::host_ranges;
use crate::player::{Job, Played, Player};
use crate::report::What;

/// cuGraphLaunch: fills the host memory that its copies read, and expects what they write.
pub(crate) fn launch(job: &mut Job<'_, '_>) -> Played {
    let ranges = job.piece(0, field::HOST_RANGES).unwrap_or_default();
    let ranges = host_ranges(&ranges);
    let sources = ranges.iter().filter(|range| range.is_source);
    let mut reads = Vec::new();
    let snapshots = job.call.snapshots();
    let snapshots = snapshots.filter(|snapshot| snapshot.field == field::HOST_BYTES);
    for (range, snapshot) in sources.zip(snapshots) {
        let Some(rows) = job.find_graph_rows(&range.rows) else {
            continue;
        };
        match job.payload(&snapshot) {
            Payload::Here(bytes) => {
                job.look_for_stale(&bytes);
                let mut rest: &[u8] = &bytes;
                for (&(recorded, _), &(row, length)) in range.rows.iter().zip(&rows) {
                    let Some((part, behind)) = rest.split_at_checked(length) else {
                        break;
                    };
                    rest = behind;
                    // A copy that is on its way there brings what the recorder did not see yet.
                    if !job.readbacks.any_in(row, row.saturating_add(length as u64)) {
                        job.store_source(recorded, row, part);
                    }
                }
            }
            Payload::Left(_, hash) => job.bytes_are_missing(hash),
            Payload::Unreadable => {}
        }
        reads.extend(rows.iter().map(|&(row, length)| (row, row + length as u64)));
    }
    let (mut frame, result) = job.issued(&[])?;
    frame.reads = reads;
    if job.call.succeeded() && result == 0 && !job.current.is_captured {
        for range in ranges.iter().filter(|range| !range.is_source) {
            if let Some(pieces) = job.find_graph_rows(&range.rows) {
                let readbacks = &mut job.player.readbacks;
                let rows = range.rows.clone();
                let target = Target { rows, pieces };
                readbacks.expect_of_graph(job.call, job.function, target);
            }
        }
    }
    job.conclude(frame, result)
}

/// Sorts the live handles of a list like the recorded ones. Handles that the replay does not know
/// keep the driver's order. `Err` has the first recorded handle whose live one is not in the list.
fn matched(
    recorded: &[u64],
    live: &[u64],
    known: impl Fn(u64) -> Option<u64>,
) -> Result<Vec<u64>, u64> {
    let mut left: VecDeque<u64> = live.iter().copied().collect();
    let mut ordered = Vec::with_capacity(recorded.len());
    for &handle in recorded {
        let place = match known(handle) {
            Some(wanted) => match left.iter().position(|&one| one == wanted) {
                Some(at) => left.remove(at),
                None => return Err(handle),
            },
            None => None,
        };
        ordered.push(place);
    }
    let ordered = ordered.into_iter();
    Ok(ordered
        .map(|place| place.or_else(|| left.pop_front()).unwrap_or(0))
        .collect())
}

fn handles_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(number).collect()
}

/// The live node of a recorded one, if the replay knows it.
fn known_node(player: &Player<'_>, handle: u64) -> Option<u64> {
    match player.handles.resolve(Kind::GraphNode, handle) {
        Resolved::Live(live) => Some(live),
        _ => None,
    }
}

/// cuGraphGetNodes and similar: lists of nodes, whose order may differ.
pub(crate) fn list_nodes(job: &mut Job<'_, '_>) -> Played {
    let (mut frame, result) = job.issued(&[])?;
    if result == 0 && job.call.succeeded() {
        for place in frame.places.clone() {
            if !matches!(place.expect, Expect::Found(Kind::GraphNode, _)) {
                continue;
            }
            let recorded = handles_of(job.call.out_bytes(place.position).unwrap_or_default());
            let mut live = handles_of(&frame.received(&place));
            live.truncate(recorded.len());
            match matched(&recorded, &live, |handle| known_node(job, handle)) {
                Ok(ordered) => {
                    let bytes: Vec<u8> = ordered.iter().flat_map(|one| one.to_le_bytes()).collect();
                    frame.overwrite(place.address, &bytes);
                }
                Err(missing) => {
                    let position = place.position;
                    let expected = format!("node {missing:#x} in the list");
                    let texts = (expected, "another node".to_owned());
                    job.diverge(What::OutParameter, Some(position), texts);
                    frame.places.retain(|other| other.position != position);
                }
            }
        }
    }
    job.conclude(frame, result)
}

/// cuStreamGetCaptureInfo: learns the nodes that the next captured call depends on.
pub(crate) fn capture_info(job: &mut Job<'_, '_>) -> Played {
    let (frame, result) = job.issued(&[])?;
    let at = |name: &str| {
        job.function
            .params
            .iter()
            .position(|param| param.name == name)
    };
    if result == 0
        && job.call.succeeded()
        && let (Some(nodes), Some(count)) = (at("dependencies_out"), at("numDependencies_out"))
        && let Some(leave) = job.call.leave
        && let Some(recorded) = leave.snapshot(nodes, field::ELEMENTS)
        && let Some(recorded) = recorded.bytes.inline()
        && let (Some(array), Some(count)) = (frame.word_at(nodes), frame.word_at(count))
    {
        let recorded = handles_of(recorded);
        if array != 0 && count as usize == recorded.len() {
            let live = handles_of(&read_memory(array, recorded.len() * 8));
            let ordered = matched(&recorded, &live, |handle| known_node(job, handle));
            for (&recorded, live) in recorded.iter().zip(ordered.unwrap_or_default()) {
                let key = (Kind::GraphNode, recorded);
                let (belongs, site) = (Belongs::default(), job.site());
                job.handles.find(key, Some(live), belongs, site);
            }
        }
    }
    job.conclude(frame, result)
}

/// cuGraphInstantiateWithParams: the stream that it uploads on is in the struct.
pub(crate) fn instantiate(job: &mut Job<'_, '_>) -> Played {
    use cutape_driver::types::CUDA_GRAPH_INSTANTIATE_PARAMS as Params;
    const PARAMS: usize = 2;
    const STREAM: usize = std::mem::offset_of!(Params, hUploadStream);
    let Some(mut bytes) = job.input(PARAMS, 0)? else {
        return job.plain();
    };
    if let Some(stream) = bytes.get_mut(STREAM..STREAM + 8) {
        let live = job.live_handle(Kind::Stream, number(stream))?;
        copy_common(stream, &live.to_le_bytes());
    }
    job.reissue_bytes(PARAMS, &bytes)
}

/// cuGraphKernelNodeSetAttribute.
pub(crate) fn set_attribute(job: &mut Job<'_, '_>) -> Played {
    const VALUE: usize = 2;
    let Some(bytes) = job.input(VALUE, 0)? else {
        return job.plain();
    };
    let bytes = launch::attribute_value_live(job, job.call.argument(1), &bytes)?;
    job.reissue_bytes(VALUE, &bytes)
}

/// How many bytes of an attribute's value are numbers, which can be compared.
fn comparable(attribute: u64) -> usize {
    match AttributeType::of(attributes::CUlaunchAttributeID, attribute) {
        Some(known) if known.meaning == Meaning::Plain => known.bytes as usize,
        _ => 0,
    }
}

/// cuGraphKernelNodeGetAttribute: compares the member of the union that the attribute uses.
pub(crate) fn get_attribute(job: &mut Job<'_, '_>) -> Played {
    const VALUE: usize = 2;
    let (mut frame, result) = job.issued(&[])?;
    if let Some(place) = frame.remove_place(VALUE)
        && result == 0
        && let Some(expected) = job.call.out_bytes(VALUE)
    {
        let mut value = expected.to_vec();
        let length = comparable(job.call.argument(1)).min(value.len());
        copy_common(&mut value, first(&frame.received(&place), length));
        job.compare_out(VALUE, &value);
    }
    job.conclude(frame, result)
}

/// cuGraphConditionalHandleCreate: the handle is a number that the program passes to kernels.
pub(crate) fn condition(job: &mut Job<'_, '_>) -> Played {
    let (frame, result) = job.issued(&[])?;
    if result == 0
        && job.call.succeeded()
        && let (Some(recorded), Some(live)) = (job.call.out(0), frame.word_at(0))
    {
        job.captures.add_condition(recorded, live);
    }
    job.conclude(frame, result)
}

/// cuUserObjectCreate: the destructor of the program is replaced by one that does nothing.
pub(crate) fn user_object(job: &mut Job<'_, '_>) -> Played {
    const POINTER: usize = 1;
    const DESTROY: usize = 2;
    let stub = match job.call.argument(DESTROY) {
        0 => 0,
        _ => callback::stub(job),
    };
    let pointer = match job.call.argument(POINTER) {
        0 => 0,
        _ => job.lent.nothing(),
    };
    job.reissue_with([(POINTER, pointer), (DESTROY, stub)])
}

/// cuGraphDebugDotPrint: writes a temporary file and removes it.
pub(crate) fn dot(job: &mut Job<'_, '_>) -> Played {
    const PATH: usize = 1;
    if job.call.argument(PATH) == 0 || !job.call.succeeded() {
        // Without a path the driver refuses it; a failure may have been due to the program's path.
        if job.call.argument(PATH) == 0 {
            return job.plain();
        }
        return skip("failed to write a file of the program's");
    }
    // The file exists before the driver writes it, so that nobody else can lead it elsewhere.
    let beside = std::env::temp_dir().join("cutape-graph.dot");
    let file = match TemporaryFile::beside(&beside) {
        Ok(file) => file,
        Err(error) => return skip(format!("cannot make a temporary file: {error}; set TMPDIR")),
    };
    let Some(text) = file.path().to_str() else {
        return skip("the folder for temporary files has no name in UTF-8");
    };
    let name = format!("{text}\0");
    job.reissue_bytes(PATH, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_matched_by_what_is_known() {
        let known = |handle| match handle {
            1 => Some(11),
            2 => Some(12),
            9 => Some(99),
            _ => None,
        };
        for (recorded, live, expected) in [
            (
                &[1u64, 2, 3][..],
                &[12u64, 13, 11][..],
                Ok(vec![11, 12, 13]),
            ),
            (&[3, 4], &[20, 21], Ok(vec![20, 21])),
            (&[3, 4], &[20], Ok(vec![20, 0])),
            (&[3, 9], &[20, 21], Err(9)),
            (&[1, 1], &[11], Err(1)),
            (&[], &[], Ok(vec![])),
        ] {
            assert_eq!(matched(recorded, live, known), expected, "{recorded:?}");
        }
    }
}
