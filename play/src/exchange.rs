//! Threads that begin with the same calls cannot be told apart at first. Where a thread goes on as
//! another recorded one, it takes that one's place.

use cutape_format::{Call, MadeCall};

use crate::live::LiveCall;
use crate::state::State;
use crate::threads::Made;

/// After more calls a thread stays what it is.
pub(crate) const MOST_CALLS: usize = 64;

/// Whether a thread of the program is another recorded one.
pub(crate) enum Exchange {
    /// It is, and its call is that of the recorded thread.
    Done(usize, Box<Call<'static>>, MadeCall),
    /// It may be one whose place another thread has that is in a call.
    Wait,
    None,
}

impl State {
    /// Looks for a recorded thread that begins with the calls that a thread has made so far, as the
    /// recorded thread `from`, and goes on with this call.
    pub(crate) fn exchange(&mut self, from: usize, live: LiveCall<'_>) -> Exchange {
        let Some(own) = self.threads.all.get(from) else {
            return Exchange::None;
        };
        let count = own.made.len();
        // Without all of them the objects cannot be exchanged.
        if count >= MOST_CALLS {
            return Exchange::None;
        }
        for to in 0..self.threads.all.len() {
            if to == from || !self.begins_like(from, to, live.function.name) {
                continue;
            }
            if self.threads.all.get(to).is_some_and(|other| other.is_busy) {
                return Exchange::Wait;
            }
            self.swap(from, to);
            if let Some((recorded, made)) = self.next_if_matched(to, live) {
                self.begin(to);
                return Exchange::Done(to, Box::new(recorded), made);
            }
            self.swap(to, from);
        }
        Exchange::None
    }

    /// Whether a recorded thread has made no more than these calls and is to make them, and then one
    /// of that function.
    fn begins_like(&self, from: usize, to: usize, function: &str) -> bool {
        let [Some(from), Some(to)] = [from, to].map(|at| self.threads.all.get(at)) else {
            return false;
        };
        if to.made.len() > from.made.len() {
            return false;
        }
        let mut functions = to.all_effects().map(|call| call.signature.name.as_str());
        let mut own = from.made.iter().map(|made| made.function.name);
        own.all(|name| functions.next() == Some(name)) && functions.next() == Some(function)
    }

    /// The program's thread that was the recorded thread `from` is `to` from now on, and the other
    /// way round.
    fn swap(&mut self, from: usize, to: usize) {
        let take = |state: &mut Self, at: usize| {
            let thread = state.threads.all.get_mut(at)?;
            let made = std::mem::take(&mut thread.made);
            Some((made, std::mem::take(&mut thread.is_taken)))
        };
        let (Some(of_from), Some(of_to)) = (take(self, from), take(self, to)) else {
            return;
        };
        self.give(to, of_from);
        self.give(from, of_to);
        for slot in &mut self.slots {
            *slot = match *slot {
                Some(at) if at == from => Some(to),
                Some(at) if at == to => Some(from),
                other => other,
            };
        }
    }

    /// A recorded thread has the calls that a thread of the program has made.
    fn give(&mut self, at: usize, (made, is_taken): (Vec<Made>, bool)) {
        let comparison = &mut self.comparison;
        let Some(thread) = self.threads.all.get_mut(at) else {
            return;
        };
        thread.begin_again(comparison);
        thread.is_taken = is_taken;
        for one in made {
            let Some(index) = thread.next().map(|call| call.index) else {
                return;
            };
            comparison.bind(index, one.created.clone());
            thread.made.push(one);
            thread.advance(comparison);
        }
    }
}
