//! Host memory of copies that are still on their way: what may no longer be used before a wait that
//! an edit leaves out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cutape_order::{Clock, Doubt, Moment, StreamKind};
use cutape_registry::{
    ContextOp, EventOp, Family, Function, STREAM_LEGACY, STREAM_PER_THREAD, StreamOp, Waits,
    canonical_stream, is_default_stream,
};

use super::host_side::HostSide;
use super::noted::Shared;
use crate::api::Api;
use crate::calls::steps::{Issued, Step, issued_by};
use crate::compare::received::read_memory;
use crate::rerun::repeatable::stream_of;

/// Live streams that the legacy default stream neither waits for nor holds up.
#[derive(Debug, Default)]
pub(super) struct NonBlocking(BTreeSet<u64>);

impl NonBlocking {
    /// Those that the steps use, as the driver says.
    pub(super) fn of(api: &Api, steps: &[Step]) -> Self {
        let streams: BTreeSet<u64> = issued_by(steps).map(stream_of).collect();
        let own = streams.into_iter().filter(|&stream| {
            !is_default_stream(stream) && api.is_non_blocking(stream).unwrap_or(true)
        });
        Self(own.collect())
    }

    /// How many streams have work whose order only events and waits of the host say: the default
    /// stream is none of them beside streams that wait for it.
    pub(super) fn unordered(&self, steps: &[Step]) -> usize {
        let work = issued_by(steps).filter(|issued| enqueues(issued.function));
        let mut streams: BTreeSet<(u64, u64)> = work
            .map(|issued| (issued.context, stream_of(issued)))
            .collect();
        if !streams.iter().any(|(_, stream)| self.0.contains(stream)) {
            streams.retain(|&(_, stream)| stream != STREAM_LEGACY);
        }
        streams.len()
    }
}

/// A copy that may be on its way, or a kernel that may be running.
#[derive(Debug)]
struct Pending {
    call: u64,
    function: &'static str,
    /// Its number in the order.
    stream: u32,
    enqueued: Moment,
    /// Memory of the host that it may use: start and end here.
    memory: Vec<(u64, u64)>,
    /// Of a copy.
    side: Option<HostSide>,
}

/// Two calls that use the same host memory without a wait between them: a copy that may be on its
/// way or a kernel that may be running, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hazard {
    pub first: u64,
    pub second: u64,
}

/// Follows streams, events and waits of the host. The moments are the steps.
struct Order<'a> {
    order: cutape_order::Order,
    non_blocking: &'a NonBlocking,
    events: HashMap<u64, Clock>,
    pending: Vec<Pending>,
}

impl<'a> Order<'a> {
    fn new(non_blocking: &'a NonBlocking) -> Self {
        Self {
            order: cutape_order::Order::new(Doubt::Running),
            non_blocking,
            events: HashMap::new(),
            pending: Vec::new(),
        }
    }

    fn stream(&mut self, context: u64, stream: u64) -> u32 {
        let (of, kind) = match stream {
            STREAM_LEGACY => (context, StreamKind::Legacy),
            STREAM_PER_THREAD => (context, StreamKind::Blocking),
            own if self.non_blocking.0.contains(&own) => (0, StreamKind::NonBlocking),
            _ => (0, StreamKind::Blocking),
        };
        self.order.stream((stream, of), context, kind)
    }

    /// A step enqueues work, records an event or waits. Returns the copies that it proves complete.
    fn step(&mut self, now: Moment, issued: &Issued) -> Vec<Pending> {
        let function = issued.function;
        let stream = self.stream(issued.context, stream_of(issued));
        let argument = |position: u8| issued.args.get(usize::from(position)).copied().unwrap_or(0);
        match function.family {
            Family::Event(EventOp::Record) => {
                let clock = self.order.clock(stream, now);
                self.order.marked(stream, now, now);
                self.events.insert(argument(0), clock);
            }
            Family::Stream(StreamOp::WaitEvent) => {
                let clock = self.recorded(argument(1));
                self.order.wait(stream, &clock, (now, now));
            }
            _ if enqueues(function) => {
                self.order.submit(stream, now, now);
            }
            _ => {}
        }
        match function.waits {
            Waits::No if function.waits_for_default_stream() => {
                self.order.complete_with_work(stream, now);
            }
            Waits::No => return Vec::new(),
            Waits::Context => {
                let named = issued.args.first().copied().filter(|&context| context != 0);
                let context = named.unwrap_or(issued.context);
                self.order.complete_context(context, now);
            }
            Waits::Stream(position) => {
                let awaited = canonical_stream(argument(position), function.per_thread);
                let awaited = self.stream(issued.context, awaited);
                self.order.complete_stream(awaited, now);
            }
            Waits::Event(position) => {
                let clock = self.recorded(argument(position));
                self.order.complete(&clock);
            }
        }
        let (done, left) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|one| self.order.is_done(one.stream, one.enqueued));
        self.pending = left;
        done
    }

    /// What an event covers. One that was recorded before the steps covers none of their work.
    fn recorded(&self, event: u64) -> Clock {
        self.events.get(&event).cloned().unwrap_or_default()
    }

    fn copy(&mut self, now: Moment, issued: &Issued, side: HostSide) {
        if side.outlasts_its_call() {
            let memory = (side.live, side.live.saturating_add(side.length));
            self.uses(now, issued, vec![memory], Some(side));
        }
    }

    fn uses(
        &mut self,
        now: Moment,
        issued: &Issued,
        memory: Vec<(u64, u64)>,
        side: Option<HostSide>,
    ) {
        let stream = self.stream(issued.context, stream_of(issued));
        self.pending.push(Pending {
            call: issued.index,
            function: issued.function.name,
            stream,
            enqueued: now,
            memory,
            side,
        });
    }
}

/// Whether a repeated call enqueues work, or prepares it.
fn enqueues(function: &Function) -> bool {
    !matches!(
        function.family,
        Family::Stream(_) | Family::Event(_) | Family::Context(_)
    )
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
pub(super) fn of(
    steps: &[Step],
    host: &BTreeMap<u64, HostSide>,
    shared: &Shared,
    non_blocking: &NonBlocking,
) -> BTreeSet<Hazard> {
    let mut order = Order::new(non_blocking);
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
    for ((step, now), &second) in steps.iter().zip(1..).zip(following.iter().rev()) {
        let is_hazard = |first: &&Pending| match (step, &first.side) {
            (Step::Store { address, bytes }, _) => {
                let written_end = address.saturating_add(bytes.len() as u64);
                let mut memory = first.memory.iter();
                memory.any(|&(start, end)| *address < end && start < written_end)
            }
            (Step::Call(issued), Some(side)) => host
                .get(&issued.index)
                .is_some_and(|later| disturbs(side, later)),
            _ => false,
        };
        let first = order.pending.iter().filter(is_hazard);
        found.extend(first.map(|first| Hazard {
            first: first.call,
            second,
        }));
        if let Step::Call(issued) = step {
            order.step(now, issued);
            if let Some(memory) = shared.get(&issued.index) {
                order.uses(now, issued, memory.clone(), None);
            }
            if let Some(side) = host.get(&issued.index) {
                order.copy(now, issued, *side);
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

/// What the program must not read as early as in the recording: copies to the host that a wait which
/// is left out has proven complete, or that have returned later because their memory was pageable.
/// Says which wait proves the first of them now.
pub(super) fn unproven(
    steps: &[Step],
    [recorded, edited]: [&BTreeMap<u64, HostSide>; 2],
    dropped: &BTreeSet<u64>,
    non_blocking: &NonBlocking,
) -> Option<String> {
    let [mut before, mut after] = [Order::new(non_blocking), Order::new(non_blocking)];
    // By call: their functions.
    let mut late: BTreeMap<u64, &'static str> = BTreeMap::new();
    let mut first = None;
    for (step, now) in steps.iter().zip(1..) {
        let Step::Call(issued) = step else { continue };
        let proven = before.step(now, issued);
        if !(dropped.contains(&issued.index) && is_wait(issued.function)) {
            for copy in after.step(now, issued) {
                if let (Some(&name), None) = (late.get(&copy.call), first) {
                    first = Some((copy.call, name, Some(issued)));
                }
            }
        }
        let on_their_way = after.pending.iter().filter(|copy| {
            copy.side.is_some_and(|side| side.is_written)
                && proven.iter().any(|done| done.call == copy.call)
        });
        late.extend(on_their_way.map(|copy| (copy.call, copy.function)));
        for (order, host) in [(&mut before, recorded), (&mut after, edited)] {
            if let Some(side) = host.get(&issued.index) {
                order.copy(now, issued, *side);
            }
        }
        let sides = [recorded, edited].map(|host| host.get(&issued.index));
        if let [Some(pageable), Some(side)] = sides
            && side.is_written
            && side.outlasts_its_call()
            && !pageable.outlasts_its_call()
        {
            late.insert(issued.index, issued.function.name);
        }
    }
    let (&call, &function) = late.first_key_value()?;
    let (call, function, until) = first.unwrap_or((call, function, None));
    let until = match until {
        Some(wait) => format!("before {} (call {})", wait.function.name, wait.index),
        None => "without another wait".to_owned(),
    };
    let copies = match late.len() {
        1 => "1 copy to the host brings".to_owned(),
        count => format!("{count} copies to the host bring"),
    };
    Some(format!(
        "the program must not read what {copies} as early as in the recording: what {function} \
         (call {call}) brings, not {until}"
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
        /// The same in another context.
        WaitForOther,
        /// A synchronous copy to pageable memory.
        Synchronous(u64),
        Record(u64, u64),
        WaitIn(u64, u64),
        WaitForEvent(u64),
    }
    use Of::{
        Bring, Read, Record, Synchronous, Wait, WaitForAll, WaitForEvent, WaitForOther, WaitIn,
        Write,
    };

    const LENGTH: u64 = 64;

    /// Stream 7 is non-blocking.
    fn streams() -> NonBlocking {
        NonBlocking([7].into())
    }

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
            WaitForOther => call(index, "cuCtxSynchronize_v2", &[2]),
            Synchronous(at) => {
                let of_call = side(at, 0, false);
                host.insert(
                    index,
                    HostSide {
                        is_async: false,
                        ..of_call
                    },
                );
                call(index, "cuMemcpyDtoH_v2", &[at, 0, LENGTH])
            }
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
            (
                "an event that was recorded earlier",
                &[Bring(5, 0x100, true), WaitForEvent(9), Read(6, 0x100)],
                &[(0, 2)],
            ),
            (
                "the default stream's wait",
                &[Bring(5, 0x100, true), Wait(0), Read(6, 0x100)],
                &[],
            ),
            (
                "the default stream's wait, not for a non-blocking stream",
                &[Bring(7, 0x100, true), Wait(0), Read(6, 0x100)],
                &[(0, 2)],
            ),
            (
                "another context's",
                &[Bring(5, 0x100, true), WaitForOther, Read(6, 0x100)],
                &[(0, 2)],
            ),
            (
                "a synchronous copy of the default stream",
                &[Bring(5, 0x100, true), Synchronous(0x200), Read(6, 0x100)],
                &[],
            ),
        ] {
            let (steps, host) = program(steps);
            let found: Vec<_> = of(&steps, &host, &Shared::new(), &streams())
                .into_iter()
                .map(|hazard| (hazard.first, hazard.second))
                .collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn kernels_that_use_host_memory_need_waits() {
        let launch = || {
            let mut args = vec![0; 11];
            args[8] = 5;
            Step::Call(Issued {
                index: 100,
                function: function("cuLaunchKernel").unwrap(),
                args,
                context: 1,
            })
        };
        let shared = Shared::from([(100, vec![(0x100, 0x200)])]);
        for (rest, expected) in [
            (&[Write(0x110), Wait(5)][..], &[(100, 1)][..]),
            (&[Wait(5), Write(0x110)], &[]),
            (&[Wait(6), Write(0x1f8), Wait(5)], &[(100, 2)]),
            (&[Write(0x200), Wait(5)], &[]),
        ] {
            let (rest, host) = program(rest);
            let steps = [vec![launch()], rest].concat();
            let found = of(&steps, &host, &shared, &streams());
            let found: Vec<_> = found.iter().map(|it| (it.first, it.second)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_copies_bring_is_proven_by_a_later_wait() {
        let pinned = [
            Bring(5, 0x100, true),
            Wait(5),
            Bring(5, 0x200, true),
            Wait(5),
            WaitForAll,
        ];
        let pageable = [Bring(5, 0x100, false), Wait(6), Wait(5)];
        for (steps, dropped, expected) in [
            (&pinned[..], &[][..], None),
            (
                &pinned,
                &[1],
                Some(
                    "1 copy to the host brings as early as in the recording: what cuMemcpyDtoHAsync_v2 (call 0) brings, not before cuStreamSynchronize (call 3)",
                ),
            ),
            (
                &pinned,
                &[1, 3],
                Some(
                    "2 copies to the host bring as early as in the recording: what cuMemcpyDtoHAsync_v2 (call 0) brings, not before cuCtxSynchronize (call 4)",
                ),
            ),
            (
                &pinned,
                &[1, 3, 4],
                Some(
                    "2 copies to the host bring as early as in the recording: what cuMemcpyDtoHAsync_v2 (call 0) brings, not without another wait",
                ),
            ),
            // It returned when the bytes were there; from page-locked memory it returns at once.
            (
                &pageable,
                &[],
                Some(
                    "1 copy to the host brings as early as in the recording: what cuMemcpyDtoHAsync_v2 (call 0) brings, not before cuStreamSynchronize (call 2)",
                ),
            ),
        ] {
            let (steps, recorded) = program(steps);
            let mut edited = recorded.clone();
            for side in edited.values_mut() {
                side.is_pinned = true;
            }
            let dropped = dropped.iter().copied().collect();
            let found = unproven(&steps, [&recorded, &edited], &dropped, &streams());
            let ends = |text: &str| found.as_deref().is_some_and(|found| found.ends_with(text));
            assert!(
                expected.map_or(found.is_none(), ends),
                "{dropped:?}: {found:?}"
            );
        }
    }
}
