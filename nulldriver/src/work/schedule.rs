//! When enqueued work runs: `CUTAPE_NULL_SCHEDULE`.
//!
//! `eager` runs work in the call that enqueues it, unless something before it is pending: a wait
//! for a value, or a host function that another thread runs. `lazy` runs only what a call waits
//! for, in another order than it was enqueued where the order is free; a query answers some times
//! that the work is not complete. A thread runs one task when no call has been made for long,
//! since programs may wait by reading memory, and a call that has waited for long runs one of
//! others, since work may wait for a value that they write. `random` runs work on a thread at seeded moments.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Once};
use std::time::{Duration, Instant};

use cutape_registry::{Family, Function, FunctionOp, ImplicitWait, Param, Role};

use crate::call::answer::{Answer, NOT_READY};
use crate::object::memory::Purpose;
use crate::object::queue::{Ticket, is_any_pending};
use crate::player;
use crate::settings::{self, Schedule};
use crate::state::{Action, Locked, State, has_ended, lock};
use crate::work::host_function;

/// Between two looks at a value that work waits for.
const PAUSE: Duration = Duration::from_micros(50);
/// With the lazy schedule: how long no call is made before work goes on by itself.
const PATIENCE: Duration = Duration::from_millis(200);
/// With the lazy schedule: how many queries in a row find that nothing has changed.
const QUERIES: u64 = 3;
/// With the random schedule: the longest time between two tasks, and while a call waits.
const LONGEST: Duration = Duration::from_micros(400);
const HURRIED: Duration = Duration::from_micros(20);

/// A task has ended.
static CHANGED: Condvar = Condvar::new();
/// There are tasks for the thread.
static ADDED: Condvar = Condvar::new();
/// How many calls there were.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// How many calls wait for work.
static WAITING: AtomicUsize = AtomicUsize::new(0);

impl State {
    /// The context of memory at an address, of a module or of an array.
    fn owner_of(&self, handle: u64) -> Option<u64> {
        let allocation = self.allocation_at(handle).map(|(_, memory)| memory.context);
        let registration = || Some(self.registration_at(handle)?.1.context);
        let module = || Some(self.modules.find(handle).ok()?.context);
        let array = || Some(self.arrays.find(handle).ok()?.context);
        allocation
            .or_else(registration)
            .or_else(module)
            .or_else(array)
    }

    /// The pending tasks that may run now.
    fn ready(&self) -> Vec<Ticket> {
        self.queue.ready(|action| match action {
            Action::Until(condition) => condition(self),
            Action::Host(_, call) => player::may_call_function(*call),
            Action::Run(_) | Action::Nothing | Action::Retire(_) => true,
        })
    }

    /// Those that a call runs which does not wait. In the recording, the call of a played program has
    /// returned, and a host function may wait for what the program does then: a thread runs it.
    fn ready_in_call(&self) -> Vec<Ticket> {
        self.queue.ready(|action| match action {
            Action::Until(condition) => condition(self),
            Action::Host(..) => !player::is_playing(),
            Action::Run(_) | Action::Nothing | Action::Retire(_) => true,
        })
    }

    /// Ends a task, and gives up what only waited for it.
    fn complete(&mut self, ticket: Ticket) {
        self.queue.complete(ticket);
        for retired in self
            .queue
            .ready(|action| matches!(action, Action::Retire(_)))
        {
            if let Some(Action::Retire(end)) = self.queue.begin(retired) {
                end(self);
            }
            self.queue.complete(retired);
        }
        CHANGED.notify_all();
    }
}

/// Runs one task; a host function without the lock.
fn run(mut state: Locked, ticket: Ticket) -> Locked {
    match state.queue.begin(ticket) {
        Some(Action::Run(work) | Action::Retire(work)) => work(&mut state),
        Some(Action::Host(function, call)) => {
            drop(state);
            player::show(call);
            // Without a thread for it, the function is not called.
            let _ = host_function::run(function);
            player::called_function(call);
            state = lock();
        }
        Some(Action::Until(_) | Action::Nothing) => {}
        // Another thread runs it.
        None => return state,
    }
    state.complete(ticket);
    state
}

/// Runs everything that may run.
fn run_all(mut state: Locked, ready: fn(&State) -> Vec<Ticket>) -> Locked {
    while let Some(&ticket) = ready(&state).first() {
        state = run(state, ticket);
    }
    state
}

/// The kernel that a call launches or asks the function of.
fn used_kernel(function: &Function, words: &[u64]) -> Option<u64> {
    let at = match function.family {
        Family::Launch(op) => op.function()?,
        Family::Function(FunctionOp::OfKernel { kernel, .. }) => kernel,
        _ => return None,
    };
    words.get(usize::from(at)).copied()
}

/// Before each call: some calls wait for work though they are no waits (`ImplicitWait`). So does the
/// first use of a library in a context, which loads it (H200, driver 580.159.04).
pub(crate) fn before_call(function: &Function, words: &[u64]) {
    if !is_any_pending() {
        return;
    }
    if let Some(kernel) = used_kernel(function, words) {
        let state = lock();
        if let (true, Ok(context)) = (state.is_first_use(kernel), state.current()) {
            let pending = state.queue.of_context(context);
            wait(state, &pending);
        }
        return;
    }
    if function.implicit_wait == ImplicitWait::No {
        return;
    }
    let state = lock();
    let handle = words.first().copied().unwrap_or(0);
    let is_ended = |parameter: &Param| matches!(parameter.role, Role::Destroy(_));
    let context = match function.implicit_wait {
        ImplicitWait::Context | ImplicitWait::ContextUnlessPool
            if function.params.first().is_some_and(is_ended) =>
        {
            state.owner_of(handle)
        }
        _ => state.current().ok(),
    };
    let Some(context) = context else {
        return;
    };
    let waits = match function.implicit_wait {
        ImplicitWait::No => false,
        ImplicitWait::Context => true,
        ImplicitWait::ContextUnlessPool => {
            !matches!(state.purpose_at(handle), Some(Purpose::Pool(_)))
        }
        ImplicitWait::ContextIfLoaded => {
            let library = state.libraries.find(handle);
            library.is_ok_and(|library| library.modules.contains_key(&context))
        }
    };
    if waits {
        let pending = state.queue.of_context(context);
        wait(state, &pending);
    }
}

/// After each call: work that the schedule wants to run now, and the thread for what is left.
pub(crate) fn after_call() {
    if !is_any_pending() {
        return;
    }
    let mut state = lock();
    if settings::get().schedule == Schedule::Eager {
        state = run_all(state, State::ready_in_call);
        if state.queue.len() == 0 {
            return;
        }
    }
    CALLS.fetch_add(1, Ordering::Relaxed);
    drop(state);
    wake_thread();
}

/// Wakes the thread that runs what no call runs; starts it the first time.
fn wake_thread() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let thread = std::thread::Builder::new().name("cutape-null-work".to_owned());
        // Without it, only calls run work.
        let _ = thread.spawn(work);
    });
    ADDED.notify_one();
}

/// Waits until these tasks are complete.
pub(crate) fn wait(state: Locked, tickets: &[Ticket]) {
    drop(wait_locked(state, tickets));
}

/// Waits until these tasks are complete, and locks the state again.
pub(crate) fn wait_locked(mut state: Locked, tickets: &[Ticket]) -> Locked {
    WAITING.fetch_add(1, Ordering::Relaxed);
    let is_random = matches!(settings::get().schedule, Schedule::Random(_));
    let mut since = Instant::now();
    loop {
        let needed = state.queue.closure(tickets);
        if needed.is_empty() {
            break;
        }
        // Work may wait for a value that work of another stream writes.
        let is_stuck = since.elapsed() >= PATIENCE;
        // With the random schedule, the thread runs everything.
        let mut ready = state.ready().into_iter().rev();
        let next = ready.find(|ticket| (is_stuck || needed.contains(ticket)) && !is_random);
        state = match next {
            Some(ticket) => {
                state = run(state, ticket);
                since = Instant::now();
                state
            }
            None => {
                wake_thread();
                pause(state, PAUSE)
            }
        };
    }
    WAITING.fetch_sub(1, Ordering::Relaxed);
    state
}

/// Answers a query: `NOT_READY` unless these tasks are complete.
pub(crate) fn query(mut state: Locked, tickets: &[Ticket]) -> Answer {
    static UNANSWERED: AtomicU64 = AtomicU64::new(0);
    match settings::get().schedule {
        Schedule::Eager => state = run_all(state, State::ready_in_call),
        Schedule::Random(_) => {}
        Schedule::Lazy => {
            let needed = state.queue.closure(tickets);
            let is_over = UNANSWERED.fetch_add(1, Ordering::Relaxed) >= QUERIES;
            if is_over && !needed.is_empty() {
                UNANSWERED.store(0, Ordering::Relaxed);
                let mut ready = state.ready().into_iter().rev();
                if let Some(ticket) = ready.find(|ticket| needed.contains(ticket)) {
                    state = run(state, ticket);
                }
            }
        }
    }
    match state.queue.closure(tickets).is_empty() {
        true => Ok(()),
        false => Err(NOT_READY),
    }
}

fn pause(state: Locked, longest: Duration) -> Locked {
    let waited = CHANGED.wait_timeout(state, longest);
    waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
}

/// The thread that runs what no call runs.
fn work() {
    let mut random = match settings::get().schedule {
        Schedule::Random(seed) => seed,
        Schedule::Eager | Schedule::Lazy => 0,
    };
    let (mut calls, mut since) = (0, Instant::now());
    let mut state = lock();
    while !has_ended() {
        if state.queue.len() == 0 {
            state = ADDED
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            continue;
        }
        match settings::get().schedule {
            Schedule::Eager => state = pause(run_all(state, State::ready), PAUSE),
            Schedule::Lazy => {
                let now = CALLS.load(Ordering::Relaxed);
                if now != calls || WAITING.load(Ordering::Relaxed) != 0 {
                    (calls, since) = (now, Instant::now());
                }
                let is_due = since.elapsed() >= PATIENCE;
                match state.ready().pop().filter(|_| is_due) {
                    Some(ticket) => state = run(state, ticket),
                    None => state = pause(state, PATIENCE / 4),
                }
            }
            Schedule::Random(_) => {
                random = next_random(random);
                let ready = state.ready();
                if !ready.is_empty() {
                    let chosen = ready[random as usize % ready.len()];
                    state = run(state, chosen);
                }
                drop(state);
                let longest = match WAITING.load(Ordering::Relaxed) {
                    0 => LONGEST,
                    _ => HURRIED,
                };
                let part = (random >> 32) % 4;
                // Often none at all, so that several tasks run between two calls.
                std::thread::sleep(longest * part as u32 / 4);
                state = lock();
            }
        }
    }
}

/// A step of splitmix64.
fn next_random(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
