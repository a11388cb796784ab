//! Host memory of copies that are still on their way: what may no longer be used before a wait that
//! an edit leaves out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cutape_registry::{
    ContextOp, EventOp, Family, Function, STREAM_LEGACY, StreamOp, Waits, canonical_stream,
};

use super::host_side::HostSide;
use crate::calls::steps::{Issued, Step};
use crate::compare::received::read_memory;
use crate::rerun::repeatable::stream_of;

/// How far the work of each stream is: how many steps it had had.
type Reached = BTreeMap<u64, usize>;

/// A copy that may be on its way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    call: u64,
    stream: u64,
    /// The step that enqueued it.
    at: usize,
    side: HostSide,
}

/// Two calls that use the same host memory without a wait between them: a copy that may be on its
/// way, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hazard {
    pub first: u64,
    pub second: u64,
}

/// Follows streams, events and waits of the host.
#[derive(Debug, Default)]
struct Order {
    streams: HashMap<u64, Reached>,
    events: HashMap<u64, Reached>,
    pending: Vec<Pending>,
}

fn merge(into: &mut Reached, from: &Reached) {
    for (&stream, &at) in from {
        let reached = into.entry(stream).or_default();
        *reached = at.max(*reached);
    }
}

impl Order {
    /// A step enqueues work, records an event or waits. Returns the copies that it proves complete.
    fn step(&mut self, at: usize, issued: &Issued) -> Vec<Pending> {
        let stream = stream_of(issued);
        let argument = |position: u8| issued.args.get(usize::from(position)).copied().unwrap_or(0);
        match issued.function.family {
            Family::Event(EventOp::Record) => {
                let mut reached = self.of(stream);
                reached.insert(stream, at);
                self.events.insert(argument(0), reached);
            }
            Family::Stream(StreamOp::WaitEvent) => {
                let event = self.events.get(&argument(1)).cloned().unwrap_or_default();
                merge(self.streams.entry(stream).or_default(), &event);
            }
            _ => {}
        }
        let own = issued.function.per_thread;
        let proven = match issued.function.waits {
            Waits::No => return Vec::new(),
            Waits::Context => None,
            Waits::Stream(position) => match canonical_stream(argument(position), own) {
                // It waits for all streams that block; which do is not asked.
                STREAM_LEGACY => None,
                stream => {
                    let mut reached = self.of(stream);
                    reached.insert(stream, at);
                    Some(reached)
                }
            },
            Waits::Event(position) => self.events.get(&argument(position)).cloned(),
        };
        let is_proven = |copy: &Pending| match &proven {
            None => true,
            Some(reached) => reached.get(&copy.stream).is_some_and(|&to| copy.at <= to),
        };
        let (done, left) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(is_proven);
        self.pending = left;
        done
    }

    fn of(&self, stream: u64) -> Reached {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    fn copy(&mut self, at: usize, issued: &Issued, side: HostSide) {
        if side.outlasts_its_call() {
            self.pending.push(Pending {
                call: issued.index,
                stream: stream_of(issued),
                at,
                side,
            });
        }
    }
}

/// Whether a call waits and does nothing else.
pub(super) fn is_wait(function: &Function) -> bool {
    matches!(
        function.family,
        Family::Stream(StreamOp::Synchronize)
            | Family::Event(EventOp::Synchronize)
            | Family::Context(ContextOp::Synchronize)
    )
}

/// The hazards of some steps.
pub(super) fn of(steps: &[Step], host: &BTreeMap<u64, HostSide>) -> BTreeSet<Hazard> {
    let mut order = Order::default();
    let mut found = BTreeSet::new();
    let mut next = u64::MAX;
    // Backwards, so that each store has the call that it was before.
    let following: Vec<u64> = steps
        .iter()
        .rev()
        .map(|step| {
            if let Step::Call(issued) = step {
                next = issued.index;
            }
            next
        })
        .collect();
    for ((at, step), &second) in steps.iter().enumerate().zip(following.iter().rev()) {
        let is_hazard = |copy: &Pending| match step {
            Step::Store { address, bytes } => {
                let end = address.saturating_add(bytes.len() as u64);
                let live = copy.side.live;
                *address < live.saturating_add(copy.side.length) && live < end
            }
            Step::Call(issued) => host
                .get(&issued.index)
                .is_some_and(|side| disturbs(&copy.side, side)),
            _ => false,
        };
        let hazards = order.pending.iter().filter(|copy| is_hazard(copy));
        found.extend(hazards.map(|copy| Hazard {
            first: copy.call,
            second,
        }));
        if let Step::Call(issued) = step {
            order.step(at, issued);
            if let Some(side) = host.get(&issued.index) {
                order.copy(at, issued, *side);
            }
        }
    }
    found
}

/// Whether a later copy shows that the program has used the memory of an earlier one meanwhile: it
/// reads other bytes there, or what the earlier one was still to bring; or it brings others.
fn disturbs(earlier: &HostSide, later: &HostSide) -> bool {
    let overlap =
        earlier.recorded < later.recorded_end() && later.recorded < earlier.recorded_end();
    if !overlap {
        return false;
    }
    if earlier.is_written || later.is_written {
        return true;
    }
    let same = (earlier.recorded, earlier.length) == (later.recorded, later.length);
    !same || earlier.live != later.live && bytes_of(earlier) != bytes_of(later)
}

fn bytes_of(side: &HostSide) -> Vec<u8> {
    read_memory(side.live, usize::try_from(side.length).unwrap_or(0))
}

/// What the program must not read yet where waits are left out: copies to the host that one of them
/// would have proven complete, and the wait that does so then.
pub(super) fn unproven(
    steps: &[Step],
    host: &BTreeMap<u64, HostSide>,
    dropped: &BTreeSet<u64>,
) -> Option<String> {
    let mut order = Order::default();
    // What a wait that is left out would have proven, by copy: its function.
    let mut early: BTreeMap<u64, &'static str> = BTreeMap::new();
    let (mut count, mut first) = (0u64, None);
    let names: HashMap<u64, &'static str> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Call(issued) => Some((issued.index, issued.function.name)),
            _ => None,
        })
        .collect();
    for (at, step) in steps.iter().enumerate() {
        let Step::Call(issued) = step else { continue };
        let is_dropped = dropped.contains(&issued.index) && is_wait(issued.function);
        let proven = order.step(at, issued);
        for copy in proven {
            if !copy.side.is_written {
                continue;
            }
            if is_dropped {
                count += u64::from(early.insert(copy.call, issued.function.name).is_none());
                order.pending.push(copy);
            } else if early.contains_key(&copy.call) && first.is_none() {
                first = Some((copy.call, Some((issued.index, issued.function.name))));
            }
        }
        if let Some(side) = host.get(&issued.index) {
            order.copy(at, issued, *side);
        }
    }
    let (&call, _) = early.first_key_value()?;
    let (call, until) = first.unwrap_or((call, None));
    let name = names.get(&call).copied().unwrap_or("a copy");
    let until = match until {
        Some((wait, function)) => format!("before {function} (call {wait})"),
        None => "without another wait".to_owned(),
    };
    Some(format!(
        "the program must not read what {count} copies to the host bring at the waits that are \
         left out; what {name} (call {call}) brings, not {until}"
    ))
}

#[cfg(test)]
mod tests {
    use cutape_registry::function;

    use super::*;

    /// A step of a program, its number the call.
    #[derive(Clone, Copy)]
    enum Of {
        /// A copy to the host on a stream: address, whether the memory is page-locked.
        Bring(u64, u64, bool),
        /// A copy from the host.
        Read(u64, u64),
        /// The program writes.
        Write(u64),
        Wait(u64),
        WaitForAll,
        Record(u64, u64),
        WaitIn(u64, u64),
        WaitForEvent(u64),
    }
    use Of::{Bring, Read, Record, Wait, WaitForAll, WaitForEvent, WaitIn, Write};

    const LENGTH: u64 = 64;

    fn program(steps: &[Of]) -> (Vec<Step>, BTreeMap<u64, HostSide>) {
        let mut host = BTreeMap::new();
        let call = |index: u64, name: &str, args: &[u64]| {
            Step::Call(Issued {
                index,
                function: function(name).unwrap(),
                args: args.to_vec(),
                context: 1,
            })
        };
        let side = |recorded, argument, is_pinned| HostSide {
            recorded,
            live: recorded,
            length: LENGTH,
            argument,
            is_written: argument == 0,
            is_pinned,
            is_async: true,
        };
        let steps = steps.iter().zip(0..).map(|(&of, index)| match of {
            Bring(stream, at, is_pinned) => {
                host.insert(index, side(at, 0, is_pinned));
                call(index, "cuMemcpyDtoHAsync_v2", &[at, 0, LENGTH, stream])
            }
            Read(stream, at) => {
                host.insert(index, side(at, 1, true));
                call(index, "cuMemcpyHtoDAsync_v2", &[0, at, LENGTH, stream])
            }
            Write(address) => Step::Store {
                address,
                bytes: vec![0; 8],
            },
            Wait(stream) => call(index, "cuStreamSynchronize", &[stream]),
            WaitForAll => call(index, "cuCtxSynchronize", &[]),
            Record(event, stream) => call(index, "cuEventRecord", &[event, stream]),
            WaitIn(stream, event) => call(index, "cuStreamWaitEvent", &[stream, event, 0]),
            WaitForEvent(event) => call(index, "cuEventSynchronize", &[event]),
        });
        (steps.collect(), host)
    }

    #[test]
    fn host_memory_needs_waits() {
        for (what, steps, expected) in [
            (
                "a wait between",
                &[Bring(5, 0x100, true), Wait(5), Read(6, 0x100)][..],
                &[][..],
            ),
            ("none", &[Bring(5, 0x100, true), Read(6, 0x100)], &[(0, 1)]),
            (
                "other memory",
                &[Bring(5, 0x100, true), Read(6, 0x140)],
                &[],
            ),
            (
                "pageable memory",
                &[Bring(5, 0x100, false), Read(6, 0x100)],
                &[],
            ),
            (
                "another stream's wait",
                &[Bring(5, 0x100, true), Wait(6), Read(6, 0x100)],
                &[(0, 2)],
            ),
            ("two copies read", &[Read(5, 0x100), Read(6, 0x100)], &[]),
            (
                "the program writes what is read",
                &[Read(5, 0x100), Write(0x110), Wait(5), Write(0x110), Wait(5)],
                &[(0, 2)],
            ),
            (
                "an event of its stream",
                &[
                    Bring(5, 0x100, true),
                    Record(9, 5),
                    WaitForEvent(9),
                    Read(6, 0x100),
                ],
                &[],
            ),
            (
                "an event before it",
                &[
                    Record(9, 5),
                    Bring(5, 0x100, true),
                    WaitForEvent(9),
                    Read(6, 0x100),
                ],
                &[(1, 3)],
            ),
            (
                "the wait of a stream that waits for its event",
                &[
                    Bring(5, 0x100, true),
                    Record(9, 5),
                    WaitIn(6, 9),
                    Wait(6),
                    Read(6, 0x100),
                ],
                &[],
            ),
            (
                "of all",
                &[Bring(5, 0x100, true), WaitForAll, Bring(5, 0x100, true)],
                &[],
            ),
        ] {
            let (steps, host) = program(steps);
            let found: Vec<_> = of(&steps, &host)
                .into_iter()
                .map(|hazard| (hazard.first, hazard.second))
                .collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn what_copies_bring_is_proven_by_a_later_wait() {
        let steps = [
            Bring(5, 0x100, true),
            Wait(5),
            Bring(5, 0x200, true),
            Wait(5),
            WaitForAll,
        ];
        for (dropped, expected) in [
            (&[][..], None),
            (
                &[1],
                Some(
                    "1 copies to the host bring at the waits that are left out; what cuMemcpyDtoHAsync_v2 (call 0) brings, not before cuStreamSynchronize (call 3)",
                ),
            ),
            (
                &[1, 3],
                Some(
                    "2 copies to the host bring at the waits that are left out; what cuMemcpyDtoHAsync_v2 (call 0) brings, not before cuCtxSynchronize (call 4)",
                ),
            ),
            (
                &[1, 3, 4],
                Some(
                    "2 copies to the host bring at the waits that are left out; what cuMemcpyDtoHAsync_v2 (call 0) brings, not without another wait",
                ),
            ),
        ] {
            let (steps, host) = program(&steps);
            let found = unproven(&steps, &host, &dropped.iter().copied().collect());
            let ends = |text: &str| found.as_deref().is_some_and(|found| found.ends_with(text));
            assert!(
                expected.map_or(found.is_none(), ends),
                "{dropped:?}: {found:?}"
            );
        }
    }
}
