//! Which work of other streams work comes after, by events and by the order of the legacy default
//! stream.
//!
//! `cutape_model::Order` says whether work is before other work; a path asks for the work itself. The
//! order of the legacy default stream is the one that is measured there.

use std::collections::{BTreeMap, HashMap, HashSet};

use cutape_export::rows::{ObjectRef, StreamRef};
use cutape_model::StreamKind;

/// The last call of each stream whose work something comes after.
type LastCalls = BTreeMap<u32, u64>;

/// What the work of a call comes after, apart from the work before it on its stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Calls whose work is on other streams.
    pub(crate) needs: Vec<u64>,
    /// The call by which the stream calls a function of the host since its last work.
    pub(crate) host_function: Option<u64>,
}

/// The order of work, by what calls enqueue, record and wait for.
#[derive(Debug, Default)]
pub(crate) struct StreamOrder {
    /// The last call with work on a stream.
    last: HashMap<u32, u64>,
    /// What an event's last record comes after.
    recorded: HashMap<ObjectRef, LastCalls>,
    /// What the next work of a stream comes after.
    pending: HashMap<u32, LastCalls>,
    host_functions: HashMap<u32, u64>,
    contexts: HashMap<usize, Context>,
}

/// The streams that take part in the order of a context's legacy default stream.
#[derive(Debug, Default)]
struct Context {
    /// Streams that wait for the legacy default stream, which waits for them.
    blocking: HashSet<u32>,
    /// Their last work since the last work of the legacy default stream.
    since: LastCalls,
    legacy: Option<u32>,
    /// Streams that have had work since then: what they have next comes after theirs.
    after: HashSet<u32>,
}

fn merge(into: &mut LastCalls, from: &LastCalls) {
    for (&stream, &call) in from {
        let last = into.entry(stream).or_default();
        *last = call.max(*last);
    }
}

impl StreamOrder {
    /// What the legacy default stream's order puts before the next work of a stream.
    fn by_legacy(&mut self, stream: &StreamRef) -> LastCalls {
        let context = self.contexts.entry(stream.context).or_default();
        let mut before = LastCalls::new();
        match stream.kind {
            StreamKind::Legacy => {
                context.legacy = Some(stream.number);
                merge(&mut before, &context.since);
                for other in &context.blocking {
                    merge(
                        &mut before,
                        self.pending.get(other).unwrap_or(&LastCalls::new()),
                    );
                }
            }
            StreamKind::Blocking => {
                context.blocking.insert(stream.number);
                if let Some(legacy) = context.legacy
                    && !context.after.contains(&stream.number)
                {
                    before.extend(self.last.get(&legacy).map(|&call| (legacy, call)));
                    merge(
                        &mut before,
                        self.pending.get(&legacy).unwrap_or(&LastCalls::new()),
                    );
                }
            }
            StreamKind::NonBlocking | StreamKind::Unknown => {}
        }
        before
    }

    /// The last calls whose work is done when a stream has done all it was given.
    pub(crate) fn before_now(&self, stream: &StreamRef) -> Vec<u64> {
        let mut before = self
            .pending
            .get(&stream.number)
            .cloned()
            .unwrap_or_default();
        let own = self.last.get(&stream.number);
        before.extend(own.map(|&call| (stream.number, call)));
        before.into_values().collect()
    }

    /// The last calls whose work is done when an event is.
    pub(crate) fn before_record(&self, event: ObjectRef) -> Vec<u64> {
        let recorded = self.recorded.get(&event);
        recorded.map_or_else(Vec::new, |before| before.values().copied().collect())
    }

    pub(crate) fn record(&mut self, event: ObjectRef, stream: &StreamRef) {
        let mut before = self.by_legacy(stream);
        let own = self.last.get(&stream.number);
        before.extend(own.map(|&call| (stream.number, call)));
        if let Some(pending) = self.pending.get(&stream.number) {
            merge(&mut before, pending);
        }
        self.recorded.insert(event, before);
    }

    pub(crate) fn wait(&mut self, stream: &StreamRef, event: ObjectRef) {
        self.by_legacy(stream);
        if let Some(recorded) = self.recorded.get(&event) {
            merge(self.pending.entry(stream.number).or_default(), recorded);
        }
    }

    pub(crate) fn host_function(&mut self, stream: &StreamRef, call: u64) {
        self.host_functions.insert(stream.number, call);
    }

    /// A call puts work on a stream: what that comes after.
    pub(crate) fn work(&mut self, stream: &StreamRef, call: u64) -> Before {
        let mut before = self.by_legacy(stream);
        let number = stream.number;
        if let Some(pending) = self.pending.remove(&number) {
            merge(&mut before, &pending);
        }
        before.remove(&number);
        let context = self.contexts.entry(stream.context).or_default();
        match stream.kind {
            StreamKind::Legacy => {
                context.since.clear();
                context.after.clear();
            }
            StreamKind::Blocking => {
                context.since.insert(number, call);
                context.after.insert(number);
            }
            StreamKind::NonBlocking | StreamKind::Unknown => {}
        }
        let earlier = self.last.insert(number, call);
        let function = self.host_functions.remove(&number);
        Before {
            needs: before.into_values().collect(),
            host_function: function.filter(|_| earlier.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use StreamKind::{Blocking, Legacy, NonBlocking};
    use cutape_registry::Kind;

    use super::*;

    /// The legacy default stream is 0, the context that of the number.
    fn stream(kind: StreamKind, number: u32) -> StreamRef {
        StreamRef {
            number,
            handle: 0,
            object: None,
            of_thread: None,
            context: 1,
            kind,
        }
    }

    /// A step of a program.
    #[derive(Clone, Copy)]
    enum Step {
        /// A call enqueues work, which comes after that of these calls.
        Work(StreamKind, u32, u64, &'static [u64]),
        Record(u32, StreamKind, u32),
        Wait(StreamKind, u32, u32),
    }
    use Step::{Record, Wait, Work};

    #[test]
    fn what_work_comes_after() {
        let programs: &[(&str, &[Step])] = &[
            (
                "events",
                &[
                    Work(NonBlocking, 1, 5, &[]),
                    Record(1, NonBlocking, 1),
                    Work(NonBlocking, 1, 6, &[]),
                    Wait(NonBlocking, 2, 1),
                    Work(NonBlocking, 2, 8, &[5]),
                    // What is before it in its stream is known already.
                    Work(NonBlocking, 2, 9, &[]),
                    // Records of nothing, and an event without a record.
                    Record(2, NonBlocking, 3),
                    Wait(NonBlocking, 1, 2),
                    Wait(NonBlocking, 1, 3),
                    Work(NonBlocking, 1, 10, &[]),
                ],
            ),
            (
                "an event after a wait without work",
                &[
                    Work(NonBlocking, 1, 1, &[]),
                    Record(1, NonBlocking, 1),
                    Wait(NonBlocking, 2, 1),
                    Record(2, NonBlocking, 2),
                    Wait(NonBlocking, 3, 2),
                    Work(NonBlocking, 3, 2, &[1]),
                ],
            ),
            (
                "the legacy default stream waits for blocking streams, and they for it",
                &[
                    Work(Blocking, 1, 1, &[]),
                    Work(Blocking, 2, 2, &[]),
                    Work(NonBlocking, 3, 3, &[]),
                    Work(Legacy, 0, 4, &[1, 2]),
                    Work(NonBlocking, 3, 5, &[]),
                    Work(Blocking, 2, 6, &[4]),
                    Work(Blocking, 2, 7, &[]),
                    Work(Legacy, 0, 8, &[7]),
                    Work(Legacy, 0, 9, &[]),
                    Work(Blocking, 1, 10, &[9]),
                ],
            ),
            (
                "events of the legacy default stream come after blocking streams",
                &[
                    Work(Blocking, 1, 1, &[]),
                    Record(1, Legacy, 0),
                    Wait(NonBlocking, 3, 1),
                    Work(NonBlocking, 3, 2, &[1]),
                ],
            ),
            (
                "what one side has waited for counts for the other",
                &[
                    Work(NonBlocking, 3, 1, &[]),
                    Record(1, NonBlocking, 3),
                    Wait(Blocking, 1, 1),
                    Work(Legacy, 0, 2, &[1]),
                    Work(NonBlocking, 3, 3, &[]),
                    Record(1, NonBlocking, 3),
                    Wait(Legacy, 0, 1),
                    Work(Blocking, 2, 4, &[2, 3]),
                ],
            ),
        ];
        let event = |generation| ObjectRef {
            kind: Kind::Event,
            generation,
        };
        for (name, steps) in programs {
            let mut order = StreamOrder::default();
            for step in *steps {
                match *step {
                    Work(kind, number, call, expected) => {
                        let mut needs = order.work(&stream(kind, number), call).needs;
                        needs.sort_unstable();
                        assert_eq!(needs, expected, "{name}: call {call}");
                    }
                    Record(which, kind, number) => {
                        order.record(event(which), &stream(kind, number));
                    }
                    Wait(kind, number, which) => order.wait(&stream(kind, number), event(which)),
                }
            }
        }
    }

    #[test]
    fn contexts_have_orders_of_their_own() {
        let mut order = StreamOrder::default();
        let other = StreamRef {
            context: 2,
            ..stream(Legacy, 7)
        };
        order.work(&stream(Blocking, 1), 1);
        assert_eq!(order.work(&other, 2), Before::default());
        assert_eq!(order.work(&stream(Legacy, 0), 3).needs, [1]);
    }

    #[test]
    fn functions_of_the_host_come_between_work() {
        let mut order = StreamOrder::default();
        let stream = stream(NonBlocking, 1);
        order.host_function(&stream, 1);
        assert_eq!(order.work(&stream, 2).host_function, None, "no work before");
        order.host_function(&stream, 3);
        assert_eq!(order.work(&stream, 4).host_function, Some(3));
        assert_eq!(order.work(&stream, 5).host_function, None);
    }
}
