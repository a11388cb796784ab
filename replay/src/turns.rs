//! Recorded threads take turns in the order of [`crate::order`]: one plays at a time, each in a thread of its own, so that
//! current contexts and per-thread streams are kept apart by the driver. The trace is read ahead in yet another thread.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use cutape_format::{Call, Trace};

use crate::error::Error;
use crate::guard::Position;
use crate::interpret::Player;
use crate::order::Ordered;
use crate::run::{Options, Running, is_selected, start};

/// Calls that are read and handed over together.
const BATCH: usize = 256;
/// Batches that are read ahead.
const AHEAD: usize = 8;

/// A call, and whether it is compared.
type Next<'t> = (Call<'t>, bool);

/// Plays the calls before the index `end`; gives the player back.
pub(crate) fn play<'t>(
    trace: &'t Trace,
    player: Player<'t>,
    options: &Options,
    end: u64,
    tell: &mut dyn FnMut(),
) -> Result<Player<'t>, Error> {
    let (sender, receiver) = sync_channel(AHEAD);
    let turns = Turns {
        position: Arc::clone(&player.position),
        table: Mutex::new(Table {
            player,
            batch: Vec::new(),
            next: 0,
            receiver,
            turn: Turn::Nobody,
            error: None,
        }),
        changed: (0..trace.thread_count()).map(|_| Condvar::new()).collect(),
        keep_going: options.keep_going,
    };
    let running = Running::default();
    std::thread::scope(|scope| {
        let reader = running.enter();
        let (turns, running) = (&turns, &running);
        scope.spawn(move || {
            let _reader = reader;
            let calls = Ordered::new(trace, end).map(|call| {
                let compared = is_selected(options, &call);
                (call, compared)
            });
            turns.read(scope, running, calls, &sender);
        });
        running.wait(tell);
    });
    let table = turns
        .table
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match table.error {
        Some(error) => Err(error),
        None => Ok(table.player),
    }
}

/// Whose call is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Nobody,
    Of(u32),
    Over,
}

/// What the threads pass around: whoever holds it plays.
struct Table<'t> {
    player: Player<'t>,
    batch: Vec<Next<'t>>,
    /// Where in the batch the next call is.
    next: usize,
    receiver: Receiver<Vec<Next<'t>>>,
    turn: Turn,
    error: Option<Error>,
}

impl Table<'_> {
    /// Finds out whose the next call is, which may have to be read yet.
    fn pass_on(&mut self) {
        loop {
            if let Some((call, _)) = self.batch.get(self.next) {
                return self.turn = Turn::Of(call.thread);
            }
            match self.receiver.recv() {
                Ok(batch) => (self.batch, self.next) = (batch, 0),
                Err(_) => return self.turn = Turn::Over,
            }
        }
    }
}

struct Turns<'t> {
    table: Mutex<Table<'t>>,
    /// By thread: it is its turn, or all is over.
    changed: Vec<Condvar>,
    keep_going: bool,
    position: Arc<Position>,
}

impl<'t> Turns<'t> {
    fn lock(&self) -> MutexGuard<'_, Table<'t>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, turn: Turn) {
        match turn {
            Turn::Of(thread) => self.changed[thread as usize].notify_one(),
            _ => self.changed.iter().for_each(Condvar::notify_one),
        }
    }

    /// Reads calls ahead, and starts the thread of each recorded thread before its first.
    fn read<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        running: &'scope Running,
        mut calls: impl Iterator<Item = Next<'t>>,
        sender: &SyncSender<Vec<Next<'t>>>,
    ) {
        let mut started = vec![false; self.changed.len()];
        loop {
            let batch: Vec<Next<'t>> = calls.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            for &(Call { thread, .. }, _) in &batch {
                if std::mem::replace(&mut started[thread as usize], true) {
                    continue;
                }
                let runner = running.enter();
                let started = start(scope, thread, move || {
                    let _runner = runner;
                    self.take(thread);
                });
                if let Err(error) = started {
                    let mut table = self.lock();
                    table.error = Some(error);
                    table.turn = Turn::Over;
                    return self.wake(Turn::Over);
                }
            }
            if sender.send(batch).is_err() {
                return;
            }
        }
    }

    /// A recorded thread: plays its calls when it is its turn, until all is over.
    fn take(&self, thread: u32) {
        let mut table = self.lock();
        loop {
            if table.turn == Turn::Nobody {
                table.pass_on();
                self.wake(table.turn);
            }
            while table.turn != Turn::Of(thread) {
                if table.turn == Turn::Over {
                    return;
                }
                let waited = self.changed[thread as usize].wait(table);
                table = waited.unwrap_or_else(PoisonError::into_inner);
            }
            while table.turn == Turn::Of(thread) {
                self.play_next(&mut table);
            }
            self.wake(table.turn);
        }
    }

    fn play_next(&self, table: &mut Table<'t>) {
        let Some((call, compared)) = table.batch.get(table.next) else {
            table.turn = Turn::Over;
            return;
        };
        let outcome = table.player.play_selected(call, *compared);
        table.next += 1;
        let done = &self.position.done;
        done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let stop = table.player.report.divergence_count > 0 && !self.keep_going;
        match outcome {
            Err(error) => {
                table.error = Some(error);
                table.turn = Turn::Over;
            }
            Ok(()) if stop => table.turn = Turn::Over,
            Ok(()) => table.pass_on(),
        }
    }
}
