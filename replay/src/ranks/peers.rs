//! A child's side: the other ranks of the replay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guard::position::{ENDED, Page, Position};
use crate::ranks::message::{self, Message};
use crate::ranks::order::Before;

/// Names the descriptors for the child: `socket,assignment,page,page,...`.
pub(crate) const VARIABLE: &str = "CUTAPE_REPLAY_RANK";
/// How long one look at another rank lasts while nothing comes.
const LOOK_EVERY_MS: i32 = 100;
/// Looks at another rank's position before the thread sleeps between them.
const EAGER_LOOKS: u32 = 2000;
const PAUSE: Duration = Duration::from_micros(20);

/// What one child has to know about the others. The parent writes it into a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The child's own position among the ranks.
    pub(crate) rank: usize,
    /// What messages call each rank.
    pub(crate) labels: Vec<String>,
    /// By call that imports: where it comes from.
    pub(crate) sources: BTreeMap<u64, Source>,
    /// Calls whose export another rank imports.
    pub(crate) wanted: BTreeSet<u64>,
    /// What comes before the child's calls.
    pub(crate) before: Vec<Before>,
}

/// The export that an import belongs to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) rank: usize,
    pub(crate) call: u64,
    /// Bytes of the memory, if the trace says.
    pub(crate) size: Option<u64>,
}

/// The other ranks of a replay.
#[derive(Debug)]
pub struct Peers {
    socket: OwnedFd,
    assignment: Assignment,
    /// Of all ranks, the own one included.
    pages: Vec<Page>,
    /// How many entries of `Assignment::before` have been waited for.
    waited: AtomicUsize,
    /// Calls that are done although an earlier one is not.
    done: Mutex<BTreeSet<u64>>,
    /// Ranks that have ended before what comes before a call.
    ended: Mutex<BTreeSet<usize>>,
}

/// What another rank gave.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptor: Option<OwnedFd>,
    /// Bytes of the memory, if the trace says.
    pub(crate) size: Option<u64>,
}

/// A rank that was waited for has ended: what messages call it, and the call.
pub(crate) struct EndedEarly {
    pub(crate) label: String,
    pub(crate) calls: u64,
}

impl Peers {
    /// Those that the parent names in the environment, if it replays several ranks.
    ///
    /// # Safety
    /// No other thread of the process uses the environment, and the variable is the parent's.
    pub(crate) unsafe fn from_environment() -> io::Result<Option<Self>> {
        let Ok(text) = std::env::var(VARIABLE) else {
            return Ok(None);
        };
        // SAFETY: by this function's own condition.
        unsafe { std::env::remove_var(VARIABLE) };
        let numbers: Option<Vec<RawFd>> = text
            .split(',')
            .map(|word| word.parse().ok().filter(|&number| number >= 0))
            .collect();
        let mut numbers = numbers.unwrap_or_default().into_iter();
        let missing = || io::Error::from(io::ErrorKind::InvalidInput);
        let mut next = || {
            let number = numbers.next().ok_or_else(missing)?;
            // SAFETY: the parent left these descriptors open for this process, which takes each
            // once.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(number) })
        };
        let socket = next()?;
        let mut file = File::from(next()?);
        let mut assignment = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut assignment)?;
        Ok(Some(Self {
            socket,
            assignment: serde_json::from_slice(&assignment)?,
            pages: numbers
                .map(|number| {
                    // SAFETY: as above; what reports this process's own position owns one of them.
                    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
                    Page::map(borrowed.try_clone_to_owned()?)
                })
                .collect::<io::Result<_>>()?,
            waited: AtomicUsize::new(0),
            done: Mutex::default(),
            ended: Mutex::default(),
        }))
    }

    /// Waits until the calls of other ranks are done that come before a call. The ranks that have
    /// ended without doing them.
    pub(crate) fn wait_for_turn(&self, call: u64, position: &Position) -> Vec<EndedEarly> {
        let mut early = Vec::new();
        loop {
            let at = self.waited.load(Ordering::Relaxed);
            let before = self.assignment.before.get(at);
            let Some(before) = before.filter(|before| before.call <= call) else {
                return early;
            };
            let has_ended = !self.wait_for(before, position);
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            if has_ended && ended.insert(before.rank) {
                let label = self.label(before.rank);
                let calls = self.pages.get(before.rank).map_or(0, |page| page.read().1);
                early.push(EndedEarly { label, calls });
            }
            self.waited.fetch_max(at + 1, Ordering::Relaxed);
        }
    }

    /// False if the rank has ended before.
    fn wait_for(&self, before: &Before, position: &Position) -> bool {
        let Some(page) = self.pages.get(before.rank) else {
            return false;
        };
        let complete = &page.counters().complete;
        let mut looks = 0_u32;
        loop {
            let complete = complete.load(Ordering::Acquire);
            if complete & !ENDED >= before.end {
                return true;
            }
            if complete & ENDED != 0 {
                return false;
            }
            looks += 1;
            if looks < EAGER_LOOKS {
                std::hint::spin_loop();
            } else {
                position.step();
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// A call is done; others may wait for it.
    pub(crate) fn is_done(&self, call: u64) {
        let Some(complete) = self.own_complete() else {
            return;
        };
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.insert(call);
        let mut end = complete.load(Ordering::Relaxed);
        while done.remove(&end) {
            end += 1;
        }
        complete.store(end, Ordering::Release);
    }

    fn own_complete(&self) -> Option<&AtomicU64> {
        let page = self.pages.get(self.assignment.rank)?;
        Some(&page.counters().complete)
    }

    /// Whether another rank imports what a call exports.
    pub(crate) fn is_wanted(&self, call: u64) -> bool {
        self.assignment.wanted.contains(&call)
    }

    /// Gives out what a call has exported.
    pub(crate) fn offer(&self, call: u64, bytes: &[u8], descriptor: Option<RawFd>) {
        let bytes = bytes.to_vec();
        // A parent that has ended takes this process with it.
        let _ = message::send(
            self.socket.as_fd(),
            &Message::Offer { call, bytes },
            descriptor,
        );
    }

    /// Says why a call exports nothing.
    pub(crate) fn withhold(&self, call: u64, why: &str) {
        if self.is_wanted(call) {
            let why = format!("call {call}: {why}");
            let _ = message::send(self.socket.as_fd(), &Message::Withheld { call, why }, None);
        }
    }

    /// Waits for what a call imports; the error says why it does not come.
    pub(crate) fn take(&self, call: u64, position: &Position) -> Result<Given, String> {
        let source = self.assignment.sources.get(&call);
        let source = source.ok_or("no trace of the folder has the export that it imports")?;
        let failed = |error: io::Error| format!("asking for an export: {error}");
        let (own, theirs) = message::pair().map_err(failed)?;
        let want = Message::Want {
            rank: source.rank,
            call: source.call,
        };
        message::send(self.socket.as_fd(), &want, Some(theirs.as_raw_fd())).map_err(failed)?;
        drop(theirs);
        while message::wait(&[own.as_fd()], LOOK_EVERY_MS) != [true] {
            position.step();
        }
        match message::receive(own.as_fd()).map_err(failed)? {
            Some((Message::Given { bytes }, descriptor)) => Ok(Given {
                bytes,
                descriptor,
                size: source.size,
            }),
            Some((Message::Refused { why }, _)) => Err(why),
            _ => Err(format!("{} has ended", self.label(source.rank))),
        }
    }

    /// The last call is played: no other rank waits for this one from here on.
    pub(crate) fn finish(&self) {
        if let Some(complete) = self.own_complete() {
            complete.fetch_or(ENDED, Ordering::Release);
        }
        let _ = message::send(self.socket.as_fd(), &Message::Finished, None);
    }

    /// Waits until all ranks have finished, so that what they imported stays.
    pub(crate) fn wait_for_release(&self, position: &Position) {
        while message::wait(&[self.socket.as_fd()], LOOK_EVERY_MS) != [true] {
            position.step();
        }
    }

    fn label(&self, rank: usize) -> String {
        let label = self.assignment.labels.get(rank);
        label.map_or_else(|| format!("rank {rank}"), Clone::clone)
    }
}
