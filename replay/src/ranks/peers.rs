//! A child's side: the other ranks of the replay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::machine::ranks::RankDevices;
use crate::process::position::{ENDED, Page, Position, RankWait};
use crate::ranks::message::{self, Message};
use crate::ranks::order::Before;
use crate::ranks::shared_files::SharedFile;
use crate::ranks::standstill::{self, Waiting};

/// Names the descriptors for the child: `socket,assignment,page,page,...`.
pub(crate) const VARIABLE: &str = "CUTAPE_REPLAY_RANK";
/// How long one look at another rank lasts while nothing comes.
const LOOK_EVERY_MS: i32 = 100;
/// Looks at another rank's position before the thread sleeps between them.
const EAGER_LOOKS: u32 = 2000;
const PAUSE: Duration = Duration::from_micros(20);
/// How long ranks that wait for each other stand still before one of them stops waiting.
const CIRCLE_LASTS: Duration = Duration::from_millis(500);

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
    /// Files in place of those that the recorded processes had mapped.
    pub(crate) files: Vec<SharedFile>,
    /// The devices of all ranks.
    pub(crate) devices: RankDevices,
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
    /// By position in `Assignment::files`.
    files: Vec<OwnedFd>,
}

/// What another rank gave.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptor: Option<OwnedFd>,
    /// Bytes of the memory, if the trace says.
    pub(crate) size: Option<u64>,
}

/// Why a call did not wait for another rank.
pub(crate) enum NotAwaited {
    /// The rank has ended: what messages call it, and after how many calls.
    Ended { label: String, calls: u64 },
    /// Ranks wait for each other: which, in which calls.
    Circle(String),
}

/// Sees whether this rank and others wait for each other.
#[derive(Default)]
struct CircleWatch {
    /// What the circle was, its progress, and since when both are so.
    seen: Option<(Vec<Waiting>, u64, Instant)>,
}

/// Says on the own page what this rank waits for, until it is dropped.
struct Announced<'a> {
    page: Option<&'a Page>,
    word: u64,
    call: u64,
}

impl Announced<'_> {
    /// Says so again if another thread, which has waited meanwhile, has taken the word back.
    fn renew(&self) {
        if let Some(page) = self.page {
            let counters = page.counters();
            let (new, order) = (self.word, (Ordering::Release, Ordering::Relaxed));
            let word = &counters.waits_for;
            if word.compare_exchange(0, new, order.0, order.1).is_ok() {
                counters.waits_in.store(self.call, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // Another thread may wait for something else by now.
            let word = &page.counters().waits_for;
            let _ = word.compare_exchange(self.word, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Whether the driver has a call of any thread of the rank, when threads run at once.
fn has_driver_call(page: &Page) -> bool {
    let calls = page.counters().current_calls();
    calls.iter().any(|(_, _, is_in_driver)| *is_in_driver)
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
        let assignment: Assignment = serde_json::from_slice(&assignment)?;
        let files = assignment.files.iter();
        // SAFETY: as above.
        let files = files.map(|file| unsafe { OwnedFd::from_raw_fd(file.descriptor) });
        Ok(Some(Self {
            socket,
            files: files.collect(),
            assignment,
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

    /// Waits until the calls of other ranks are done that come before a call. Returns what was not
    /// waited for.
    pub(crate) fn wait_for_turn(&self, call: u64, position: &Position) -> Vec<NotAwaited> {
        let mut missed = Vec::new();
        loop {
            let at = self.waited.load(Ordering::Relaxed);
            let before = self.assignment.before.get(at);
            let Some(before) = before.filter(|before| before.call <= call) else {
                return missed;
            };
            match self.wait_for(before, call, position) {
                Ok(()) => {}
                Err(NotAwaited::Ended { .. }) if !self.is_first_end_of(before.rank) => {}
                Err(why) => missed.push(why),
            }
            self.waited.fetch_max(at + 1, Ordering::Relaxed);
        }
    }

    /// True once for each rank.
    fn is_first_end_of(&self, rank: usize) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.insert(rank)
    }

    fn wait_for(&self, before: &Before, call: u64, position: &Position) -> Result<(), NotAwaited> {
        let rank = before.rank;
        let ended = || NotAwaited::Ended {
            label: self.label(rank),
            calls: self.pages.get(rank).map_or(0, |page| page.read().1),
        };
        let page = self.pages.get(rank).ok_or_else(ended)?;
        let complete = &page.counters().complete;
        let mut looks = 0_u32;
        let mut announced = None;
        let mut circle = CircleWatch::default();
        loop {
            let complete = complete.load(Ordering::Acquire);
            if complete & !ENDED >= before.end {
                return Ok(());
            }
            if complete & ENDED != 0 {
                return Err(ended());
            }
            looks += 1;
            if looks < EAGER_LOOKS {
                std::hint::spin_loop();
                continue;
            }
            let announced = announced.get_or_insert_with(|| {
                let wait = RankWait {
                    rank,
                    call: before.end.saturating_sub(1),
                    is_import: false,
                };
                self.announce(wait, call)
            });
            announced.renew();
            if let Some(why) = self.look_for_circle(&mut circle, position) {
                return Err(NotAwaited::Circle(why));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn announce(&self, wait: RankWait, call: u64) -> Announced<'_> {
        let page = self.pages.get(self.assignment.rank);
        let word = wait.encode();
        if let Some(page) = page {
            page.counters().waits_in.store(call, Ordering::Relaxed);
            page.counters().waits_for.store(word, Ordering::Release);
        }
        Announced { page, word, call }
    }

    /// While this rank waits: keeps its watchdog quiet unless ranks wait for each other. If this
    /// one is to end that, says who waits for what.
    fn look_for_circle(&self, watch: &mut CircleWatch, position: &Position) -> Option<String> {
        let own = self.assignment.rank;
        let circle = standstill::circle_of(own, |rank| {
            let page = self.pages.get(rank)?;
            // Of several threads, one may wait while another works.
            page.rank_wait().filter(|_| !has_driver_call(page))
        });
        if circle.is_empty() {
            // A call of another thread that does not return is for the watchdog to end.
            if !self.pages.get(own).is_some_and(has_driver_call) {
                position.looks_at_others();
            }
            watch.seen = None;
            return None;
        }
        let members = circle
            .iter()
            .filter_map(|waiting| self.pages.get(waiting.rank));
        let progress = members.fold(0_u64, |sum, page| sum.wrapping_add(page.progress()));
        match &watch.seen {
            Some((known, before, since)) if *known == circle && *before == progress => {
                let lasts = since.elapsed() >= CIRCLE_LASTS;
                (lasts && standstill::who_gives_up(&circle) == Some(own))
                    .then(|| standstill::describe(&circle, |rank| self.label(rank)))
            }
            _ => {
                watch.seen = Some((circle, progress, Instant::now()));
                None
            }
        }
    }

    /// The own position, and the devices of all ranks.
    pub(crate) fn devices(&self) -> (usize, &RankDevices) {
        (self.assignment.rank, &self.assignment.devices)
    }

    /// Changes whenever another rank does something.
    pub(crate) fn progress_of_others(&self) -> u64 {
        let pages = self.pages.iter().enumerate();
        let others = pages.filter(|(rank, _)| *rank != self.assignment.rank);
        others.fold(0, |sum, (_, page)| sum.wrapping_add(page.progress()))
    }

    /// The file in place of one that the recorded process had mapped, and its position.
    pub(crate) fn file(&self, device: u64, inode: u64) -> Option<(usize, BorrowedFd<'_>)> {
        let files = self.assignment.files.iter().zip(&self.files).enumerate();
        let mut same = files.filter(|(_, (file, _))| (file.device, file.inode) == (device, inode));
        same.next()
            .map(|(position, (_, file))| (position, file.as_fd()))
    }

    /// Whether kernels or copies of a rank that registers the file may be in flight.
    pub(crate) fn may_work_reach(&self, file: usize) -> bool {
        let ranks = self.assignment.files.get(file).map(|file| &file.ranks);
        let mut pages = ranks
            .into_iter()
            .flatten()
            .filter_map(|&rank| self.pages.get(rank));
        pages.any(|page| page.counters().has_work())
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
        let announced = self.announce(
            RankWait {
                rank: source.rank,
                call: source.call,
                is_import: true,
            },
            call,
        );
        let mut circle = CircleWatch::default();
        while message::wait(&[own.as_fd()], LOOK_EVERY_MS) != [true] {
            announced.renew();
            if let Some(why) = self.look_for_circle(&mut circle, position) {
                return Err(format!("ranks wait for each other: {why}"));
            }
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
            position.looks_at_others();
        }
    }

    fn label(&self, rank: usize) -> String {
        let label = self.assignment.labels.get(rank);
        label.map_or_else(|| format!("rank {rank}"), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Another mapping of a page.
    fn copy(page: &Page) -> Page {
        // SAFETY: the page keeps its descriptor open meanwhile.
        let borrowed = unsafe { BorrowedFd::borrow_raw(page.descriptor()) };
        Page::map(borrowed.try_clone_to_owned().unwrap()).unwrap()
    }

    /// Rank 0 of two, whose call 5 comes after the first 8 calls of rank 1; and the pages of both.
    fn first_of_two() -> (Peers, [Page; 2]) {
        let pages = [Page::create().unwrap(), Page::create().unwrap()];
        let before = Before {
            call: 5,
            rank: 1,
            end: 8,
        };
        let peers = Peers {
            socket: message::pair().unwrap().0,
            assignment: Assignment {
                before: vec![before],
                ..Assignment::default()
            },
            pages: pages.iter().map(copy).collect(),
            waited: AtomicUsize::new(0),
            done: Mutex::default(),
            ended: Mutex::default(),
            files: Vec::new(),
        };
        (peers, pages)
    }

    const LONG: Duration = Duration::from_secs(10);

    /// What call 5 did not wait for, if it goes on after `act`.
    fn waited(peers: &Peers, [own, other]: &[Page; 2], act: impl FnOnce()) -> Option<String> {
        let position = Position::Shared(copy(own));
        std::thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            scope.spawn(move || {
                let missed = peers.wait_for_turn(5, &position);
                let words = missed.into_iter().map(|why| match why {
                    NotAwaited::Ended { .. } => "ended".to_owned(),
                    NotAwaited::Circle(text) => text,
                });
                done.send(words.collect::<String>()).unwrap();
            });
            while own.rank_wait().is_none() {
                std::thread::yield_now();
            }
            act();
            let missed = is_done.recv_timeout(LONG).ok();
            // Lets the thread go on that still waits.
            other.counters().complete.store(8, Ordering::Release);
            missed
        })
    }

    fn wait_for(rank: usize, call: u64) -> RankWait {
        RankWait {
            rank,
            call,
            is_import: false,
        }
    }

    #[test]
    fn a_circle_is_found_although_another_thread_has_waited_meanwhile() {
        let (peers, pages) = first_of_two();
        let missed = waited(&peers, &pages, || {
            let word = wait_for(0, 5).encode();
            pages[1].counters().waits_for.store(word, Ordering::Release);
            drop(peers.announce(wait_for(1, 2), 6));
        });
        let missed = missed.expect("it goes on");
        assert!(missed.starts_with("rank 0 in call 5"), "{missed}");
    }

    #[test]
    fn a_call_that_hangs_is_not_hidden_by_a_thread_that_waits() {
        let (peers, pages) = first_of_two();
        let own = pages[0].counters();
        let looks = || own.looks.load(Ordering::Relaxed);
        let while_looking = || {
            let before = looks();
            std::thread::sleep(Duration::from_millis(50));
            looks() - before
        };
        let mut seen = [0; 3];
        let missed = waited(&peers, &pages, || {
            seen[0] = while_looking();
            own.enters(3, 4);
            // One look may have begun before.
            std::thread::sleep(Duration::from_millis(20));
            seen[1] = while_looking();
            own.leaves(3);
            seen[2] = while_looking();
            pages[1].counters().complete.store(8, Ordering::Release);
        });
        assert!(seen[0] > 0 && seen[1] == 0 && seen[2] > 0, "{seen:?}");
        assert_eq!(missed.as_deref(), Some(""));
    }
}
