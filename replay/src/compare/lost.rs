//! What is missing because calls are left out.

use cutape_registry::{CopyOp, Family, Function, Kind, Length, MemoryType, Role};

use crate::compare::consequences::OBJECTS_KEPT;
use crate::issue::length::{length_of, made_length};
use crate::issue::player::{Job, Player};
use crate::issue::skip::Root;
use crate::place::address::Found;

/// The operands of a copy between two addresses: source, target, length.
fn linear(job: &Job<'_, '_>) -> Option<(u64, u64, u64)> {
    let Family::Copy(CopyOp::Linear(of) | CopyOp::Peer(of) | CopyOp::Unified(of)) =
        job.function.family
    else {
        return None;
    };
    let is_address = |kind| kind != MemoryType::Array;
    let [source, target, length] =
        [of.source, of.target, of.bytes].map(|at| job.call.argument(usize::from(at)));
    (is_address(of.from) && is_address(of.to)).then_some((source, target, length))
}

/// True while some memory lacks something, and other memory does not.
#[inline]
fn some_is_changed(job: &Job<'_, '_>) -> bool {
    !job.consequences.changed.is_empty() && job.consequences.anywhere.is_none()
}

/// Before a call: which bytes that it brings to the host, or writes anywhere, lack something.
#[inline]
pub(crate) fn before(job: &mut Job<'_, '_>) {
    if some_is_changed(job) {
        follow(job);
    }
}

#[cold]
fn follow(job: &mut Job<'_, '_>) {
    if !job.call.succeeded() {
        return;
    }
    let spreads = job.traits.is_launch || matches!(job.function.family, Family::Copy(_));
    match linear(job) {
        Some((source, target, length)) => {
            let cause = job.consequences.of_memory(source, length);
            if let Some(cause) = cause.filter(|_| !job.ranges.is_device(target)) {
                job.player.consequences.copies.insert(job.call.index, cause);
            }
        }
        None if spreads => {
            let first = job.consequences.changed.iter().next();
            job.consequences.anywhere = first.map(|(_, &cause)| cause);
        }
        None => {}
    }
}

/// After a call was re-issued: which device memory it gave what it lacked, or took it from.
#[inline]
pub(crate) fn after(job: &mut Job<'_, '_>) {
    if some_is_changed(job) {
        // What it reads may have become doubtful when it was issued.
        follow(job);
        renew(job);
    }
}

#[cold]
fn renew(job: &mut Job<'_, '_>) {
    // A captured call writes when its graph is launched.
    if !job.call.succeeded() || job.current.is_captured {
        return;
    }
    let Player {
        consequences,
        ranges,
        ..
    } = &mut *job.player;
    if job.traits.destroys {
        let changed = &mut consequences.changed;
        changed.retain(|memory, _| matches!(ranges.find(memory.start), Found::Live(..)));
    }
    if let Some((source, target, length)) = linear(job) {
        if job.ranges.is_device(target) {
            job.consequences.copy(source, target, length);
        }
    } else if let Some((start, length)) = written(job) {
        let end = start.saturating_add(length);
        job.consequences.changed.cut(&(start..end));
    }
}

/// All bytes that a call writes, or that it allocates: start, length.
fn written(job: &Job<'_, '_>) -> Option<(u64, u64)> {
    let mut params = job.function.params.iter().enumerate();
    params.find_map(|(position, param)| match param.role {
        Role::DeviceWrite(length)
            if job.function.family == Family::Memset
                && !matches!(length, Length::Pitched(..) | Length::PitchedBy(..)) =>
        {
            let length = length_of(job.call, job.function, length);
            Some((job.call.argument(position), length))
        }
        Role::Make(kind, _) if kind.is_address() && kind != Kind::Reservation => {
            Some((job.call.out(position)?, made_length(job.call, job.function)))
        }
        _ => None,
    })
}

/// What is missing because a call was left out.
enum Lost {
    /// Nothing that is compared.
    Nothing,
    /// Bytes of host memory, which are not compared.
    HostBytes,
    /// What these bytes of device memory hold: start, length.
    Memory(u64, u64),
    /// It may be any device memory.
    Anywhere,
}

/// A call is left out: counts it with its cause, and notes what is missing.
#[cold]
pub(crate) fn left_out(job: &mut Job<'_, '_>, reason: &str, root: Root) {
    if !job.call.succeeded() || matches!(root, Root::Exchange | Root::Misuse) {
        return;
    }
    let function = job.function;
    let cause = match root {
        Root::PrivateMemory(owner) => job.consequences.cause(owner.to_string()),
        Root::Object(call) => match job.consequences.missing.get(&call) {
            Some(&cause) => cause,
            None => {
                let text = format!("the object of call {call}, which failed in the replay");
                job.consequences.cause(text)
            }
        },
        Root::Itself | Root::Exchange | Root::Misuse => job
            .consequences
            .cause(format!("{}: {reason}", function.name)),
    };
    if job.traits.gives && job.consequences.missing.len() < OBJECTS_KEPT {
        let missing = &mut job.player.consequences.missing;
        missing.insert(job.call.index, cause);
    }
    let lost = lost_with(job, function);
    let index = job.call.index;
    let state = &mut job.player.consequences;
    match lost {
        Lost::Memory(start, length) => {
            let end = start.saturating_add(length.max(1));
            state.changed.overwrite(&(start..end), cause);
        }
        Lost::Anywhere => {
            state.anywhere.get_or_insert(cause);
        }
        Lost::HostBytes | Lost::Nothing => {}
    }
    if let Some(counted) = state.causes.get_mut(cause) {
        if counted.left_out == 0 {
            counted.first = index;
        }
        counted.left_out += 1;
        counted.lost += u64::from(!matches!(lost, Lost::Nothing));
    }
}

fn lost_with(job: &Job<'_, '_>, function: &'static Function) -> Lost {
    let writes = match function.family {
        _ if job.traits.is_launch => return Lost::Anywhere,
        // The graph of the capture lacks it at each launch.
        Family::Copy(_) | Family::Memset if job.current.is_captured => return Lost::Anywhere,
        Family::Copy(_) | Family::Memset | Family::StreamMemory(_) => true,
        _ => false,
    };
    if !writes {
        return Lost::Nothing;
    }
    if let Some((_, target, length)) = linear(job) {
        return match job.ranges.is_device(target) {
            true => Lost::Memory(target, length),
            false if names_device(job, target) => Lost::Nothing,
            false => Lost::HostBytes,
        };
    }
    let mut params = function.params.iter().enumerate();
    let target = params.find_map(|(position, param)| match param.role {
        Role::DeviceWrite(length) => Some((
            job.call.argument(position),
            length_of(job.call, function, length),
        )),
        _ => None,
    });
    match (target, function.family) {
        (Some((target, length)), _) if job.ranges.is_device(target) => {
            Lost::Memory(target, length.max(1))
        }
        (None, Family::Copy(_)) => Lost::Anywhere,
        _ => Lost::Nothing,
    }
}

/// True if the target of a copy is device memory which is not here.
fn names_device(job: &Job<'_, '_>, target: u64) -> bool {
    let absent = &job.unavailable.absent;
    absent.at(&job.ranges, target, 1).is_some()
}
