//! Recorded threads replay at once: a call begins when what [`crate::schedule::dependencies`] says is done, and nothing is locked while the
//! driver works on it.
//!
//! There is one player with one set of books. A thread has it while it prepares a call and while it looks at what came back;
//! in between, in the driver, it gives the player away ([`Lease`]).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use cutape_format::Trace;

use crate::error::Error;
use crate::guard::Position;
use crate::issue::player::Player;
use crate::run::{Options, Running, is_selected, start};
use crate::schedule::dependencies::{Done, Schedule, Step};

/// Calls that are read and handed over together.
const BATCH: usize = 64;
/// Calls that are read ahead of the slowest thread.
const AHEAD: usize = 4096;

/// Plays the calls before the index `end`; gives the player back.
pub(crate) fn play<'t>(
    trace: &'t Trace,
    player: Player<'t>,
    options: &Options,
    end: u64,
    tell: &mut dyn FnMut(),
) -> Result<Player<'t>, Error> {
    let threads = trace.thread_count();
    let position = Arc::clone(&player.position);
    // A stand-in for the player that a thread has given away, for each thread.
    let blank = || Box::new(player.blank(trace, options));
    let mut blanks: Vec<Option<Box<Player<'t>>>> = (0..threads).map(|_| Some(blank())).collect();
    let shared = Arc::new(Concurrent {
        table: Mutex::new(Table {
            player: Some(Box::new(player)),
            wanting: VecDeque::new(),
            queues: (0..threads).map(|_| VecDeque::new()).collect(),
            queued: 0,
            done: vec![0; threads],
            asleep: (0..threads).map(|_| Asleep::No).collect(),
            all_read: false,
            over: false,
            broken: false,
            error: None,
        }),
        wake: (0..threads).map(|_| Condvar::new()).collect(),
        room: Condvar::new(),
        position,
        keep_going: options.keep_going,
    });
    let running = Running::default();
    std::thread::scope(|scope| {
        let reader = running.enter();
        let (running, shared) = (&running, &shared);
        scope.spawn(move || {
            let _reader = reader;
            let steps = Schedule::new(trace, end).map(|step| {
                let compared = is_selected(options, &step.call);
                (step, compared)
            });
            read(scope, running, shared, steps, &mut blanks);
        });
        running.wait(tell);
    });
    let mut table = shared.lock();
    if let Some(error) = table.error.take() {
        return Err(error);
    }
    let mut player = table.player.take().ok_or_else(|| Error::Child {
        what: "a replaying thread",
        source: std::io::Error::other("panicked"),
    })?;
    player.report.in_call_order();
    Ok(*player)
}

/// A step, and whether it is compared.
type Next<'t> = (Step<'t>, bool);

/// What a thread that sleeps waits for.
#[derive(Debug)]
enum Asleep {
    No,
    /// For its next call to be read.
    Unread,
    /// For calls of other threads.
    Undone(Vec<Done>),
    /// For the player.
    Player,
}

struct Table<'t> {
    /// `None` while a thread has it.
    player: Option<Box<Player<'t>>>,
    /// Who waits for it, in order.
    wanting: VecDeque<usize>,
    /// What has been read and not begun, by thread.
    queues: Vec<VecDeque<Next<'t>>>,
    queued: usize,
    /// Calls done, by thread.
    done: Vec<u64>,
    asleep: Vec<Asleep>,
    all_read: bool,
    over: bool,
    /// A thread has panicked, perhaps with the player.
    broken: bool,
    error: Option<Error>,
}

impl Table<'_> {
    fn are_done(&self, after: &[Done]) -> bool {
        after
            .iter()
            .all(|&(thread, calls)| self.done[thread as usize] >= calls)
    }
}

/// What the threads share.
pub(crate) struct Concurrent<'t> {
    table: Mutex<Table<'t>>,
    /// By thread: what it waits for may have come.
    wake: Vec<Condvar>,
    /// There is room for more calls to be read.
    room: Condvar,
    position: Arc<Position>,
    keep_going: bool,
}

/// A thread's way to give the player away and to get it back.
pub(crate) struct Lease<'t> {
    shared: Arc<Concurrent<'t>>,
    thread: usize,
    /// Takes the player's place meanwhile.
    pub blank: Box<Player<'t>>,
}

impl<'t> Lease<'t> {
    /// Gives the player away, does something, and gets it back. `player` is a blank one meanwhile.
    pub(crate) fn without<T>(
        mut self,
        player: &mut Player<'t>,
        work: impl FnOnce() -> T,
    ) -> (T, Self) {
        std::mem::swap(player, &mut *self.blank);
        self.shared.give(self.blank);
        let result = work();
        self.blank = self.shared.take(self.shared.lock(), self.thread);
        std::mem::swap(player, &mut *self.blank);
        (result, self)
    }
}

impl<'t> Concurrent<'t> {
    fn lock(&self) -> MutexGuard<'_, Table<'t>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(
        &self,
        table: MutexGuard<'a, Table<'t>>,
        thread: usize,
    ) -> MutexGuard<'a, Table<'t>> {
        let waited = self.wake[thread].wait(table);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the player back for whoever wants it.
    fn give(&self, player: Box<Player<'t>>) {
        let mut table = self.lock();
        table.player = Some(player);
        let next = table.wanting.front().copied();
        drop(table);
        if let Some(next) = next {
            self.wake[next].notify_one();
        }
    }

    /// Takes the player when it is there.
    fn take(&self, mut table: MutexGuard<'_, Table<'t>>, thread: usize) -> Box<Player<'t>> {
        loop {
            if let Some(player) = table.player.take() {
                if matches!(table.asleep[thread], Asleep::Player) {
                    table.asleep[thread] = Asleep::No;
                    table.wanting.retain(|&wanting| wanting != thread);
                }
                return player;
            }
            assert!(!table.broken, "another replaying thread has panicked");
            if !matches!(table.asleep[thread], Asleep::Player) {
                table.asleep[thread] = Asleep::Player;
                table.wanting.push_back(thread);
            }
            table = self.sleep(table, thread);
        }
    }

    /// The thread's next call, once all that it waits for is done; `None` when there is nothing more to do.
    fn next<'a>(
        &self,
        mut table: MutexGuard<'a, Table<'t>>,
        thread: usize,
    ) -> (MutexGuard<'a, Table<'t>>, Option<Next<'t>>) {
        let (mut step, compared) = loop {
            if table.over {
                return (table, None);
            }
            if let Some(next) = table.queues[thread].pop_front() {
                break next;
            }
            if table.all_read {
                return (table, None);
            }
            table.asleep[thread] = Asleep::Unread;
            table = self.sleep(table, thread);
            table.asleep[thread] = Asleep::No;
        };
        table.queued -= 1;
        if table.queued == AHEAD / 2 {
            self.room.notify_one();
        }
        if !table.are_done(&step.after) {
            self.position.waits(thread, step.call.index);
            let mut after = std::mem::take(&mut step.after);
            loop {
                if table.over {
                    return (table, None);
                }
                if table.are_done(&after) {
                    break;
                }
                table.asleep[thread] = Asleep::Undone(after);
                table = self.sleep(table, thread);
                after = match std::mem::replace(&mut table.asleep[thread], Asleep::No) {
                    Asleep::Undone(after) => after,
                    _ => Vec::new(),
                };
            }
        }
        (table, Some((step, compared)))
    }

    /// A recorded thread: plays its calls until there are no more.
    fn play_all(self: &Arc<Self>, thread: usize, blank: Box<Player<'t>>) {
        let _end = EndOnPanic(self);
        let mut lease = Some(Lease {
            shared: Arc::clone(self),
            thread,
            blank,
        });
        let mut table = self.lock();
        loop {
            let (next_table, next) = self.next(table, thread);
            let Some((step, compared)) = next else {
                drop(next_table);
                return self.position.leaves(thread);
            };
            let mut player = self.take(next_table, thread);
            player.lease = lease.take();
            let outcome = player.play_selected(&step.call, compared);
            lease = player.lease.take();
            let stop = player.report.divergence_count > 0 && !self.keep_going;
            table = self.lock();
            table.player = Some(player);
            table.done[thread] += 1;
            let done = &self.position.done;
            done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.position.leaves(thread);
            if let Err(error) = outcome {
                table.error.get_or_insert(error);
                table.over = true;
            }
            table.over |= stop;
            if table.over {
                self.wake_all();
                continue;
            }
            for (other, asleep) in table.asleep.iter().enumerate() {
                if let Asleep::Undone(after) = asleep
                    && table.are_done(after)
                {
                    self.wake[other].notify_one();
                }
            }
            if let Some(&next) = table.wanting.front() {
                self.wake[next].notify_one();
            }
        }
    }

    fn wake_all(&self) {
        self.wake.iter().for_each(Condvar::notify_one);
        self.room.notify_one();
    }
}

/// Ends the replay if a thread panics, so that no other waits for it.
struct EndOnPanic<'a, 't>(&'a Concurrent<'t>);

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
    shared: &Arc<Concurrent<'t>>,
    mut steps: impl Iterator<Item = Next<'t>>,
    blanks: &mut [Option<Box<Player<'t>>>],
) {
    loop {
        let batch: Vec<Next<'t>> = steps.by_ref().take(BATCH).collect();
        let mut table = shared.lock();
        while table.queued >= AHEAD && !table.over {
            let waited = shared.room.wait(table);
            table = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if table.over {
            return;
        }
        table.all_read = batch.is_empty();
        if table.all_read {
            return shared.wake_all();
        }
        table.queued += batch.len();
        for next in batch {
            let thread = next.0.call.thread as usize;
            table.queues[thread].push_back(next);
            if let Some(blank) = blanks[thread].take() {
                let (runner, own) = (running.enter(), Arc::clone(shared));
                let started = start(scope, thread as u32, move || {
                    let _runner = runner;
                    own.play_all(thread, blank);
                });
                if let Err(error) = started {
                    table.error = Some(error);
                    table.over = true;
                    return shared.wake_all();
                }
            } else if matches!(table.asleep[thread], Asleep::Unread) {
                table.asleep[thread] = Asleep::No;
                shared.wake[thread].notify_one();
            }
        }
    }
}
