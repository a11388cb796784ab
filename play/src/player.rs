//! What happens at each call of the program.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutape_diff::{OneByOne, Used};
use cutape_format::{Call, MadeCall, Trace};
use cutape_registry::{Family, Function, ImplicitWait, Param, Role, Waits};

use crate::allowed::Allowed;
use crate::call_id::CallId;
use crate::copied::Copies;
use crate::exchange::MOST_CALLS;
use crate::host_functions::HostFunctions;
use crate::kernels::Kernels;
use crate::live::LiveCall;
use crate::looks::Looks;
use crate::matching::Unmatched;
use crate::mismatch::{Difference, Mismatch};
use crate::outcome::OutcomeFile;
use crate::query::{Sort, sort_of};
use crate::state::{OnMismatch, State};
use crate::threads::{Made, Threads, ends_object, known};
use crate::unknown::{Since, Unknown};
use crate::unset::read_unset;
use crate::values::{MissingBytes, addresses, give_cubin, write_values};

/// How a program is played.
#[derive(Clone, Debug)]
pub struct Options {
    /// The recording.
    pub trace: PathBuf,
    /// A file with bytes of kernel parameters that are not compared.
    pub unset: Option<PathBuf>,
    /// Bytes of kernel parameters that differ are no mismatch; the outcome has them.
    pub learns_unset: bool,
    /// The file to create that says how far the program has come; the process that creates it is the
    /// one that is played.
    pub outcome: Option<PathBuf>,
    /// The process that started the program. A child that the program forks, which is the same program,
    /// is not played.
    pub parent: Option<u32>,
    /// What follows a mismatch.
    pub on_mismatch: OnMismatch,
    /// Calls that may be others than the recorded ones, whose results stand for theirs.
    pub allowed: Allowed,
}

/// A call of the program that the driver is to make.
#[derive(Debug)]
pub struct Begun {
    what: What,
}

impl Begun {
    /// Whether it is a query that found work complete in the recording.
    pub fn found_complete(&self) -> bool {
        let What::Query(Some(answer)) = &self.what else {
            return false;
        };
        let recorded = &answer.recorded;
        let is_poll = known(recorded).is_some_and(|function| sort_of(function) == Sort::Poll);
        is_poll && recorded.succeeded()
    }

    /// The recorded call with an effect that the program makes.
    pub fn call(&self) -> Option<CallId> {
        let What::Effect(effect) = &self.what else {
            return None;
        };
        let &Call {
            index,
            thread,
            number,
            ..
        } = &effect.recorded;
        Some(CallId {
            index,
            thread,
            number,
            address: Self::address(&effect.recorded),
        })
    }

    /// Where the memory is that a recorded call made.
    fn address(recorded: &Call<'_>) -> Option<u64> {
        let params = known(recorded)?.params;
        let is_made = |param: &Param| match param.role {
            Role::Make(kind, _) => kind.is_address(),
            _ => false,
        };
        recorded.out(params.iter().position(is_made)?)
    }
}

#[derive(Debug)]
enum What {
    /// The driver's answer counts.
    Own,
    /// A query, and the recorded answer.
    Query(Option<Box<Answer>>),
    Effect(Box<Effect>),
}

/// A recorded query.
#[derive(Debug)]
struct Answer {
    recorded: Call<'static>,
    /// The recorded thread, if the query shows something of memory.
    shows: Option<usize>,
}

/// A call with an effect.
#[derive(Debug)]
struct Effect {
    /// The recorded thread.
    thread: usize,
    recorded: Call<'static>,
    made: MadeCall,
    /// When it was entered.
    entered: u64,
    /// What it has created, if it was taken in when it was entered.
    taken: Option<Range<u32>>,
    /// The objects that it is given, if it matters which bytes are unknown.
    given: Vec<Used>,
}

/// What the driver has to do with a call.
#[derive(Debug)]
pub enum Turn {
    /// Make it, and tell [`Player::after`] the result.
    Make(Begun),
    /// Return this result.
    Return(i32),
}

/// A program that is played.
pub struct Player {
    process: u32,
    on_mismatch: OnMismatch,
    /// Calls wait for those of other threads; false once these have not come.
    awaits_others: AtomicBool,
    state: Mutex<State>,
}

/// Whether this process was forked from the same program, and not started by `starter`.
fn is_fork_of_other(starter: u32) -> bool {
    // SAFETY: it only asks the system.
    let parent = unsafe { libc::getppid() };
    let program = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let own = program("self");
    parent as u32 != starter && own.is_some() && program(&parent.to_string()) == own
}

/// How often, and after which pauses, a thread looks whether another one has returned from a call.
const MOST_LOOKS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);
/// The pause where other threads are awaited that need not come.
const SHORT_PAUSE: Duration = Duration::from_micros(100);

impl State {
    /// That of a program which has made no call.
    pub(crate) fn of(
        trace: &'static Trace,
        options: &Options,
        outcome: OutcomeFile,
    ) -> Result<Self, String> {
        let mut kernels = Kernels::default();
        let unset = options.unset.as_deref().map(read_unset).transpose()?;
        let comparison = OneByOne::new(trace, unset.unwrap_or_default(), &addresses);
        let comparison = comparison.map_err(|error| error.to_string())?;
        let copies = Copies::of(trace);
        let mut threads = Threads::of(trace, &mut kernels, |call| copies.is_seen(call));
        for thread in &mut threads.all {
            thread.pass_queries(&comparison);
        }
        Ok(Self {
            trace,
            comparison,
            learns_unset: options.learns_unset,
            threads,
            kernels,
            copies,
            host_functions: HostFunctions::of(trace),
            looks_for_functions: Looks::default(),
            slots: Vec::new(),
            allowed: options.allowed.clone(),
            unknown: (options.on_mismatch == OnMismatch::Unknown).then(Unknown::default),
            outcome,
            played: 0,
        })
    }

    /// Takes in a call of the program; what it has created.
    fn take(&mut self, effect: &Effect) -> Range<u32> {
        let as_read = effect.made.at_place_of(&effect.recorded);
        let created = self.comparison.take_live(&as_read, effect.entered);
        self.comparison.bind(effect.recorded.index, created.clone());
        created
    }

    /// The recorded thread whose calls this thread makes.
    pub(crate) fn thread(&self) -> Option<usize> {
        *self.slots.get(SLOT.get()?)?
    }

    fn set_thread(&mut self, thread: usize) {
        let slot = SLOT.get().unwrap_or(self.slots.len());
        SLOT.set(Some(slot));
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(thread);
        }
    }

    /// Unknown bytes that the program can read after a wait.
    fn readable(&self) -> Option<MissingBytes> {
        let (used, since) = self.unknown.as_ref()?.readable()?;
        Some(MissingBytes(format!("{} is unknown: {since}", used.label)))
    }

    fn write_values(&self, live: LiveCall<'_>, recorded: &Call<'_>) {
        let index = recorded.index;
        let address = |address| self.comparison.live_address(index, address);
        write_values(live.function, recorded, &live.arguments(), &address);
    }
}

/// A recorded call, in a message.
fn who(recorded: &Call<'_>) -> String {
    let (index, thread, name) = (recorded.index, recorded.thread, &recorded.signature.name);
    format!("call {index} of thread {thread}, {name},")
}

/// Prints on standard error, as cutape.
pub(crate) fn print_line(text: &str) {
    use std::io::Write;
    let line = format!("cutape: {text}\n");
    // The program must not go on because stderr is full.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

thread_local! {
    /// Its number among the threads of the program that have made calls.
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
    /// The driver is at work on a call of this thread.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Player {
    /// Opens the recording; `None` if another process plays it.
    ///
    /// # Errors
    /// What is wrong with the trace.
    pub fn open(options: &Options) -> Result<Option<Self>, String> {
        if options.parent.is_some_and(is_fork_of_other) {
            return Ok(None);
        }
        let Some(outcome) = OutcomeFile::create(options.outcome.as_deref()) else {
            return Ok(None);
        };
        let trace = Trace::open(Path::new(&options.trace)).map_err(|error| error.to_string())?;
        // Until the process ends: the driver is never unloaded while it is used.
        let trace: &'static Trace = Box::leak(Box::new(trace));
        Ok(Some(Self {
            process: std::process::id(),
            on_mismatch: options.on_mismatch,
            awaits_others: AtomicBool::new(true),
            state: Mutex::new(State::of(trace, options, outcome)?),
        }))
    }

    /// Whether the calls of this process are played: not those of a forked child.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do with a call: registers and words of the stack.
    pub fn before(&self, function: &'static Function, words: &[u64]) -> Turn {
        let sort = sort_of(function);
        let own = || Turn::Make(Begun { what: What::Own });
        // Calls of callbacks that the driver calls are not recorded as others are.
        if sort == Sort::Own || IS_INSIDE.get() || !self.is_of_this_process() {
            return own();
        }
        let live = LiveCall { function, words };
        let mut state = self.lock();
        let begun = match sort {
            Sort::Effect => {
                let (mut looks, mut others) = (0, Looks::default());
                loop {
                    let thread = state.thread();
                    if let Some(thread) = thread {
                        // The call may read it.
                        state.show_polled(thread);
                    }
                    match state.find(thread, live, self.on_mismatch) {
                        Ok(found) => {
                            state.set_thread(found.0);
                            if !self.awaits(&mut others, &state, found.0, &found.1) {
                                break self.begin_effect(&mut state, live, found);
                            }
                            // Meanwhile it may turn out to be another thread.
                            if let Some(own) = state.threads.all.get_mut(found.0) {
                                own.is_busy = false;
                            }
                            drop(state);
                            std::thread::sleep(SHORT_PAUSE);
                            state = self.lock();
                        }
                        Err(Unmatched::Yet) if looks < MOST_LOOKS => {
                            looks += 1;
                            drop(state);
                            std::thread::sleep(PAUSE);
                            state = self.lock();
                        }
                        Err(Unmatched::Yet) => {
                            let mismatch = state.mismatch(thread, live);
                            self.report(&mut state, &mismatch);
                            return own();
                        }
                        Err(Unmatched::GoesOn(mismatch, found)) => {
                            self.report(&mut state, &mismatch);
                            break self.begin_effect(&mut state, live, *found);
                        }
                        Err(Unmatched::Never(_)) if state.is_allowed(live) => {
                            break Turn::Make(Begun {
                                what: What::Query(None),
                            });
                        }
                        Err(Unmatched::Never(mismatch)) => {
                            self.report(&mut state, &mismatch);
                            break self.begin_additional(&mut state, live);
                        }
                    }
                }
            }
            _ => self.begin_query(state, live, sort),
        };
        if let Turn::Make(Begun {
            what: What::Query(_) | What::Effect(..),
        }) = begun
        {
            IS_INSIDE.set(true);
        }
        begun
    }

    /// Whether a call comes after calls of other threads that are still to come; `looks` are those of
    /// the call so far.
    fn awaits(&self, looks: &mut Looks, state: &State, thread: usize, recorded: &Call<'_>) -> bool {
        if !self.awaits_others.load(Ordering::Relaxed) || !state.is_early(thread, recorded) {
            return false;
        }
        self.looked(looks, state.played, || who(recorded));
        true
    }

    /// Something has been awaited by `who` in vain once more.
    fn looked(&self, looks: &mut Looks, played: u64, who: impl FnOnce() -> String) {
        if looks.add(played) {
            // The threads do something else than in the recording.
            self.awaits_others.store(false, Ordering::Relaxed);
            print_line(&format!(
                "{} has waited for calls of other threads, or functions of streams, that do not come; \
                 from here on threads are not kept in the recorded order, and may read bytes of \
                 another moment",
                who()
            ));
        }
    }

    /// Whether the driver may call the function of the program that a call has enqueued: not before
    /// calls that had returned in the recording. To be asked again after a short pause.
    pub fn may_call_function(&self, call: CallId) -> bool {
        let mut state = self.lock();
        let begun = state.host_functions.begun((call.thread, call.number));
        let is_early = begun.is_some_and(|begun| state.awaits_calls_before(begun));
        let is_early = is_early && !state.is_waiting();
        if !is_early || !self.awaits_others.load(Ordering::Relaxed) {
            return true;
        }
        let mut looks = std::mem::take(&mut state.looks_for_functions);
        self.looked(&mut looks, state.played, || {
            format!("the function that call {} enqueues", call.index)
        });
        state.looks_for_functions = looks;
        false
    }

    /// Locks the state once the functions have returned that had before a call did: the program knows of
    /// them behind it.
    fn lock_behind_functions(&self, recorded: &Call<'_>) -> MutexGuard<'_, State> {
        let left = recorded.leave.map_or(0, |leave| leave.ticks);
        let mut looks = Looks::default();
        loop {
            let state = self.lock();
            let is_ordered = self.awaits_others.load(Ordering::Relaxed);
            if !is_ordered || !state.host_functions.are_awaited(left) {
                return state;
            }
            self.looked(&mut looks, state.played, || who(recorded));
            drop(state);
            std::thread::sleep(SHORT_PAUSE);
        }
    }

    /// That function has returned.
    pub fn called_function(&self, call: CallId) {
        let call = (call.thread, call.number);
        self.lock().host_functions.ran(call);
    }

    /// A call that the recording does not have.
    fn begin_additional(&self, state: &mut State, live: LiveCall<'_>) -> Turn {
        if self.on_mismatch != OnMismatch::Unknown {
            return Turn::Make(Begun { what: What::Own });
        }
        if let Some(why) = state.take_additional(live) {
            let at = state.thread().unwrap_or(0);
            let comparison = (state.trace, &state.comparison);
            let mismatch = Mismatch::new(Difference::Bytes(why), at, None, comparison);
            self.report(state, &mismatch);
        }
        Turn::Make(Begun {
            what: What::Query(None),
        })
    }

    fn begin_effect(
        &self,
        state: &mut State,
        live: LiveCall<'_>,
        (thread, recorded, made): (usize, Call<'static>, MadeCall),
    ) -> Turn {
        let unseen = state.threads.all.get_mut(thread);
        for call in unseen
            .map(|thread| thread.take_unseen())
            .unwrap_or_default()
        {
            self.begin_memory(state, thread, &call, None);
            self.see_memory(state, thread, &call);
        }
        let result = recorded.leave.map(|leave| leave.result);
        let mut effect = Box::new(Effect {
            thread,
            recorded,
            made,
            entered: state.comparison.enter(),
            taken: None,
            given: Vec::new(),
        });
        let as_read = effect.made.at_place_of(&effect.recorded);
        let mut since = None;
        if let Some(unknown) = &mut state.unknown {
            effect.given = state.comparison.live_objects(&as_read);
            since = unknown.follow(live.function, &effect.given, &[]);
        }
        let pointers = &mut state.copies.pointers;
        pointers.learn(live.function, &effect.recorded, &as_read);
        match result {
            None => {
                self.fail(state, Difference::InFlight, thread, &effect.recorded);
                Turn::Make(Begun { what: What::Own })
            }
            Some(0) => {
                self.begin_memory(state, thread, &effect.recorded, since);
                // Before another thread gets the handle or the address again.
                if ends_object(live.function) {
                    effect.made.returned(0);
                    effect.taken = Some(state.take(&effect));
                }
                Turn::Make(Begun {
                    what: What::Effect(effect),
                })
            }
            Some(code) => {
                effect.made.returned(code);
                self.conclude(state, *effect);
                Turn::Return(code)
            }
        }
    }

    fn begin_query<'l>(
        &'l self,
        mut state: MutexGuard<'l, State>,
        live: LiveCall<'_>,
        sort: Sort,
    ) -> Turn {
        let own = state.thread();
        if let Some(own) = own.and_then(|thread| state.threads.all.get_mut(thread)) {
            own.asked += 1;
        }
        let Some(recorded) = state.answer(live, sort) else {
            return Turn::Make(Begun {
                what: What::Query(None),
            });
        };
        let own = state.thread();
        let thread = own.filter(|&thread| {
            let own = state.threads.all.get(thread);
            own.is_some_and(|own| own.has_unseen(&recorded))
        });
        // The program learns from it that work is complete, which another call may have proved.
        let found_complete = sort == Sort::Poll && recorded.succeeded();
        if let Some(own) = thread.or(own.filter(|_| found_complete)) {
            let mut others = Looks::default();
            while self.awaits(&mut others, &state, own, &recorded) {
                drop(state);
                std::thread::sleep(SHORT_PAUSE);
                state = self.lock();
            }
        }
        if let Some(thread) = thread {
            state.show_before(recorded.index, true);
            self.begin_memory(&mut state, thread, &recorded, None);
        }
        match recorded.leave {
            Some(leave) if leave.result != 0 => {
                if let Some(thread) = thread {
                    self.see_passed(&mut state, thread, &recorded);
                }
                Turn::Return(leave.result)
            }
            _ => Turn::Make(Begun {
                what: What::Query(Some(Box::new(Answer {
                    recorded,
                    shows: thread,
                }))),
            }),
        }
    }

    /// Takes in what the driver has returned; the result that the program gets.
    pub fn after(
        &self,
        begun: Begun,
        function: &'static Function,
        words: &[u64],
        result: i32,
    ) -> i32 {
        let live = LiveCall { function, words };
        match begun.what {
            What::Own => result,
            What::Query(answer) => {
                IS_INSIDE.set(false);
                let mut state = self.lock();
                let Some(answer) = answer else {
                    state.take_own(live, result);
                    return result;
                };
                let Answer { recorded, shows } = *answer;
                if let Some(thread) = shows {
                    self.see_passed(&mut state, thread, &recorded);
                }
                let needs_driver = |param: &Param| matches!(param.role, Role::Get(_));
                if result != 0 && function.params.iter().any(needs_driver) {
                    let thread = state.thread().unwrap_or(0);
                    self.fail(
                        &mut state,
                        Difference::Unsupported(result),
                        thread,
                        &recorded,
                    );
                }
                let mut made = MadeCall::new(recorded.signature, &live.arguments());
                if result == 0 {
                    live.add_outputs(&mut made, &recorded, result);
                    let now = state.comparison.enter();
                    let as_read = made.at_place_of(&recorded);
                    let found = state.comparison.take_live(&as_read, now);
                    state.comparison.bind(recorded.index, found);
                }
                state.write_values(live, &recorded);
                recorded.leave.map_or(result, |leave| leave.result)
            }
            What::Effect(mut effect) => {
                let mut state = self.lock_behind_functions(&effect.recorded);
                IS_INSIDE.set(false);
                let (thread, recorded) = (effect.thread, &effect.recorded);
                if result != 0 && function.returns_result {
                    self.fail(
                        &mut state,
                        Difference::Unsupported(result),
                        thread,
                        recorded,
                    );
                }
                give_cubin(function, recorded, &live.arguments(), state.trace);
                live.add_outputs(&mut effect.made, recorded, 0);
                state.write_values(live, recorded);
                let code = recorded.result().unwrap_or(result);
                self.conclude(&mut state, *effect);
                code
            }
        }
    }

    /// A call with an effect has returned.
    fn conclude(&self, state: &mut State, effect: Effect) {
        let taken = effect.taken.clone();
        let created = taken.unwrap_or_else(|| state.take(&effect));
        let Effect {
            thread,
            recorded,
            given,
            ..
        } = effect;
        if let Some(unknown) = &mut state.unknown
            && let Some(function) = known(&recorded)
        {
            let objects = created.clone();
            let objects = objects.filter_map(|number| state.comparison.used(number));
            let objects: Vec<Used> = objects.collect();
            unknown.created(recorded.index, &objects);
            unknown.follow(function, &given, &objects);
            if ends_object(function) {
                unknown.ends(&given);
            }
        }
        self.see_memory(state, thread, &recorded);
        let State {
            threads,
            comparison,
            ..
        } = state;
        if let Some(own) = threads.all.get_mut(thread) {
            own.is_busy = false;
            if own.made.len() < MOST_CALLS {
                own.made
                    .extend(known(&recorded).map(|function| Made { function, created }));
            }
            own.advance(comparison);
        }
        state.played += 1;
        let (played, left) = (state.played, state.threads.first_left());
        state.outcome.set(played, left);
    }

    /// Host memory before a call of the program.
    fn begin_memory(
        &self,
        state: &mut State,
        thread: usize,
        recorded: &Call<'static>,
        since: Option<Since>,
    ) {
        let State {
            copies, comparison, ..
        } = &mut *state;
        let begun =
            known(recorded).map(|function| copies.begin(comparison, (function, recorded), since));
        if let Some(Err(missing)) = begun {
            self.lack(state, missing, thread, recorded);
        }
    }

    /// Host memory after it.
    fn see_memory(&self, state: &mut State, thread: usize, recorded: &Call<'static>) {
        let waits = |function: &Function| {
            let proves = function.waits != Waits::No || function.implicit_wait != ImplicitWait::No;
            let copies = matches!(function.family, Family::Copy(_)) && function.stream.is_none();
            proves || copies || sort_of(function) == Sort::Poll
        };
        if recorded.succeeded()
            && known(recorded).is_some_and(waits)
            && let Some(missing) = state.readable()
        {
            self.lack(state, missing, thread, recorded);
        }
        let State {
            copies,
            trace,
            comparison,
            ..
        } = &mut *state;
        let seen = known(recorded)
            .map(|function| copies.returned((trace, comparison), function, recorded));
        if let Some(Err(missing)) = seen {
            self.lack(state, missing, thread, recorded);
        }
    }

    /// Host memory after a query; only then do other threads go on that wait for what it shows.
    fn see_passed(&self, state: &mut State, thread: usize, recorded: &Call<'static>) {
        self.see_memory(state, thread, recorded);
        if let Some(own) = state.threads.all.get_mut(thread) {
            own.saw(recorded);
        }
    }

    /// The work of a call copies to an address of the program's memory now: brings the recorded bytes.
    /// False if the driver has to copy, since the program gives the bytes.
    pub fn deliver(&self, call: CallId, address: u64) -> bool {
        let mut state = self.lock();
        let State { copies, trace, .. } = &mut *state;
        let delivered = copies.deliver(trace, call, address);
        let is_delivered = !matches!(delivered, Ok(false));
        self.check_memory(&mut state, call, delivered.map(|_| ()));
        is_delivered
    }

    /// Before the work of a call calls a function of the program, or writes a value that the program
    /// can poll: brings what the device has written before that.
    pub fn show(&self, call: CallId) {
        let mut state = self.lock();
        if let Some(missing) = state.readable() {
            self.check_memory(&mut state, call, Err(missing));
        }
        let State {
            copies, comparison, ..
        } = &mut *state;
        let shown = copies.show(comparison, call.index);
        self.check_memory(&mut state, call, shown);
    }

    /// The work of a call has written memory, which may be the program's.
    pub fn wrote(&self, address: u64, length: u64, call: CallId) {
        self.lock().copies.wrote(address, length, call.index);
    }

    fn check_memory(&self, state: &mut State, call: CallId, result: Result<(), MissingBytes>) {
        let Err(missing) = result else { return };
        let thread = call.thread as usize;
        let of_thread = state.threads.all.get(thread);
        let recorded = of_thread.and_then(|thread| thread.with_index(call.index).cloned());
        if let Some(recorded) = recorded {
            self.lack(state, missing, thread, &recorded);
        }
    }

    fn lack(&self, state: &mut State, missing: MissingBytes, thread: usize, recorded: &Call<'_>) {
        self.fail(state, Difference::Bytes(missing.0), thread, recorded);
    }

    fn fail(&self, state: &mut State, difference: Difference, thread: usize, recorded: &Call<'_>) {
        let State {
            trace, comparison, ..
        } = &mut *state;
        let mismatch = Mismatch::new(difference, thread, Some(recorded), (trace, comparison));
        self.report(state, &mismatch);
    }

    /// Reports a mismatch, and ends the process unless it may go on.
    fn report(&self, state: &mut State, mismatch: &Mismatch) {
        state.outcome.add(&mismatch.json());
        print_line(&mismatch.text());
        let ends = match self.on_mismatch {
            OnMismatch::Stop => true,
            OnMismatch::Warn => false,
            OnMismatch::Unknown => mismatch.is_of_bytes(),
        };
        if ends {
            // SAFETY: what the program has printed so far helps to find the mistake; its handlers
            // for the end would call the driver, and do not run.
            unsafe {
                libc::fflush(std::ptr::null_mut());
                libc::_exit(1);
            }
        }
    }
}
