//! Waits: after every launch, for short launches, for events with unneeded times, and calls that
//! wait although they are no waits.

use cutape_format::Call;
use cutape_model::Site;
use cutape_registry::{ImplicitWait, Kind, rules};
use rustc_hash::{FxHashMap, FxHashSet};

use super::tally::{Rate, Tallies};
use crate::plan::Plan;
use crate::rules::{Draft, at};
use crate::state::State;
use crate::state::data::Data;

/// Launches with a wait after each from which on they are a pattern.
const WAITED: u32 = 64;
/// Launches that a wait may follow in the pattern.
const FEW: u32 = 2;
/// The least operations of a sequence, how often it comes, and microseconds of each operation.
const SEQUENCE: u64 = 8;
const SEQUENCES: u64 = 20;
const SHORT: u64 = 20;
/// Waits for events of one place from which on their times are unneeded.
const EVENT_WAITS: u64 = 64;
/// Calls of a function that lasted too long, microseconds of each, and how much longer than those
/// without pending work: of functions that are not known to wait all of them, of others on average.
const SLOW_CALLS: u64 = 8;
const SLOW: u64 = 1000;
const SLOWER: u64 = 10;
const SLOWER_ON_AVERAGE: u64 = 2;

/// What a thread has submitted since its last wait.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadWork {
    submitted: u32,
    /// The last call was a wait after few launches.
    waited: Option<Site>,
    streak: u32,
    /// Of the sequence since the last wait.
    start: u64,
    hash: u64,
    stream: u64,
    several_streams: bool,
}

/// How long a function takes.
#[derive(Clone, Copy, Debug, Default)]
struct Durations {
    /// Ticks of the longest call without pending work and of all, and how many there were.
    idle: u64,
    idle_ticks: u64,
    idle_calls: u64,
    /// The function is known to wait.
    waits: bool,
    /// Of the shortest slow call with pending work.
    shortest: u64,
    count: u64,
    ticks: u64,
    first: Option<Site>,
}

impl Durations {
    /// Whether its calls last longer where work is pending.
    fn is_slower(&self) -> bool {
        if self.count < SLOW_CALLS {
            return false;
        }
        if self.waits {
            let average = self.ticks / self.count;
            let idle = self.idle_ticks.checked_div(self.idle_calls).unwrap_or(0);
            return average >= idle.saturating_mul(SLOWER_ON_AVERAGE);
        }
        self.idle_calls > 0 && self.shortest >= self.idle.saturating_mul(SLOWER)
    }
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    threads: Vec<ThreadWork>,
    /// By the place that waits.
    loops: Tallies<u64>,
    /// By sequence and its length.
    sequences: Tallies<(u64, u64)>,
    /// By the place that creates the event.
    events: Tallies<u64>,
    timed: FxHashSet<u64>,
    durations: FxHashMap<u16, Durations>,
    /// All work up to this number is known to be complete.
    done: u64,
    /// Calls are missing, which may have asked for times.
    has_gap: bool,
}

impl Waiting {
    /// Calls are missing here: work, waits, and questions for times.
    pub(super) fn apply_gap(&mut self) {
        self.threads.clear();
        self.has_gap = true;
    }

    fn thread(&mut self, thread: u32) -> &mut ThreadWork {
        let thread = thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, ThreadWork::default());
        }
        &mut self.threads[thread]
    }

    /// Work was submitted; `shape` tells its function and grid from others. The host may read what
    /// it writes if `is_shared`.
    #[inline]
    pub(super) fn submitted(
        &mut self,
        call: &Call<'_>,
        (stream, shape): (u64, u64),
        reads_back: bool,
        is_shared: impl FnOnce() -> bool,
    ) {
        let work = self.thread(call.thread);
        if work.submitted == 0 {
            (work.start, work.hash) = (call.ticks, 0);
            (work.stream, work.several_streams) = (stream, false);
        }
        work.submitted += 1;
        work.several_streams |= work.stream != stream;
        work.hash = (work.hash.rotate_left(5) ^ shape).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let waited = work.waited.take();
        if reads_back {
            // The next wait is for its bytes.
            work.streak = 0;
            return;
        }
        if let Some(site) = waited {
            self.follows_wait(call.thread, site, is_shared);
        }
    }

    /// A launch is the first work of its thread after a wait.
    fn follows_wait(&mut self, thread: u32, site: Site, is_shared: impl FnOnce() -> bool) {
        let work = self.thread(thread);
        // A pattern that is about to count is looked at closely.
        if work.streak + 1 >= WAITED / 2 && is_shared() {
            work.streak = 0;
            return;
        }
        work.streak += 1;
        let added = match work.streak.cmp(&WAITED) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => u64::from(WAITED),
            std::cmp::Ordering::Greater => 1,
        };
        if added > 0
            && let Some(tally) = self.loops.of(site.caller, site)
        {
            tally.count += added;
        }
    }

    /// A call waited for a stream, an event or a context.
    pub(super) fn waited(&mut self, call: &Call<'_>, site: Site, stream: Option<u64>) {
        let work = self.thread(call.thread);
        let submitted = std::mem::take(&mut work.submitted);
        match submitted {
            0 => {}
            1..=FEW => work.waited = Some(site),
            _ => (work.waited, work.streak) = (None, 0),
        }
        let covers = stream.is_none_or(|stream| !work.several_streams && work.stream == stream);
        let (start, hash) = (work.start, work.hash);
        if u64::from(submitted) >= SEQUENCE
            && covers
            && let Some(leave) = call.leave
            && let Some(tally) = self.sequences.of((hash, submitted.into()), site)
        {
            tally.count += 1;
            let ticks = leave.ticks.saturating_sub(start);
            tally.ticks = tally.ticks.saturating_add(ticks);
        }
    }

    /// A call that is neither work nor a wait nor a question: the host may use results.
    pub(super) fn other(&mut self, thread: u32) {
        let work = self.thread(thread);
        (work.waited, work.streak, work.submitted) = (None, 0, 0);
    }

    /// A stream or the host waits for an event.
    pub(super) fn event_waited(&mut self, state: &State, event: u64) {
        let id = state.objects.live(Kind::Event, event);
        let Some(object) = id.and_then(|id| state.objects.get(id)) else {
            return;
        };
        if matches!(&object.data, Data::Event(event) if event.timing)
            && let Some(tally) = self.events.of(object.created.caller, object.created)
        {
            tally.count += 1;
        }
    }

    /// The time of an event is asked for.
    pub(super) fn event_timed(&mut self, state: &State, event: u64) {
        let id = state.objects.live(Kind::Event, event);
        if let Some(object) = id.and_then(|id| state.objects.get(id)) {
            self.timed.insert(object.created.caller);
        }
    }

    /// A call that need not wait returned.
    pub(super) fn timed(
        &mut self,
        (plan, call, site): (&Plan, &Call<'_>, Site),
        state: &State,
        rate: Rate,
    ) {
        let (Some(leave), Some(slow)) = (call.leave, rate.ticks(SLOW)) else {
            return;
        };
        let ticks = leave.ticks.saturating_sub(call.ticks);
        let recent = state.execution.recent.iter().rev();
        let mut recent = recent.take_while(|work| work.stream.1 > self.done);
        let is_pending = recent.any(|work| !state.order.is_done(work.stream.0, work.stream.1));
        if !is_pending && let Some(last) = state.execution.recent.back() {
            self.done = last.stream.1;
        }
        let known = self.durations.entry(plan.function.id).or_default();
        known.waits = plan.function.implicit_wait != ImplicitWait::No;
        if !is_pending {
            known.idle = known.idle.max(ticks);
            known.idle_ticks = known.idle_ticks.saturating_add(ticks);
            known.idle_calls += 1;
        } else if ticks >= slow {
            known.shortest = if known.count == 0 {
                ticks
            } else {
                known.shortest.min(ticks)
            };
            known.count += 1;
            known.ticks = known.ticks.saturating_add(ticks);
            known.first.get_or_insert(site);
        }
    }

    pub(super) fn finish(&self, rate: Rate) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let loops = self.loops.at_least(u64::from(WAITED));
        if let Some((_, worst)) = loops.iter().max_by_key(|(_, tally)| tally.count) {
            let message = format!(
                "{} follows {} launches, with at most {FEW} launches before each wait and no other \
                 call between the wait and the next launch. Runs of less than {WAITED} are not \
                 counted. Assumed: the CPU reads no result in between; cutape knows only \
                 the addresses among the parameters of the launches.",
                at(worst.first),
                worst.count,
            );
            let title = "a wait after every launch";
            let draft = Draft::new(rules::PERFORMANCE_SYNC_IN_HOT_LOOP, title, message);
            drafts.push(draft.site(worst.first));
        }
        drafts.extend(self.short_sequences(rate));
        let events = self.events.at_least(EVENT_WAITS);
        let unneeded = events
            .iter()
            .filter(|(caller, _)| !self.has_gap && !self.timed.contains(caller));
        if let Some((_, worst)) = unneeded.max_by_key(|(_, tally)| tally.count) {
            let message = format!(
                "{} creates events without CU_EVENT_DISABLE_TIMING. They were waited for {} times, \
                 and no call asked for the time of any of them. Less than {EVENT_WAITS} waits are \
                 not counted.",
                at(worst.first),
                worst.count,
            );
            let title = "events record times that no call asks for";
            let draft = Draft::new(rules::PERFORMANCE_EVENT_TIMING_UNNEEDED, title, message);
            drafts.push(draft.site(worst.first));
        }
        drafts.extend(self.implicit(rate));
        drafts
    }

    fn short_sequences(&self, rate: Rate) -> Option<Draft> {
        let sequences = self.sequences.at_least(SEQUENCES);
        let short = sequences.into_iter().filter_map(|((_, length), tally)| {
            let time = rate.microseconds(tally.ticks)?;
            let each = time / tally.count.max(1) / length;
            (each < SHORT).then_some((*length, tally, each))
        });
        let (length, tally, each) = short.max_by_key(|(length, tally, _)| length * tally.count)?;
        let message = format!(
            "The same sequence of {length} operations, up to {}, was submitted {} times. From its first \
             operation to the end of the wait it took {each} us for each operation, less than \
             {SHORT}, so submitting them probably takes most of it.",
            at(tally.first),
            tally.count,
        );
        let title = "long sequences of short operations";
        let draft = Draft::new(rules::PERFORMANCE_TINY_LAUNCHES, title, message);
        Some(draft.site(tally.first))
    }

    fn implicit(&self, rate: Rate) -> Option<Draft> {
        let slow = self.durations.values().filter(|known| known.is_slower());
        let worst = slow.max_by_key(|known| (known.ticks, known.first.map(|site| site.index)))?;
        let site = worst.first?;
        let why = match (worst.waits, worst.idle_calls) {
            (true, 0) => "It waits for all work of its context.".to_owned(),
            (true, calls) => format!(
                "It waits for all work of its context: {calls} calls without pending work took {} \
                 us on average.",
                rate.microseconds(worst.idle_ticks / calls).unwrap_or(0),
            ),
            (false, calls) => format!(
                "Without pending work its {calls} calls took {} us at most, so it waits for the \
                 work.",
                rate.microseconds(worst.idle).unwrap_or(0),
            ),
        };
        let message = format!(
            "{} lasted {SLOW} us or more in {} calls with pending work{}. {why}",
            site.function,
            worst.count,
            rate.in_all(worst.ticks),
        );
        let title = "a call that is no wait waits for pending work";
        let draft = Draft::new(rules::PERFORMANCE_IMPLICIT_SYNC, title, message);
        Some(draft.site(site))
    }
}
