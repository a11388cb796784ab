//! `--overlap`: work that nothing but its stream orders runs on streams of its own.
//!
//! Work is ordered if it uses the same memory: for a kernel, the allocations that its parameters
//! point into. Which of them it only reads is not known: one that is as before after the calls may
//! have been changed meanwhile.

use std::collections::BTreeMap;

use cutape_registry::{CopyOp, FUNCTIONS, Family, LaunchOp, MemoryType, id};

use super::edited::{Edited, Known};
use super::graph;
use super::job::{Applied, WhatIf};
use super::stretch::{Stretch, stretches};
use crate::api::result_name;
use crate::calls::steps::{Issued, Step};

/// The most streams that share the work of one: the hardware queues of a device are no more by
/// default (CUDA C++ Programming Guide, CUDA_DEVICE_MAX_CONNECTIONS).
const MOST_STREAMS: usize = 8;

pub(super) fn apply(
    edited: &mut Edited,
    known: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let is_chosen =
        |issued: &Issued| job.overlap.contains(&issued.index) && can_move(edited, known, issued);
    let groups = stretches(&edited.steps, is_chosen);
    let chains: Vec<(Stretch, Vec<Vec<usize>>)> = groups
        .into_iter()
        .map(|group| {
            let chains = chains(edited, known, &group);
            (group, chains)
        })
        .filter(|(_, chains)| chains.len() > 1)
        .collect();
    if chains.is_empty() {
        return Err(
            "no two of the calls enqueue work that follows each other on one stream and uses \
             different memory (kernels: the allocations that their parameters point into)"
                .to_owned(),
        );
    }
    let most = chains.iter().map(|(_, chains)| chains.len()).max();
    let mut own: BTreeMap<u64, Vec<Lane>> = BTreeMap::new();
    let mut calls = 0;
    let mut insert: BTreeMap<usize, [Vec<Step>; 2]> = BTreeMap::new();
    for (group, chains) in &chains {
        let lanes = own.entry(group.context).or_default();
        while lanes.len() + 1 < chains.len() {
            lanes.push(Lane::make(edited, known, group.context)?);
        }
        let (Some(&first), Some(&last)) = (group.at.first(), group.at.last()) else {
            continue;
        };
        let fork = known.player.api.create_mark();
        let fork = fork.map_err(|code| format!("cuEventCreate returned {}", result_name(code)))?;
        edited.made.events.push(fork);
        let at = |position: usize| match edited.steps.get(position) {
            Some(Step::Call(issued)) => issued.index,
            _ => 0,
        };
        let (begin, end) = (at(first), at(last));
        let place = (group.context, group.stream);
        let before = &mut insert.entry(first).or_default()[0];
        before.push(record(begin, place, fork)?);
        for (lane, chain) in lanes.iter().zip(chains.iter().skip(1)) {
            let own = (group.context, lane.stream);
            let before = &mut insert.entry(first).or_default()[0];
            before.push(wait(begin, own, fork)?);
            for &position in chain {
                if let Some(Step::Call(issued)) = edited.steps.get_mut(position) {
                    graph::redirect(issued, lane.stream, &mut edited.made.buffers);
                    calls += 1;
                }
            }
            let after = &mut insert.entry(last).or_default()[1];
            after.push(record(end, own, lane.event)?);
            after.push(wait(end, place, lane.event)?);
        }
    }
    let steps = std::mem::take(&mut edited.steps);
    for (at, step) in steps.into_iter().enumerate() {
        let [before, after] = insert.remove(&at).unwrap_or_default();
        edited.steps.extend(before);
        edited.steps.push(step);
        edited.steps.extend(after);
    }
    edited.conditions.push(
        "kernels use no memory but what their parameters point into (assumed; the bytes are \
         compared)"
            .to_owned(),
    );
    Ok(Applied {
        edit: "overlap".to_owned(),
        calls,
        what: format!(
            "{calls} calls on up to {} streams beside theirs",
            most.unwrap_or(1) - 1
        ),
    })
}

/// A stream beside that of the program, with an event for its end.
#[derive(Debug)]
struct Lane {
    stream: u64,
    event: u64,
}

impl Lane {
    fn make(edited: &mut Edited, known: Known<'_, '_>, context: u64) -> Result<Self, String> {
        let api = &known.player.api;
        let failed =
            |what: &'static str| move |code| format!("{what} returned {}", result_name(code));
        if context != 0 {
            let set = api.set_current(context);
            set.map_err(failed("cuCtxSetCurrent"))?;
        }
        let stream = api.create_stream().map_err(failed("cuStreamCreate"))?;
        edited.made.streams.push(stream);
        let event = api.create_mark();
        let event = event.map_err(failed("cuEventCreate"))?;
        edited.made.events.push(event);
        Ok(Self { stream, event })
    }
}

fn step(index: u64, context: u64, id: u16, args: Vec<u64>) -> Result<Step, String> {
    let function = FUNCTIONS.get(usize::from(id));
    Ok(Step::Call(Issued {
        index,
        function: function.ok_or("this build does not know a function of events")?,
        args,
        context,
    }))
}

fn record(index: u64, (context, stream): (u64, u64), event: u64) -> Result<Step, String> {
    step(index, context, id::cuEventRecord, vec![event, stream])
}

fn wait(index: u64, (context, stream): (u64, u64), event: u64) -> Result<Step, String> {
    step(
        index,
        context,
        id::cuStreamWaitEvent,
        vec![stream, event, 0],
    )
}

/// Whether it is known which memory a call's work uses, and another stream can have it.
fn can_move(edited: &Edited, known: Known<'_, '_>, issued: &Issued) -> bool {
    let function = issued.function;
    let is_work = match function.family {
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => true,
        Family::Memset => function.stream.is_some(),
        Family::Copy(CopyOp::Linear(copy)) => {
            let is_host = copy.from == MemoryType::Host || copy.to == MemoryType::Host;
            let side = edited.host.get(&issued.index);
            function.stream.is_some() && (!is_host || side.is_some_and(|side| side.is_pinned))
        }
        _ => false,
    };
    is_work && known.noted.reached.contains_key(&issued.index)
}

/// Work that uses memory together.
#[derive(Debug, Default)]
struct Chain {
    at: Vec<usize>,
    areas: Vec<(u64, u64)>,
}

/// Divides a group into chains of work that use no memory together, in their order. At most
/// [`MOST_STREAMS`].
fn chains(edited: &Edited, known: Known<'_, '_>, group: &Stretch) -> Vec<Vec<usize>> {
    let overlap = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.1 && b.0 < a.1;
    let used = |position: usize| -> Vec<(u64, u64)> {
        let Some(Step::Call(issued)) = edited.steps.get(position) else {
            return Vec::new();
        };
        let reached = known.noted.reached.get(&issued.index);
        let mut areas: Vec<_> = reached.into_iter().flatten().copied().collect();
        let side = edited.host.get(&issued.index);
        areas.extend(side.map(|side| (side.recorded, side.recorded_end())));
        areas
    };
    let mut chains: Vec<Chain> = Vec::new();
    for &position in &group.at {
        let areas = used(position);
        let shares = |chain: &Chain| {
            let all = chain.areas.iter();
            all.into_iter()
                .any(|one| areas.iter().any(|other| overlap(one, other)))
        };
        let (sharing, others): (Vec<Chain>, Vec<Chain>) = chains.into_iter().partition(shares);
        let mut sharing = sharing.into_iter();
        let mut joined = sharing.next().unwrap_or_default();
        for other in sharing {
            joined.at.extend(other.at);
            joined.areas.extend(other.areas);
        }
        joined.at.push(position);
        let new = areas
            .into_iter()
            .filter(|area| !joined.areas.contains(area));
        let new: Vec<_> = new.collect();
        joined.areas.extend(new);
        chains = others;
        chains.push(joined);
    }
    chains.sort_by_key(|chain| chain.at.iter().min().copied());
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    for (number, chain) in chains.into_iter().enumerate() {
        match lanes.get_mut(number % MOST_STREAMS) {
            Some(lane) => lane.extend(chain.at),
            None => lanes.push(chain.at),
        }
    }
    for lane in &mut lanes {
        lane.sort_unstable();
    }
    lanes
}
