//! The threads that issue calls: one for each recorded thread, so that the driver keeps current
//! contexts and per-thread streams apart. Another thread reads the trace ahead.
//!
//! A call begins when the calls are done that it waits for (`Step::after`). In lockstep that is
//! its predecessor. The thread is then woken [`EARLY`] calls before and spins until its turn,
//! because waking a sleeping thread takes some 50 µs on a virtual machine, and threads of a
//! framework take turns within a millisecond.
//!
//! There is one state of the replay. A thread has it while it prepares a call and while it looks at
//! the result. If calls overlap, its player lends the state to the others while the driver has the
//! call ([`Lease`]).

#![allow(
    clippy::indexing_slicing,
    reason = "threads are numbered by the trace, and every table here has a place for each of its threads"
)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Scope, Thread};
use std::time::{Duration, Instant};

use cutape_format::Trace;

use super::order::Steps;
use super::overlap::Done;
use crate::error::Error;
use crate::play;
use crate::player::current::{Decoded, Part};
use crate::player::{self, Player, ReplayState};
use crate::process::position::Position;
use crate::rerun::Rerun;
use crate::schedule::running::{Running, start, start_reader};

/// Calls that are read together. To wake the reader costs the playing thread a system call.
const BATCH: usize = 1024;
/// Calls that are read and not taken by a thread before the reader waits.
const READ_AHEAD: usize = 4096;
/// In lockstep nothing comes between calls of one thread that wait for no other: so many are played
/// before the state is given back, and before threads that wait for them are looked at.
const TOGETHER: usize = 16;
/// How many calls before its turn a thread is woken.
const EARLY: u64 = 64;

/// How long a thread spins before it sleeps.
fn patience(overlapping: bool) -> Duration {
    // The playing thread, the reader and the driver's own threads need processors more than one
    // that waits.
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() >= 4 && !overlapping => Duration::from_micros(200),
        _ => Duration::ZERO,
    }
}

/// A call, and what must be done before it.
type Next<'t> = (Vec<Done>, Decoded<'t>);

/// The recorded process's main thread, if it made calls.
pub(crate) fn main_thread(trace: &Trace) -> Option<usize> {
    let process = trace.head().process;
    let threads = trace.threads();
    threads
        .iter()
        .position(|thread| thread.number == process && process != 0)
}

/// Plays the calls before the index `end`; gives the player back.
pub(crate) fn play<'t>(
    trace: &'t Trace,
    player: Player<'t>,
    rerun: Option<Box<Rerun>>,
    end: u64,
    tell: &mut dyn FnMut(),
) -> Result<(Player<'t>, Option<Box<Rerun>>), Error> {
    let options = player.options;
    let threads = trace.thread_count();
    let moved = player.observer.as_ref().and_then(|observer| {
        let order = observer.job.order.as_ref()?;
        Some((order.loads.clone(), *order.calls.iter().min()?))
    });
    let position = Arc::clone(&player.issuer.position);
    // The driver allocates from the heap there, as it did in the recording, and not from an arena
    // of a thread, which would be mapped in the gaps for its memory (52 MiB where NCCL's kernels
    // are compiled, seen with driver 580).
    let own = player.is_natural().then(|| main_thread(trace)).flatten();
    let shared = Arc::new(Shared {
        table: Mutex::new(Table {
            state: Some(player.into_parts().0),
            rerun,
            wanting: VecDeque::new(),
            threads: (0..threads).map(|_| State::default()).collect(),
            queued: 0,
            undone: 0,
            spent: Vec::new(),
            all_read: false,
            over: false,
            broken: false,
            error: None,
        }),
        gates: (0..threads).map(|_| Gate::default()).collect(),
        room: Condvar::new(),
        position,
        patience: patience(options.threads),
        overlapping: options.threads,
        keep_going: options.keep_going,
    });
    let running = Running::default();
    let steps = Steps::new(trace, end, options.threads);
    let steps = match moved {
        Some((loads, before)) if !options.threads => steps.with_moved(trace, (&loads, before)),
        _ => steps,
    };
    std::thread::scope(|scope| {
        let reader = running.enter();
        let (running, shared) = (&running, &shared);
        let started = start_reader(scope, move || {
            let _reader = reader;
            let steps = steps.map(|step| {
                let compared = options.selects(&step.call);
                let decoded = Decoded::new(step.call, step.function, compared);
                (step.after, decoded.part(step.part))
            });
            read(scope, running, shared, steps, own);
        });
        if let Err(error) = started {
            shared.lock().error = Some(error);
            return;
        }
        running.wait(tell, || {
            if let Some(thread) = own {
                Arc::clone(shared).play_all(thread);
            }
        });
    });
    let mut table = shared.lock();
    if let Some(error) = table.error.take() {
        return Err(error);
    }
    let panicked = || Error::child("a replaying thread", "panicked");
    let state = table.state.take().ok_or_else(panicked)?;
    Ok((Player::new(state, None), table.rerun.take()))
}

/// What a thread that sleeps waits for.
#[derive(Debug, Default, PartialEq, Eq)]
enum Asleep {
    #[default]
    No,
    /// For its next call to be read.
    Unread,
    /// For calls of other threads, of which this is one.
    Undone,
    /// For the state.
    Lent,
}

/// A thread, as the others see it.
#[derive(Default)]
struct State<'t> {
    /// What has been read and not taken.
    queue: VecDeque<Vec<Next<'t>>>,
    /// Calls done.
    done: u64,
    asleep: Asleep,
    /// What it waits for, the last first.
    after: Vec<Done>,
    /// Threads that wait for calls of this one: how many must be done, who waits.
    waiting: Vec<(u64, usize)>,
    /// Number of finished calls at which the threads in `waiting` are checked.
    alarm: Option<u64>,
}

struct Table<'t> {
    /// `None` while a thread has it.
    state: Option<Box<ReplayState<'t>>>,
    /// A measurement that each call is handed to.
    rerun: Option<Box<Rerun>>,
    /// The threads that wait for the state, in order.
    wanting: VecDeque<usize>,
    threads: Vec<State<'t>>,
    /// Calls in all queues.
    queued: usize,
    /// Calls that were read and are not done.
    undone: usize,
    /// Played, for the reader to empty and to fill again.
    spent: Vec<Vec<Next<'t>>>,
    all_read: bool,
    over: bool,
    /// A thread panicked, perhaps with the state.
    broken: bool,
    error: Option<Error>,
}

impl Table<'_> {
    /// Whether all is done that a thread waits for. If not, it is registered with one thread whose
    /// calls it waits for.
    fn may_go_on(&mut self, thread: usize, early: u64) -> bool {
        while let Some(&(other, calls)) = self.threads[thread].after.last() {
            let other = &mut self.threads[other as usize];
            if other.done < calls {
                other.waiting.push((calls, thread));
                let alarm = calls.saturating_sub(early).max(other.done + 1);
                other.alarm = Some(other.alarm.map_or(alarm, |known| known.min(alarm)));
                return false;
            }
            self.threads[thread].after.pop();
        }
        true
    }

    /// Looks at the threads that wait for calls of one. Puts those that may go on into `go`, and
    /// those that soon may into `soon`.
    fn ring(&mut self, thread: usize, early: u64, wakes: &mut Wakes) {
        let done = self.threads[thread].done;
        self.threads[thread].alarm = None;
        for (calls, other) in std::mem::take(&mut self.threads[thread].waiting) {
            if done >= calls {
                if self.may_go_on(other, early) {
                    self.threads[other].asleep = Asleep::No;
                    wakes.go.push(other);
                }
                continue;
            }
            let state = &mut self.threads[thread];
            state.waiting.push((calls, other));
            let is_soon = done + early >= calls;
            if is_soon {
                wakes.soon.push(other);
            }
            let alarm = if is_soon { calls } else { calls - early };
            state.alarm = Some(state.alarm.map_or(alarm, |known| known.min(alarm)));
        }
    }
}

/// Threads to be woken when the table is left.
#[derive(Default)]
struct Wakes {
    go: Vec<usize>,
    soon: Vec<usize>,
}

/// What a thread waits at. Each has a cache line of its own, because threads spin on it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Gate {
    is_open: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Gate {
    fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.nudge();
    }

    /// Lets the thread spin instead of sleeping.
    fn nudge(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits until it is open, and closes it.
    fn pass(&self, patience: Duration) {
        let mut since = Instant::now();
        while !self.is_open.swap(false, Ordering::Acquire) {
            while !self.is_open.load(Ordering::Relaxed) {
                if since.elapsed() < patience {
                    std::hint::spin_loop();
                } else {
                    std::thread::park();
                    since = Instant::now();
                }
            }
        }
    }
}

/// What the threads share.
struct Shared<'t> {
    table: Mutex<Table<'t>>,
    /// By thread.
    gates: Vec<Gate>,
    /// There is room for more calls to be read.
    room: Condvar,
    position: Arc<Position>,
    patience: Duration,
    overlapping: bool,
    keep_going: bool,
}

/// With what a thread lends the state.
struct Lease<'t> {
    shared: Arc<Shared<'t>>,
    thread: usize,
}

impl<'t> player::Lease<'t> for Lease<'t> {
    fn lend(&mut self, state: Box<ReplayState<'t>>) {
        self.shared.give(state);
    }

    fn take_back(&mut self) -> Box<ReplayState<'t>> {
        let table = self.shared.lock();
        let mut wakes = Wakes::default();
        self.shared.take(table, self.thread, &mut wakes)
    }
}

impl<'t> Shared<'t> {
    fn lock(&self) -> MutexGuard<'_, Table<'t>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn early(&self) -> u64 {
        if self.patience.is_zero() { 0 } else { EARLY }
    }

    #[cold]
    fn wake(&self, wakes: &mut Wakes) {
        let gate = |thread: usize| self.gates.get(thread);
        let go = wakes.go.drain(..).filter_map(gate);
        go.for_each(Gate::open);
        let soon = wakes.soon.drain(..).filter_map(gate);
        soon.for_each(Gate::nudge);
    }

    /// Leaves the table, and wakes who may go on.
    #[inline]
    fn leave(&self, table: MutexGuard<'_, Table<'t>>, wakes: &mut Wakes) {
        drop(table);
        if !wakes.go.is_empty() || !wakes.soon.is_empty() {
            self.wake(wakes);
        }
    }

    /// Leaves the table until the thread's gate is opened.
    fn sleep<'a>(
        &'a self,
        table: MutexGuard<'a, Table<'t>>,
        thread: usize,
        wakes: &mut Wakes,
    ) -> MutexGuard<'a, Table<'t>> {
        self.leave(table, wakes);
        self.gates[thread].pass(self.patience);
        self.lock()
    }

    /// Puts the state back for the next thread that wants it.
    fn give(&self, state: Box<ReplayState<'t>>) {
        let mut table = self.lock();
        table.state = Some(state);
        let mut wakes = Wakes::default();
        wakes.go.extend(table.wanting.front());
        self.leave(table, &mut wakes);
    }

    /// Takes the state when it is there, and leaves the table.
    fn take<'a>(
        &'a self,
        mut table: MutexGuard<'a, Table<'t>>,
        thread: usize,
        wakes: &mut Wakes,
    ) -> Box<ReplayState<'t>> {
        loop {
            if let Some(state) = table.state.take() {
                if table.threads[thread].asleep == Asleep::Lent {
                    table.threads[thread].asleep = Asleep::No;
                    table.wanting.retain(|&wanting| wanting != thread);
                }
                self.leave(table, wakes);
                return state;
            }
            assert!(!table.broken, "another replaying thread has panicked");
            if table.threads[thread].asleep != Asleep::Lent {
                table.threads[thread].asleep = Asleep::Lent;
                table.wanting.push_back(thread);
            }
            table = self.sleep(table, thread, wakes);
        }
    }

    /// The next calls of a thread, and the table; `None` when there are no more of any thread. No
    /// thread ends earlier: after one that ended while work of its per-thread default stream was
    /// pending, the driver has hung (tests/gpu/results/2026-11-26-h200-580.159.04-thread-exit.txt).
    fn next_calls<'a>(
        &'a self,
        mut table: MutexGuard<'a, Table<'t>>,
        thread: usize,
        wakes: &mut Wakes,
    ) -> Option<(Vec<Next<'t>>, MutexGuard<'a, Table<'t>>)> {
        while !table.over {
            if let Some(calls) = table.threads[thread].queue.pop_front() {
                table.queued -= calls.len();
                self.room.notify_one();
                return Some((calls, table));
            }
            if table.all_read && table.undone == 0 {
                break;
            }
            table.threads[thread].asleep = Asleep::Unread;
            table = self.sleep(table, thread, wakes);
        }
        self.leave(table, wakes);
        None
    }

    /// Waits until a call may begin; `None` if the replay is over.
    fn wait_for_turn<'a>(
        &'a self,
        mut table: MutexGuard<'a, Table<'t>>,
        thread: usize,
        (after, decoded): &mut Next<'t>,
        wakes: &mut Wakes,
    ) -> Option<MutexGuard<'a, Table<'t>>> {
        if !after.is_empty() {
            table.threads[thread].after = std::mem::take(after);
            if !table.may_go_on(thread, self.early()) {
                if self.overlapping {
                    self.position.waits(thread, decoded.call.index);
                }
                table.threads[thread].asleep = Asleep::Undone;
                while table.threads[thread].asleep == Asleep::Undone && !table.over {
                    table = self.sleep(table, thread, wakes);
                }
            }
        }
        if table.over {
            self.leave(table, wakes);
            return None;
        }
        Some(table)
    }

    /// A recorded thread: plays its calls until there are no more.
    fn play_all(self: &Arc<Self>, thread: usize) {
        let _end = EndOnPanic(self);
        let _ = self.gates[thread].thread.set(std::thread::current());
        let mut lease = self
            .overlapping
            .then(|| -> Box<dyn player::Lease<'t> + 't> {
                let shared = Arc::clone(self);
                Box::new(Lease { shared, thread })
            });
        let mut wakes = Wakes::default();
        let mut table = self.lock();
        while let Some((mut calls, found)) = self.next_calls(table, thread, &mut wakes) {
            table = found;
            let mut at = 0;
            while let Some(next) = calls.get_mut(at) {
                let Some(mut ready) = self.wait_for_turn(table, thread, next, &mut wakes) else {
                    return;
                };
                let mut rerun = ready.rerun.take();
                let state = self.take(ready, thread, &mut wakes);
                let mut player = Player::new(state, lease.take());
                let following = calls[at + 1..].iter().take(TOGETHER - 1);
                let follows = |next: &&Next<'t>| !self.overlapping && next.0.is_empty();
                let end = at + 1 + following.take_while(follows).count();
                let (begin, mut outcome) = (at, Ok(()));
                for (_, decoded) in &calls[begin..end] {
                    outcome = self.play_one(&mut player, &mut rerun, decoded);
                    at += 1;
                    if outcome.is_err() || self.is_over(&player) {
                        break;
                    }
                }
                let state;
                (state, lease) = player.into_parts();
                table = self.lock();
                table.rerun = rerun;
                let played = (thread, (at - begin) as u64);
                self.are_done(&mut table, played, state, outcome, &mut wakes);
            }
            table.spent.push(calls);
        }
    }

    #[inline]
    fn play_one(
        &self,
        player: &mut Player<'t>,
        rerun: &mut Option<Box<Rerun>>,
        decoded: &Decoded<'t>,
    ) -> Result<(), Error> {
        if decoded.part == Part::Look {
            play::look(player, decoded);
            return Ok(());
        }
        play::begin(player, decoded);
        let outcome = match rerun {
            Some(rerun) => rerun.play(player, decoded),
            None => play::play(player, decoded),
        };
        play::end(player, &decoded.call);
        let done = &self.position.done;
        done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        outcome
    }

    fn is_over(&self, state: &ReplayState<'t>) -> bool {
        state.report.divergence_count > 0 && !self.keep_going
    }

    /// Calls of a thread are done, which gives the state back.
    fn are_done(
        &self,
        table: &mut Table<'t>,
        (thread, played): (usize, u64),
        state: Box<ReplayState<'t>>,
        outcome: Result<(), Error>,
        wakes: &mut Wakes,
    ) {
        table.over |= self.is_over(&state);
        table.state = Some(state);
        if let Err(error) = outcome {
            table.error.get_or_insert(error);
            table.over = true;
        }
        if self.overlapping {
            self.position.leaves(thread);
        }
        if table.over {
            return self.wake_all();
        }
        table.undone -= played as usize;
        if table.all_read && table.undone == 0 {
            self.wake_all();
        }
        let state = &mut table.threads[thread];
        state.done += played;
        if state.alarm.is_some_and(|alarm| state.done >= alarm) {
            table.ring(thread, self.early(), wakes);
        }
        if let Some(&next) = table.wanting.front() {
            wakes.go.push(next);
        }
    }

    fn wake_all(&self) {
        self.gates.iter().for_each(Gate::open);
        self.room.notify_one();
    }
}

/// Ends the replay if a thread panics, so that no other waits for it.
struct EndOnPanic<'a, 't>(&'a Shared<'t>);

impl Drop for EndOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut table = self.0.lock();
            table.over = true;
            table.broken = true;
            drop(table);
            self.0.wake_all();
        }
    }
}

/// Reads calls ahead, and starts the thread of each recorded thread with its first.
fn read<'scope, 't: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    running: &'scope Running,
    shared: &Arc<Shared<'t>>,
    mut steps: impl Iterator<Item = Next<'t>>,
    own: Option<usize>,
) {
    let mut started = vec![false; shared.gates.len()];
    let mut spent: Vec<Vec<Next<'t>>> = Vec::new();
    loop {
        let mut parts: Vec<(usize, Vec<Next<'t>>)> = Vec::new();
        let mut count = 0;
        for next in steps.by_ref().take(BATCH) {
            let thread = next.1.call.thread as usize;
            let last = parts.last().is_some_and(|part| part.0 == thread);
            let known = match last {
                true => Some(parts.len() - 1),
                false => parts.iter().position(|part| part.0 == thread),
            };
            let at = known.unwrap_or_else(|| {
                let mut empty = spent.pop().unwrap_or_default();
                empty.clear();
                parts.push((thread, empty));
                parts.len() - 1
            });
            parts[at].1.push(next);
            count += 1;
        }
        let mut table = shared.lock();
        while table.queued >= READ_AHEAD && !table.over {
            let waited = shared.room.wait(table);
            table = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if table.over {
            return;
        }
        table.all_read = count == 0;
        if table.all_read {
            drop(table);
            return shared.wake_all();
        }
        table.queued += count;
        table.undone += count;
        let mut wakes = Wakes::default();
        spent.append(&mut table.spent);
        for (thread, part) in parts {
            let state = &mut table.threads[thread];
            state.queue.push_back(part);
            if state.asleep == Asleep::Unread {
                state.asleep = Asleep::No;
                wakes.go.push(thread);
            }
            if std::mem::replace(&mut started[thread], true) {
                continue;
            }
            if own == Some(thread) {
                running.hand_over();
                continue;
            }
            let (runner, its) = (running.enter(), Arc::clone(shared));
            let start = start(scope, thread as u32, move || {
                let _runner = runner;
                its.play_all(thread);
            });
            if let Err(error) = start {
                table.error = Some(error);
                table.over = true;
                drop(table);
                return shared.wake_all();
            }
        }
        shared.leave(table, &mut wakes);
    }
}
