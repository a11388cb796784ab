//! Recorded threads take turns in the order of [`crate::schedule::order`]: one plays at a time, each in a thread of its own, so that
//! current contexts and per-thread streams are kept apart by the driver. The trace is read ahead in yet another thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Scope, Thread};
use std::time::{Duration, Instant};

use cutape_format::Trace;

use crate::error::Error;
use crate::guard::Position;
use crate::issue::player::Player;
use crate::run::{Options, Running, is_selected, start};
use crate::schedule::order::Ordered;
use crate::schedule::prefetch::{Batch, Reader};

/// Calls that are read and handed over together. To wake the thread that reads costs the one that plays a system call, so that there
/// are few batches and many calls in each.
const BATCH: usize = 1024;
/// Batches that are read ahead.
const AHEAD: usize = 4;

/// Plays the calls before the index `end`; gives the player back.
pub(crate) fn play<'t>(
    trace: &'t Trace,
    player: Player<'t>,
    options: &Options,
    end: u64,
    tell: &mut dyn FnMut(),
) -> Result<Player<'t>, Error> {
    let (sender, receiver) = sync_channel(AHEAD);
    let (spent, emptied) = sync_channel(AHEAD);
    let turns = Lockstep {
        position: Arc::clone(&player.position),
        table: Mutex::new(Table {
            player,
            batch: Batch::default(),
            next: 0,
            warned: 0,
            receiver: Some(receiver),
            spent,
            error: None,
        }),
        turn: AtomicU64::new(NOBODY),
        threads: (0..trace.thread_count()).map(|_| OnceLock::new()).collect(),
        not_started: Mutex::new(None),
        patience: patience(),
        keep_going: options.keep_going,
    };
    let running = Running::default();
    std::thread::scope(|scope| {
        let reader = running.enter();
        let (turns, running) = (&turns, &running);
        scope.spawn(move || {
            let _reader = reader;
            let calls = Ordered::new(trace, end);
            turns.read(scope, running, (calls, options), &sender, &emptied);
        });
        running.wait(tell);
    });
    let not_started = turns.not_started.into_inner();
    let table = turns.table.into_inner();
    let table = table.unwrap_or_else(PoisonError::into_inner);
    match not_started.unwrap_or_else(PoisonError::into_inner) {
        _ if table.error.is_some() => table.error.map_or(Ok(table.player), Err),
        Some(error) => Err(error),
        None => Ok(table.player),
    }
}

/// Whose turn it is: a thread's number, or one of these.
const NOBODY: u64 = u64::MAX;
const OVER: u64 = u64::MAX - 1;

/// How long a thread looks out for its turn before it sleeps. To wake a sleeping one takes some 50 µs on a virtual machine,
/// and threads of a framework take turns within a millisecond.
fn patience() -> Duration {
    // The thread that plays, the one that reads, and the driver's own need processors more than the one that waits.
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() >= 4 => Duration::from_micros(200),
        _ => Duration::ZERO,
    }
}

/// So many calls before its turn a thread is woken, so that it looks out when it comes.
const WARN_BEFORE: usize = 64;

/// What the threads pass around: whose turn it is has it and plays.
struct Table<'t> {
    player: Player<'t>,
    batch: Batch<'t>,
    /// Where in the batch the next call is.
    next: usize,
    /// How far in the batch threads have been woken for their calls.
    warned: usize,
    /// `None` when all is over, so that the reader ends.
    receiver: Option<Receiver<Batch<'t>>>,
    /// Takes batches back to the reader.
    spent: SyncSender<Batch<'t>>,
    error: Option<Error>,
}

impl Table<'_> {
    /// Finds out whose the next call is, which may have to be read yet.
    fn turn(&mut self) -> u64 {
        loop {
            if let Some(thread) = self.batch.thread(self.next) {
                return u64::from(thread);
            }
            let batch = self.receiver.as_ref().map(Receiver::recv);
            let Some(Ok(batch)) = batch else {
                return OVER;
            };
            let played = std::mem::replace(&mut self.batch, batch);
            (self.next, self.warned) = (0, 0);
            // One that the reader does not want is freed.
            let _ = self.spent.try_send(played);
        }
    }
}

struct Lockstep<'t> {
    table: Mutex<Table<'t>>,
    turn: AtomicU64,
    /// By recorded thread; there before its first call is handed over.
    threads: Vec<OnceLock<Thread>>,
    /// Why a thread could not be started.
    not_started: Mutex<Option<Error>>,
    patience: Duration,
    keep_going: bool,
    position: Arc<Position>,
}

impl<'t> Lockstep<'t> {
    fn lock(&self) -> MutexGuard<'_, Table<'t>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whose turn it is. The table must have been left.
    fn hand_to(&self, turn: u64) {
        self.turn.store(turn, Ordering::Release);
        match turn {
            OVER => self.threads.iter().for_each(wake),
            thread => self.threads.get(thread as usize).into_iter().for_each(wake),
        }
    }

    /// Waits for the turn of a thread; false if all is over.
    fn wait(&self, thread: u32) -> bool {
        let mut since = Instant::now();
        loop {
            match self.turn.load(Ordering::Acquire) {
                OVER => return false,
                turn if turn == u64::from(thread) => return true,
                _ if since.elapsed() < self.patience => std::hint::spin_loop(),
                _ => {
                    std::thread::park();
                    since = Instant::now();
                }
            }
        }
    }

    /// Reads calls ahead, and starts the thread of each recorded thread before its first.
    fn read<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        running: &'scope Running,
        (mut calls, options): (Ordered<'t>, &Options),
        sender: &SyncSender<Batch<'t>>,
        emptied: &Receiver<Batch<'t>>,
    ) {
        let mut is_first = true;
        let mut reader = Reader::default();
        loop {
            let mut batch = emptied.try_recv().unwrap_or_default();
            batch.clear();
            for call in calls.by_ref().take(BATCH) {
                let compared = is_selected(options, &call);
                reader.add(&mut batch, call, compared);
            }
            let (false, Ok(())) = (batch.is_empty(), self.start_all(scope, running, &batch)) else {
                // Those that play find that nothing more comes; of the others nobody has begun.
                if is_first {
                    self.hand_to(OVER);
                }
                return;
            };
            if std::mem::take(&mut is_first) {
                let mut table = self.lock();
                table.batch = batch;
                let turn = table.turn();
                drop(table);
                self.hand_to(turn);
            } else if sender.send(batch).is_err() {
                return;
            }
        }
    }

    /// Starts the threads whose first calls are in a batch.
    fn start_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        running: &'scope Running,
        batch: &Batch<'t>,
    ) -> Result<(), ()> {
        for thread in (0..batch.len()).filter_map(|at| batch.thread(at)) {
            let place = &self.threads[thread as usize];
            if place.get().is_some() {
                continue;
            }
            let runner = running.enter();
            let started = start(scope, thread, move || {
                let _runner = runner;
                self.take(thread);
            });
            match started {
                // The place was empty, and nobody else fills it.
                Ok(handle) => drop(place.set(handle.thread().clone())),
                Err(error) => {
                    let mut not_started = self.not_started.lock();
                    if let Ok(place) = &mut not_started {
                        **place = Some(error);
                    }
                    return Err(());
                }
            }
        }
        Ok(())
    }

    /// A recorded thread: plays its calls when it is its turn, until all is over.
    fn take(&self, thread: u32) {
        let _end = EndOnPanic(self);
        while self.wait(thread) {
            let mut table = self.lock();
            let own = u64::from(thread);
            let mut turn = own;
            while turn == own {
                self.warn(&mut table, thread);
                turn = self.play_next(&mut table);
            }
            if turn == OVER {
                table.receiver = None;
            }
            drop(table);
            self.hand_to(turn);
        }
    }

    /// Wakes the thread whose turn comes soon.
    fn warn(&self, table: &mut Table<'t>, thread: u32) {
        let until = table.batch.len().min(table.next + WARN_BEFORE);
        while table.warned < until {
            let other = table.batch.thread(table.warned).unwrap_or(thread);
            table.warned += 1;
            if other != thread {
                self.threads.get(other as usize).into_iter().for_each(wake);
                // The next ones when it is over.
                table.warned = table.warned.max(table.next + WARN_BEFORE);
            }
        }
    }

    /// Plays a call; says whose turn is next.
    fn play_next(&self, table: &mut Table<'t>) -> u64 {
        let (batch, at) = (&table.batch, table.next);
        let Some(next) = batch.call(at) else {
            return OVER;
        };
        let launched = match batch.launch(at) {
            Some((launch, parameters)) => {
                batch.fetch_behind(at);
                table.player.launch(&next.0, launch, parameters)
            }
            None => false,
        };
        let outcome = match launched {
            true => Ok(()),
            false => table.player.play_selected(&next.0, next.1),
        };
        table.next += 1;
        let done = &self.position.done;
        done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let stop = table.player.report.divergence_count > 0 && !self.keep_going;
        match outcome {
            Err(error) => {
                table.error = Some(error);
                OVER
            }
            Ok(()) if stop => OVER,
            Ok(()) => table.turn(),
        }
    }
}

fn wake(place: &OnceLock<Thread>) {
    if let Some(thread) = place.get() {
        thread.unpark();
    }
}

/// Ends the replay if a thread panics, so that no other waits for it.
struct EndOnPanic<'a, 't>(&'a Lockstep<'t>);

impl Drop for EndOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().receiver = None;
            self.0.hand_to(OVER);
        }
    }
}
