//! What is missing because calls are left out.

use std::ops::Range;

use cutape_model::DescribedAccess;
use cutape_registry::{CopyOp, Family, Function, Kind, Length, MemoryType, Role};

use crate::compare::consequences::{Consequences, OBJECTS_KEPT};
use crate::objects::skip::Root;
use crate::place::address::Found;
use crate::plan::length::{length_of, made_length};
use crate::plan::private_memory::{described, span};
use crate::player::{Job, ReplayState};

/// From the first byte to the last of the linear memory that a copy reads or writes.
#[derive(Clone, Copy)]
struct Operand {
    start: u64,
    length: u64,
    /// Every byte in between is read or written.
    is_whole: bool,
}

impl Operand {
    fn of(access: &DescribedAccess) -> Self {
        Self {
            start: access.start,
            length: span(access),
            is_whole: access.is_whole(),
        }
    }

    fn bytes(self) -> Range<u64> {
        self.start..self.start.saturating_add(self.length.max(1))
    }
}

/// Those of a copy; `None` is an array.
struct Operands {
    source: Option<Operand>,
    target: Option<Operand>,
}

/// The copies of a call; `None` if it makes none, or what they are is not known.
fn copies(job: &Job<'_, '_>) -> Option<Vec<Operands>> {
    let Family::Copy(op) = job.function.family else {
        return None;
    };
    let argument = |at: u8| job.call.argument(usize::from(at));
    let count = match op {
        CopyOp::Linear(of) | CopyOp::Peer(of) | CopyOp::Unified(of) => {
            let operand = |kind, at| {
                (kind != MemoryType::Array).then(|| Operand {
                    start: argument(at),
                    length: argument(of.bytes),
                    is_whole: true,
                })
            };
            return Some(vec![Operands {
                source: operand(of.from, of.source),
                target: operand(of.to, of.target),
            }]);
        }
        CopyOp::Described(_) => 1,
        CopyOp::Batch { count, .. } | CopyOp::Batch3D { count, .. } => argument(count),
    };
    let accesses = described(job.trace, job.call, job.function)?;
    let of_one = accesses.chunk_by(|one, other| one.copy == other.copy);
    let copies = of_one.map(|accesses| {
        let find = |is_write| accesses.iter().find(|access| access.is_write == is_write);
        Operands {
            source: find(false).map(Operand::of),
            target: find(true).map(Operand::of),
        }
    });
    let copies: Vec<Operands> = copies.collect();
    // Those between arrays are not among them.
    (copies.len() as u64 == count).then_some(copies)
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
    let Some(copies) = copies(job) else {
        if spreads {
            let first = job.consequences.changed.iter().next();
            job.consequences.anywhere = first.map(|(_, &cause)| cause);
        }
        return;
    };
    for Operands { source, target } in copies {
        let of_memory =
            |operand: Operand| job.consequences.of_memory(operand.start, operand.length);
        let Some(cause) = source.and_then(of_memory) else {
            continue;
        };
        match target {
            Some(target) if job.ranges.is_device(target.start) => {}
            Some(_) => {
                job.player.consequences.copies.insert(job.call.index, cause);
            }
            None => job.consequences.anywhere = Some(cause),
        }
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
    let ReplayState {
        consequences,
        ranges,
        ..
    } = &mut **job.player;
    if job.traits.destroys {
        consequences.forget_ended(|address| matches!(ranges.find(address), Found::Live(..)));
    }
    if let Some(copies) = copies(job) {
        for Operands { source, target } in copies {
            if let Some(target) = target.filter(|target| job.ranges.is_device(target.start)) {
                pass_on(&mut job.player.consequences, source, target);
            }
        }
    } else if let Some((start, length)) = written(job) {
        let end = start.saturating_add(length);
        job.consequences.changed.cut(&(start..end));
    }
}

/// A copy brings memory what its source holds or lacks. Of rows with gaps, it is not followed which
/// of them lack something.
fn pass_on(consequences: &mut Consequences, source: Option<Operand>, target: Operand) {
    match source {
        Some(source) if source.is_whole && target.is_whole => {
            consequences.copy(source.start, target.start, target.length);
        }
        source => {
            let cause = source.and_then(|it| consequences.of_memory(it.start, it.length));
            match cause {
                Some(cause) => consequences.changed.overwrite(&target.bytes(), cause),
                None if target.is_whole => consequences.changed.cut(&target.bytes()),
                None => {}
            }
        }
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
    /// What these bytes of device memory hold.
    Memory(Vec<Operand>),
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
    let is_lost = !matches!(lost, Lost::Nothing);
    match lost {
        Lost::Memory(all) => {
            for operand in all {
                state.changed.overwrite(&operand.bytes(), cause);
            }
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
        counted.lost += u64::from(is_lost);
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
    if let Some(copies) = copies(job) {
        return lost_with_copies(job, &copies);
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
            Lost::Memory(vec![Operand {
                start: target,
                length,
                is_whole: true,
            }])
        }
        (None, Family::Copy(_)) => Lost::Anywhere,
        _ => Lost::Nothing,
    }
}

fn lost_with_copies(job: &Job<'_, '_>, copies: &[Operands]) -> Lost {
    let mut memory = Vec::new();
    let mut is_for_host = false;
    for copy in copies {
        let Some(target) = copy.target else {
            return Lost::Anywhere;
        };
        match job.ranges.is_device(target.start) {
            true => memory.push(target),
            false => is_for_host |= !names_device(job, target.start),
        }
    }
    match memory.is_empty() {
        false => Lost::Memory(memory),
        true if is_for_host => Lost::HostBytes,
        true => Lost::Nothing,
    }
}

/// True if the target of a copy is device memory which is not here.
fn names_device(job: &Job<'_, '_>, target: u64) -> bool {
    let absent = &job.unavailable.absent;
    absent.at(&job.ranges, target, 1).is_some()
}
