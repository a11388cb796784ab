//! Values that the program polls in memory: what the recorder found before a call, while the work was
//! in flight, is in the program's memory before it makes the call.
//!
//! A program that polls makes no call until the value is there. So a thread of the player looks whether
//! the next recorded call of all that the program has not made keeps being the next one. What the
//! recorder found before that call is put then: all calls before it have been played.

use std::sync::Once;
use std::time::Duration;

use crate::player::{Player, print_line};
use crate::state::State;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How many looks must find the program at the same place.
const FEWEST_LOOKS: u64 = 20;
/// A program that computed for long before the call gets as many looks more, at most.
const MOST_LOOKS: u64 = 2000;

/// After so many looks more, a line says what the program may wait for.
const LOOKS_UNTIL_ADVICE: u64 = 5_000;

/// Where the program is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Index of the first recorded call that the program has not made.
    call: u64,
    /// Calls that its thread has made that only ask.
    asked: u64,
}

impl State {
    /// The recorded calls that a thread has passed without the program having seen what memory held
    /// then, and its next one.
    fn before_next(&self, thread: usize) -> Vec<u64> {
        let Some(thread) = self.threads.all.get(thread) else {
            return Vec::new();
        };
        let unseen = thread.unseen().map(|call| call.index);
        unseen.chain(thread.next().map(|call| call.index)).collect()
    }

    /// Shows what memory held before the next call of a thread. Bytes that the recording lacks are
    /// missed when that call is made.
    pub(crate) fn show_polled(&mut self, thread: usize) {
        for call in self.before_next(thread) {
            self.show_before(call, true);
        }
    }

    /// Shows what memory held before a call: with `all`, also what the program has more likely written.
    pub(crate) fn show_before(&mut self, call: u64, all: bool) {
        let Self {
            copies,
            comparison,
            threads,
            ..
        } = self;
        copies.show_polled(comparison, call, all, |work| threads.is_made(work));
    }

    /// Where the program is, while no driver is at work on the call, and how many looks are to find it
    /// there.
    fn place(&self) -> Option<(Place, u64)> {
        let threads = self.threads.all.iter().filter(|thread| !thread.is_busy);
        let next = threads.filter_map(|thread| Some((thread.next()?, thread)));
        let (call, thread) = next.min_by_key(|(call, _)| call.index)?;
        if call.index != self.threads.first_left() {
            return None;
        }
        let place = Place {
            call: call.index,
            asked: thread.asked,
        };
        let [entered, left] = [call.ticks, thread.last_left()].map(|at| self.trace.nanoseconds(at));
        let milliseconds = entered.saturating_sub(left) / 1_000_000;
        let looks = FEWEST_LOOKS + milliseconds.saturating_mul(2).min(MOST_LOOKS);
        Some((place, looks))
    }

    /// Shows what memory held before the first call that the program has not made: all calls before it
    /// have been played.
    fn show_first(&mut self, call: u64, all: bool) {
        for thread in 0..self.threads.all.len() {
            for before in self.before_next(thread) {
                if before <= call {
                    self.show_before(before, all);
                }
            }
        }
    }
}

impl Player {
    /// Lets a thread look after the program, if the recording has values that it may poll.
    pub fn watch(&'static self) {
        static BEGUN: Once = Once::new();
        BEGUN.call_once(|| {
            if self.lock().copies.has_polled() {
                begin(self);
            }
        });
    }

    fn look(&self, (last, count): &mut (Option<Place>, u64)) {
        let mut state = self.lock();
        let Some((place, looks)) = state.place() else {
            *last = None;
            return;
        };
        *count = if *last == Some(place) { *count + 1 } else { 0 };
        *last = Some(place);
        if *count == looks || *count == 2 * looks {
            state.show_first(place.call, *count > looks);
        }
        if *count == looks + LOOKS_UNTIL_ADVICE && state.copies.may_poll(place.call) {
            advise(&state, place.call);
        }
    }
}

/// Says what a program may wait for that makes no call.
fn advise(state: &State, call: u64) {
    let first = state.threads.all.iter().filter_map(|thread| thread.next());
    let name = first
        .filter(|next| next.index == call)
        .map(|next| &*next.signature.name);
    let advice = match state.trace.meta_value("cassette") {
        Some(_) => "what it changes back before that call is in no recording",
        None => "record it with --cassette",
    };
    print_line(&format!(
        "the program does not make the recorded call {call}, {}; if it polls memory that the device \
         writes, {advice}",
        name.collect::<String>()
    ));
}

fn begin(player: &'static Player) {
    // Signals are for the threads of the program.
    // SAFETY: the sets are initialised by `sigfillset` and `pthread_sigmask`.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let watch = move || {
        let mut seen = (None, 0);
        loop {
            std::thread::sleep(PAUSE);
            player.look(&mut seen);
        }
    };
    // Without a thread, a program that polls waits for ever.
    let _ = std::thread::Builder::new()
        .name("cutape play".to_owned())
        .spawn(watch);
    // SAFETY: the mask that this thread had.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}
