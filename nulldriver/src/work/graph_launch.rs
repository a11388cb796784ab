//! Launches of executable graphs: each node is a task, in the order of the edges.
//!
//! Memory and events that no longer exist are left out: the real driver accepts the launch
//! (measured), and only running code would show what becomes of it. Memory of allocation nodes
//! begins and ends when the launch is enqueued; the program may use its address from then on. Until
//! the node that frees it runs, other streams can read it (assumed).

use std::collections::HashMap;

use crate::call::answer::Answer;
use crate::call::argument::Stream;
use crate::object::graph::Step;
use crate::object::queue::{Lane, Ticket};
use crate::object::work::{HostFunction, Work};
use crate::player;
use crate::state::{Action, State};
use crate::work::memory_operation::{self, Operation};
use crate::work::{copy, kernel, memset};

/// Enqueues all steps behind the stream and the last launch of the same executable graph; the end of
/// the launch.
pub(crate) fn enqueue(
    state: &mut State,
    steps: &[Step],
    stream: Stream,
    last: Ticket,
) -> Answer<Ticket> {
    let lane = state.lane(stream)?;
    let mut before = state.queue.before(&lane);
    before.push(last);
    let end = enqueue_steps(state, steps, lane, &before);
    before.extend(end);
    Ok(state.add_task(lane, before, Action::Nothing))
}

/// Enqueues the steps of one graph; their ends.
fn enqueue_steps(state: &mut State, steps: &[Step], lane: Lane, first: &[Ticket]) -> Vec<Ticket> {
    let mut ends: HashMap<u64, Vec<Ticket>> = HashMap::new();
    for step in steps {
        let before = step
            .after
            .iter()
            .filter_map(|node| ends.get(node))
            .flatten();
        let before: Vec<Ticket> = first.iter().chain(before).copied().collect();
        let mut end = Vec::new();
        if step.is_enabled {
            match body(state, step) {
                Some(body) => end = enqueue_steps(state, body, lane, &before),
                None => {
                    for action in actions(state, &step.work, &before) {
                        let after = if end.is_empty() { &before } else { &end };
                        end = vec![state.add_node_task(lane, after, action)];
                    }
                    if let (Work::Record(event), [ticket]) = (&step.work, &end[..]) {
                        state.record(*event, *ticket);
                    }
                }
            }
        }
        // An empty graph, too, comes after what was before its node.
        end.extend(before);
        ends.insert(step.node, end);
    }
    ends.into_values().flatten().collect()
}

/// The graph in a node that runs.
fn body<'a>(state: &State, step: &'a Step) -> Option<&'a [Step]> {
    const IF: u32 = 0;
    let chosen = match &step.work {
        Work::Child(_) => 0,
        Work::Condition { handle, kind, .. } => {
            let value = state.conditions.get(handle).copied().flatten();
            let value = value.unwrap_or(0) as usize;
            // IF runs its first graph, or else its second; SWITCH the graph of that number.
            if *kind == IF {
                usize::from(value == 0)
            } else {
                value
            }
        }
        _ => return None,
    };
    Some(step.inner.get(chosen).map_or(&[], Vec::as_slice))
}

/// What a node does, in order.
fn actions(state: &mut State, work: &Work, before: &[Ticket]) -> Vec<Action> {
    let call = player::call();
    let one = match work {
        Work::Kernel(node) => {
            let target = state.launchable(node.params().func as u64).ok();
            target.map(|target| kernel::action(state, &target.spec, node.values()))
        }
        Work::Copy(params) => copy::volume_moves(state, params)
            .ok()
            .map(|moves| Action::Run(Box::new(move |_: &mut State| copy::apply(&moves, call)))),
        Work::Memset(params) => {
            let rows = memset::node_rows(state, params).ok();
            rows.map(|rows| memset::action(rows, params))
        }
        &Work::Host { entry, data } => {
            Some(Action::Host(HostFunction::Function { entry, data }, call))
        }
        Work::Wait(event) => {
            let ticket = state.events.get(event).map_or(0, |event| event.ticket);
            let is_over = !state.queue.is_pending(ticket) || before.contains(&ticket);
            (!is_over)
                .then(|| Action::Until(Box::new(move |state| !state.queue.is_pending(ticket))))
        }
        Work::Allocate(params) => {
            if let Some(allocation) = state.inactive.remove(&params.dptr) {
                state.allocations.insert(params.dptr, allocation);
            }
            None
        }
        Work::Free(address) => {
            let address = *address;
            state.deactivate(address);
            state.in_launches.push(address);
            let end = move |state: &mut State| {
                let place = state.in_launches.iter().position(|&one| one == address);
                place.map(|place| state.in_launches.swap_remove(place));
            };
            Some(Action::Run(Box::new(end)))
        }
        Work::Batch(batch) => {
            let operations = batch.operations.iter();
            let operations = operations.filter_map(|operation| Operation::read(operation).ok());
            return operations
                .filter_map(|operation| memory_operation::action(state, operation).ok())
                .collect();
        }
        Work::Empty | Work::Record(_) | Work::Child(_) | Work::Condition { .. } => None,
    };
    vec![one.unwrap_or(Action::Nothing)]
}
