//! Work that was enqueued and is not complete: which task comes after which.
//!
//! The order is the manual's ("Stream synchronization behavior"): a stream runs its work in order;
//! work on the legacy stream comes after all earlier work on blocking streams of the context, and
//! before their later work; events and waits order the rest. What the manual leaves open about
//! events and waits of blocking streams is as measured with `tests/gpu/waits.c` (H200, driver
//! 580.159.04, 2026-11-26).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::object::stream_key::Key;

/// The number of a task; greater than those of all earlier ones. 0 stands for complete work.
pub(crate) type Ticket = u64;

/// The stream that work is enqueued on, as far as the order needs it.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) key: Key,
    pub(crate) context: u64,
    /// Whether it and the legacy stream wait for each other.
    pub(crate) is_blocking: bool,
    pub(crate) is_legacy: bool,
}

struct Task<A> {
    lane: Option<Lane>,
    context: u64,
    after: Vec<Ticket>,
    /// `None` while it runs.
    action: Option<A>,
    /// A kernel that lets the next one in its stream start early.
    starts_next: bool,
    /// A kernel that has started early.
    is_early: bool,
}

/// All tasks that are not complete.
pub(crate) struct Queue<A> {
    last: Ticket,
    tasks: BTreeMap<Ticket, Task<A>>,
    /// The last task of each stream. It may be complete.
    tails: HashMap<Key, Ticket>,
    /// The last task of each context's legacy stream.
    legacy: HashMap<u64, Ticket>,
    /// What all later work of a context comes after.
    gates: HashMap<u64, Ticket>,
}

/// How many tasks there are; mostly none, and then calls take no lock to look for them.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Whether any task is not complete.
pub(crate) fn is_any_pending() -> bool {
    PENDING.load(Ordering::Acquire) != 0
}

impl<A> Default for Queue<A> {
    fn default() -> Self {
        Queue {
            last: 0,
            tasks: BTreeMap::new(),
            tails: HashMap::new(),
            legacy: HashMap::new(),
            gates: HashMap::new(),
        }
    }
}

impl<A> Queue<A> {
    /// How many tasks are not complete.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn is_pending(&self, ticket: Ticket) -> bool {
        self.tasks.contains_key(&ticket)
    }

    /// True if work before this task is not complete. A record that has not run yet is complete as soon
    /// as the work before it is.
    pub(crate) fn is_behind_pending(&self, ticket: Ticket) -> bool {
        let task = self.tasks.get(&ticket);
        task.is_some_and(|task| task.after.iter().any(|before| self.is_pending(*before)))
    }

    /// What new work on a stream comes after.
    pub(crate) fn before(&self, lane: &Lane) -> Vec<Ticket> {
        let mut before = self.own(lane);
        if lane.is_legacy {
            let blocking = self.tasks.iter().filter(|(_, task)| {
                task.lane
                    .is_some_and(|other| other.context == lane.context && other.is_blocking)
            });
            before.extend(blocking.map(|(ticket, _)| *ticket));
        } else if lane.is_blocking {
            before.extend(self.legacy.get(&lane.context));
        }
        before.retain(|ticket| self.is_pending(*ticket));
        before
    }

    /// The last work of a stream, and what all work of its context comes after.
    pub(crate) fn own(&self, lane: &Lane) -> Vec<Ticket> {
        let last = self.tails.get(&lane.key).into_iter();
        let before = last.chain(self.gates.get(&lane.context)).copied();
        before.filter(|ticket| self.is_pending(*ticket)).collect()
    }

    /// What a wait for a stream waits for: of the legacy stream, also work on blocking streams.
    pub(crate) fn awaited(&self, lane: &Lane) -> Vec<Ticket> {
        match lane.is_legacy {
            true => self.before(lane),
            false => self.tails.get(&lane.key).copied().into_iter().collect(),
        }
    }

    /// Adds work on a stream, after these tasks.
    pub(crate) fn add(&mut self, lane: Lane, after: Vec<Ticket>, action: A) -> Ticket {
        let ticket = self.insert(Some(lane), lane.context, after, action);
        self.tails.insert(lane.key, ticket);
        if lane.is_legacy {
            self.legacy.insert(lane.context, ticket);
        }
        ticket
    }

    /// Adds work of a context that is on no stream.
    pub(crate) fn insert(
        &mut self,
        lane: Option<Lane>,
        context: u64,
        mut after: Vec<Ticket>,
        action: A,
    ) -> Ticket {
        after.retain(|ticket| self.is_pending(*ticket));
        self.last += 1;
        let task = Task {
            lane,
            context,
            after,
            action: Some(action),
            starts_next: false,
            is_early: false,
        };
        self.tasks.insert(self.last, task);
        PENDING.store(self.tasks.len(), Ordering::Release);
        self.last
    }

    /// A kernel lets the next one in its stream start early, if it is not complete.
    pub(crate) fn let_next_start(&mut self, ticket: Ticket) {
        if let Some(task) = self.tasks.get_mut(&ticket) {
            task.starts_next = true;
        }
    }

    /// Adds a kernel that does not wait for the one before it in its stream, if that lets it start
    /// early; gives the work back if not. Later work of the stream comes after `both`.
    pub(crate) fn add_early(&mut self, lane: Lane, action: A, both: A) -> Result<Ticket, A> {
        let tail = self.tails.get(&lane.key).copied().unwrap_or(0);
        let Some(before) = self.tasks.get(&tail).filter(|task| task.starts_next) else {
            return Err(action);
        };
        let after = before.after.clone();
        let ticket = self.insert(Some(lane), lane.context, after, action);
        if let Some(task) = self.tasks.get_mut(&ticket) {
            task.is_early = true;
        }
        self.add(lane, vec![tail, ticket], both);
        Ok(ticket)
    }

    /// All later work of a context comes after this task.
    pub(crate) fn add_gate(&mut self, context: u64, after: Ticket, action: A) {
        let mut before = vec![after];
        before.extend(self.gates.get(&context));
        let gate = self.insert(None, context, before, action);
        self.gates.insert(context, gate);
    }

    /// All pending work of a context.
    pub(crate) fn of_context(&self, context: u64) -> Vec<Ticket> {
        let tasks = self.tasks.iter();
        let tasks = tasks.filter(|(_, task)| task.context == context);
        tasks.map(|(ticket, _)| *ticket).collect()
    }

    /// All pending work.
    pub(crate) fn all(&self) -> Vec<Ticket> {
        self.tasks.keys().copied().collect()
    }

    /// The handle of a destroyed stream may be used again; its work goes on.
    pub(crate) fn forget_stream(&mut self, handle: u64) {
        self.tails.retain(|key, _| key.handle != handle);
    }

    /// The pending tasks among these and everything that they come after.
    pub(crate) fn closure(&self, of: &[Ticket]) -> HashSet<Ticket> {
        let mut found = HashSet::new();
        let mut queue = of.to_vec();
        while let Some(ticket) = queue.pop() {
            if let Some(task) = self.tasks.get(&ticket)
                && found.insert(ticket)
            {
                queue.extend(&task.after);
            }
        }
        found
    }

    /// The tasks that may run now: those before them are complete, and `is_due` holds. Kernels that
    /// start early come first, so that a program which relies on the kernel before them fails.
    pub(crate) fn ready(&self, is_due: impl Fn(&A) -> bool) -> Vec<Ticket> {
        let tasks = self.tasks.iter().filter(|(_, task)| {
            let is_first = !task.after.iter().any(|ticket| self.is_pending(*ticket));
            is_first && task.action.as_ref().is_some_and(&is_due)
        });
        let (early, others): (Vec<_>, Vec<_>) = tasks.partition(|(_, task)| task.is_early);
        let all = early.into_iter().chain(others);
        all.map(|(ticket, _)| *ticket).collect()
    }

    /// Begins a task. It stays pending until [`Queue::complete`].
    pub(crate) fn begin(&mut self, ticket: Ticket) -> Option<A> {
        self.tasks.get_mut(&ticket)?.action.take()
    }

    /// Ends a task.
    pub(crate) fn complete(&mut self, ticket: Ticket) {
        self.tasks.remove(&ticket);
        PENDING.store(self.tasks.len(), Ordering::Release);
        if self.tasks.is_empty() {
            self.tails.clear();
            self.legacy.clear();
            self.gates.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(handle: u64, context: u64, is_blocking: bool) -> Lane {
        let key = Key {
            handle,
            context: 0,
            thread: 0,
        };
        Lane {
            key,
            context,
            is_blocking,
            is_legacy: handle == 1,
        }
    }

    /// Each row: streams of the first and the second task, and whether the second waits.
    #[test]
    fn streams_are_ordered_as_the_manual_says() {
        let (legacy, other_legacy) = (
            lane(1, 7, true),
            Lane {
                key: lane(9, 8, true).key,
                ..lane(1, 8, true)
            },
        );
        let (a, b) = (lane(10, 7, true), lane(11, 7, true));
        let free = lane(12, 7, false);
        for (first, second, is_ordered) in [
            (a, a, true),
            (a, b, false),
            (a, legacy, true),
            (legacy, a, true),
            (free, legacy, false),
            (legacy, free, false),
            (free, free, true),
            (a, other_legacy, false),
            (other_legacy, a, false),
        ] {
            let mut queue = Queue::default();
            let one = queue.add(first, queue.before(&first), ());
            let two = queue.add(second, queue.before(&second), ());
            let ready = queue.ready(|()| true);
            let expected = if is_ordered {
                vec![one]
            } else {
                vec![one, two]
            };
            assert_eq!(ready, expected);
            queue.begin(one);
            assert_eq!(queue.ready(|()| true).contains(&two), !is_ordered);
            queue.complete(one);
            assert_eq!(queue.ready(|()| true), [two]);
        }
    }

    #[test]
    fn a_gate_is_before_later_work_of_its_context_only() {
        let mut queue = Queue::default();
        queue.add_gate(7, 0, ());
        let gate = 1;
        let [waiting, other] = [lane(10, 7, false), lane(11, 8, false)];
        let waits = queue.add(waiting, queue.before(&waiting), ());
        let free = queue.add(other, queue.before(&other), ());
        assert_eq!(queue.ready(|()| true), [gate, free]);
        assert_eq!(queue.closure(&[waits]), HashSet::from([gate, waits]));
        assert_eq!(queue.of_context(8), [free]);
    }
}
