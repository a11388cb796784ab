//! `--batch-copies`: copies that follow each other become one.

use cutape_registry::{CopyOp, Family, MemoryType, Transfer};

use super::edited::{Edited, Known};
use super::host_side::HostSide;
use super::job::{Applied, WhatIf};
use crate::api::buffer::Buffer;
use crate::api::result_name;
use crate::calls::steps::{Issued, Step};
use crate::compare::received::read_memory;
use crate::rerun::repeatable::stream_of;

pub(super) fn apply(
    edited: &mut Edited,
    known: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let groups = groups(edited, job);
    if groups.is_empty() {
        return Err(
            "no two of the calls are linear copies of one kind on one stream that follow each \
             other, the second of which begins where the first one ends, on both sides"
                .to_owned(),
        );
    }
    let mut left_out = vec![false; edited.steps.len()];
    let mut calls = 0;
    for group in &groups {
        join(edited, known, group)?;
        calls += group.len() as u64;
        let (Some(&first), Some(&last)) = (group.first(), group.last()) else {
            continue;
        };
        // With the program's own time between them.
        for out in left_out.iter_mut().take(last + 1).skip(first + 1) {
            *out = true;
        }
    }
    let mut out = left_out.into_iter();
    edited.steps.retain(|_| !out.next().unwrap_or(false));
    Ok(Applied {
        edit: "batch-copies".to_owned(),
        calls,
        what: format!("{calls} copies joined to {}", groups.len()),
    })
}

fn transfer(issued: &Issued) -> Option<Transfer> {
    match issued.function.family {
        Family::Copy(CopyOp::Linear(copy)) => Some(copy),
        _ => None,
    }
}

fn argument(issued: &Issued, position: u8) -> u64 {
    issued.args.get(usize::from(position)).copied().unwrap_or(0)
}

/// Positions of copies that can be joined.
fn groups(edited: &Edited, job: &WhatIf) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (at, step) in edited.steps.iter().enumerate() {
        match step {
            Step::Pause(_) => continue,
            Step::Call(issued)
                if job.batch_copies.contains(&issued.index) && transfer(issued).is_some() =>
            {
                let call = |at: Option<&usize>| match edited.steps.get(*at?) {
                    Some(Step::Call(issued)) => Some(issued),
                    _ => None,
                };
                let both = call(open.first()).zip(call(open.last()));
                let follows = both.is_none_or(|(first, earlier)| {
                    continues(edited, earlier, issued) && !needs_earlier(first, issued)
                });
                if !follows {
                    all.push(std::mem::take(&mut open));
                }
                open.push(at);
            }
            _ => all.push(std::mem::take(&mut open)),
        }
    }
    all.push(open);
    all.retain(|group| group.len() > 1);
    all
}

/// Whether a copy begins where another one ends, on both sides.
fn continues(edited: &Edited, earlier: &Issued, later: &Issued) -> bool {
    let Some(copy) = transfer(later) else {
        return false;
    };
    let is_alike = earlier.function.id == later.function.id
        && earlier.context == later.context
        && stream_of(earlier) == stream_of(later);
    let sides = [earlier, later].map(|issued| edited.host.get(&issued.index));
    let meets = |position: u8, memory: MemoryType| match (memory, sides) {
        (MemoryType::Device, _) => {
            argument(earlier, position).checked_add(argument(earlier, copy.bytes))
                == Some(argument(later, position))
        }
        (MemoryType::Host, [Some(one), Some(other)]) => {
            one.recorded_end() == other.recorded && one.is_pinned == other.is_pinned
        }
        _ => false,
    };
    is_alike && meets(copy.source, copy.from) && meets(copy.target, copy.to)
}

/// Whether copies within the device, from the first to the last of a group, read what one of them
/// has written.
fn needs_earlier(first: &Issued, last: &Issued) -> bool {
    let Some(copy) = transfer(first).filter(|copy| copy.from == copy.to) else {
        return false;
    };
    let end = argument(last, copy.source).saturating_add(argument(last, copy.bytes));
    let (source, target) = (argument(first, copy.source), argument(first, copy.target));
    source.abs_diff(target) < end.saturating_sub(source)
}

/// Lets the first copy of a group do the work of all.
fn join(edited: &mut Edited, known: Known<'_, '_>, group: &[usize]) -> Result<(), String> {
    let members: Vec<Issued> = group
        .iter()
        .filter_map(|&at| match edited.steps.get(at) {
            Some(Step::Call(issued)) => Some(issued.clone()),
            _ => None,
        })
        .collect();
    let Some((first, copy)) = members.first().and_then(|one| Some((one, transfer(one)?))) else {
        return Ok(());
    };
    let bytes: u64 = members.iter().map(|one| argument(one, copy.bytes)).sum();
    let mut joined = first.clone();
    if let Some(argument) = joined.args.get_mut(usize::from(copy.bytes)) {
        *argument = bytes;
    }
    let sides = members.iter().map(|one| edited.host.get(&one.index));
    let sides: Vec<_> = sides.flatten().copied().collect();
    let lie_together = |pair: &[HostSide]| match pair {
        [one, other] => one.live.checked_add(one.length) == Some(other.live),
        _ => true,
    };
    // Pageable memory of several calls lies apart here.
    if let Some(side) = sides.first()
        && !sides.windows(2).all(lie_together)
    {
        let place = match side.is_pinned {
            true => {
                let memory = known.player.api.allocate_portable(bytes).map_err(|code| {
                    format!("{bytes} bytes of page-locked memory: {}", result_name(code))
                })?;
                edited.made.pinned.push(memory);
                memory
            }
            false => {
                let length = usize::try_from(bytes).map_err(|error| error.to_string())?;
                let buffer = Buffer::zeroed(length);
                let address = buffer.address();
                edited.made.buffers.push(buffer);
                address
            }
        };
        let mut next = place;
        for member in &members {
            let Some(side) = edited.host.get_mut(&member.index) else {
                continue;
            };
            let held = read_memory(side.live, usize::try_from(side.length).unwrap_or(0));
            // SAFETY: the place has room for the bytes of all members.
            unsafe { std::ptr::copy_nonoverlapping(held.as_ptr(), next as *mut u8, held.len()) };
            side.live = next;
            next += side.length;
        }
        if let Some(argument) = joined.args.get_mut(side.argument) {
            *argument = place;
        }
    }
    if let Some(step) = group.first().and_then(|&at| edited.steps.get_mut(at)) {
        *step = Step::Call(joined);
    }
    Ok(())
}
