//! Playing one call: from its record to the driver and back.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cutape_driver::CallError;
use cutape_format::{Call, Note, Trace};
use cutape_registry::{FUNCTIONS, Function, Role, Waits};
use rustc_hash::FxBuildHasher;

use crate::api::{Api, Code, DEINITIALIZED, INVALID_VALUE, NOT_READY, result_name};
use crate::buffer::Buffer;
use crate::compare::readback::Readbacks;
use crate::error::Error;
use crate::guard::Position;
use crate::issue::frame::{Frame, Skip, length_of};
use crate::issue::handles::Handles;
use crate::issue::stream_capture::StreamCaptures;
use crate::issue::structs::Tokens;
use crate::issue::traits::{self, Functions, Traits};
use crate::machine;
use crate::machine::devices::Devices;
use crate::measure::clock;
use crate::measure::timing::{Measure, Measuring};
use crate::overrides::launch::Kernels;
use crate::overrides::{self, link::LinkState};
use crate::place::address::{Ranges, Way};
use crate::place::host_memory::HostMemory;
use crate::place::in_flight::{InFlight, Mark};
use crate::place::placement::{Placement, Refusal};
use crate::place::unavailable::{self, Unavailable};
use crate::plan::Plan;
use crate::report::Report;
use crate::rerun::{self, Rerun, steps::Recorder};
use crate::run::Options;
use crate::schedule::threads::Lease;

/// The state of a replay.
pub(crate) struct Player<'t> {
    pub trace: &'t Trace,
    pub plan: &'t Plan,
    pub api: Arc<Api>,
    pub handles: Handles,
    pub ranges: Ranges,
    /// Memory that another process made.
    pub unavailable: Unavailable,
    /// Whether there may be such memory, so that the addresses that copies bring are remembered.
    follows_addresses: bool,
    pub placement: Placement,
    pub report: Report,
    pub readbacks: Readbacks,
    pub captures: StreamCaptures,
    pub host_memory: HostMemory,
    pub links: HashMap<u64, LinkState>,
    /// What the driver returned to be passed on.
    pub tokens: Tokens,
    /// Parameter layouts by recorded function or kernel handle.
    pub layouts: HashMap<u64, Vec<(u32, u32)>, FxBuildHasher>,
    /// Images that the driver was told to use in place.
    pub kept: Vec<Buffer>,
    /// Host memory of asynchronous calls, until the device has been waited for.
    pub in_flight: InFlight,
    /// Address of an array of pointers to zeros, in `kept`; 0 before it is needed.
    pub stub: u64,
    /// Zeros: what a handle that is none stands for.
    pub nothing: Buffer,
    /// Whether the call in hand is compared.
    pub comparing: bool,
    /// Whether bytes from the device can be what they were.
    pub bytes_comparable: bool,
    pub context_error: Option<(u64, Code)>,
    /// Devices whose primary context the replay holds until the program retains it.
    pub held: BTreeSet<i32>,
    /// The live primary contexts that the program retained, by device.
    pub primaries: HashMap<i32, u64>,
    /// Which device stands for which recorded one.
    pub devices: Devices,
    /// As the user wants them: recorded, here.
    pub wanted_devices: Vec<(u32, u32)>,
    /// A measurement that each call is handed to.
    pub rerun: Option<Box<Rerun>>,
    /// Keeps what is done for the call in hand, so that it can be done again.
    pub recorder: Option<Recorder>,
    functions: Functions,
    /// Frames of calls that are over, to be filled again.
    pub frames: Vec<Frame>,
    /// How kernels are given their parameters.
    pub kernels: Kernels,
    /// What was enqueued before the call in hand.
    pub enqueued_before: Mark,
    /// The call in hand was given to the driver, succeeded, and waits for work as the recorded one did.
    waited: bool,
    /// By thread: the query that its last call was, if that was told that work is not done.
    polling: HashMap<u32, (u16, u64), FxBuildHasher>,
    /// By the registry's id: calls that the replayer answered.
    answered: Vec<u64>,
    /// What is measured, instead of comparing bytes.
    pub measure: Option<Measure>,
    /// How to give the player away while the driver has a call, if threads run at once.
    pub lease: Option<Lease<'t>>,
    ready: bool,
    pub force: bool,
    place: bool,
    refuse_conflicts: bool,
    patience: Duration,
    pub position: Arc<Position>,
}

/// What playing a call ended with.
pub(crate) type Played = Result<(), Skip>;

impl<'t> Player<'t> {
    pub(crate) fn new(
        trace: &'t Trace,
        plan: &'t Plan,
        api: Arc<Api>,
        options: &Options,
        position: Arc<Position>,
    ) -> Self {
        Self {
            trace,
            plan,
            api,
            handles: Handles::default(),
            ranges: Ranges::default(),
            unavailable: Unavailable::default(),
            follows_addresses: unavailable::any_in(plan),
            placement: Placement::default(),
            report: Report {
                calls: plan.calls,
                ..Report::default()
            },
            readbacks: Readbacks::default(),
            captures: StreamCaptures::default(),
            host_memory: HostMemory::default(),
            links: HashMap::new(),
            tokens: Tokens::default(),
            layouts: HashMap::default(),
            kept: Vec::new(),
            stub: 0,
            in_flight: InFlight::default(),
            nothing: Buffer::zeroed(4096),
            comparing: true,
            bytes_comparable: options.timing == Measuring::Nothing,
            context_error: plan.context_error,
            held: BTreeSet::new(),
            primaries: HashMap::new(),
            devices: Devices::default(),
            wanted_devices: options.devices.clone(),
            rerun: None,
            recorder: None,
            functions: Functions::default(),
            frames: Vec::new(),
            kernels: Kernels::default(),
            enqueued_before: Mark::default(),
            waited: false,
            polling: HashMap::default(),
            answered: vec![0; FUNCTIONS.len()],
            measure: None,
            lease: None,
            ready: false,
            force: options.force,
            place: options.placement,
            refuse_conflicts: options.refuse_conflicts,
            patience: options.watchdog / 2,
            position,
        }
    }

    /// One without anything in its books, for where the player is given away.
    pub(crate) fn blank(&self, trace: &'t Trace, options: &Options) -> Self {
        let (api, position) = (Arc::clone(&self.api), Arc::clone(&self.position));
        Self {
            // There may be one for each of many threads.
            nothing: Buffer::zeroed(0),
            answered: Vec::new(),
            ..Self::new(trace, self.plan, api, options, position)
        }
    }

    /// What must be done before the first call.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.report.machine = machine::of_driver(self.trace, self.plan, &self.api);
        if machine::is_other_kind(self.trace, &self.api) {
            self.bytes_comparable = false;
            self.report.note(
                "recorded on another kind of driver, and the null driver runs no kernels: bytes are not compared",
            );
        }
        // Where the program saw what an uninitialised driver answers, the devices have to wait for its cuInit.
        if self.plan.needs.starts_uninitialised || self.plan.calls == 0 {
            return self.refuse_misfit();
        }
        match self.api.init() {
            Ok(()) => self.set_up(),
            Err(code) if self.plan.first_init.is_some() => self.no_driver(code),
            Err(code) => Err(setup("cuInit", code)),
        }
    }

    /// Looks at the machine and puts the recorded address space in place. Needs `cuInit`.
    fn set_up(&mut self) -> Result<(), Error> {
        self.ready = true;
        self.fit()?;
        self.know_primaries()?;
        let needed = !self.plan.device_slots.is_empty() || !self.plan.host_regions.is_empty();
        let devices = self.devices_in_use();
        let first = devices.first().filter(|_| self.place && needed);
        let held = first.map(|&first| Ok((first, self.hold_primary(first)?)));
        let held = held.transpose()?;
        self.fit_memory()?;
        let Some((first, context)) = held else {
            return Ok(());
        };
        let before = self
            .api
            .current_context()
            .map_err(|code| setup("cuCtxGetCurrent", code))?;
        self.api
            .set_current(context)
            .map_err(|code| setup("cuCtxSetCurrent", code))?;
        // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
        let node = self.api.device_attribute(134, first).unwrap_or(0);
        self.placement = Placement::reserve(&self.api, self.plan, devices, node);
        self.api
            .set_current(before)
            .map_err(|code| setup("cuCtxSetCurrent", code))?;
        if !self.placement.taken.is_empty() && self.refuse_conflicts {
            return Err(Error::Conflict {
                taken: self.placement.taken.clone(),
                total: self.plan.device_slots.len() + self.plan.host_regions.len(),
            });
        }
        Ok(())
    }

    /// Plays one call, which is compared, or measured, if it is selected.
    pub(crate) fn play_selected(&mut self, call: &Call<'t>, selected: bool) -> Result<(), Error> {
        self.comparing = selected;
        if !selected {
            self.report.calls_not_compared += 1;
            return self.play(call);
        }
        if let Some(measure) = &mut self.measure {
            measure.begin(call.index, call.ticks);
        }
        let played = self.play(call);
        if let Some(measure) = &mut self.measure {
            measure.end(call.index, returned_at(call));
        }
        played
    }

    /// What is known of the call in hand before it is looked at.
    #[inline]
    pub(crate) fn is_about_to_play(&mut self, compared: bool) {
        self.comparing = compared;
        self.waited = false;
        self.enqueued_before = self.in_flight.mark();
    }

    /// Plays one call.
    pub(crate) fn play(&mut self, call: &Call<'t>) -> Result<(), Error> {
        if self.rerun.is_some() {
            return rerun::play(self, call);
        }
        let Some(function) = self.functions.of(call) else {
            self.report.skip(
                &call.signature.name,
                "this build does not know the function",
                call.index,
            );
            return Ok(());
        };
        let traits = traits::of(function);
        self.is_about_to_play(self.comparing);
        let noted = call.notes().next().is_some();
        if noted {
            for note in call.notes() {
                match note {
                    Note::Layout(handle, layout) => {
                        self.layouts.insert(handle, layout);
                    }
                    Note::Origin(origin, name) => {
                        overrides::origin::adopt(self, call, origin, &name)
                    }
                    Note::UnknownSymbol(name) => self.report.unknown(&name),
                    _ => {}
                }
            }
            self.put_host_memory(call, false);
        }
        if let Err(Skip(reason)) = self.attempt(call, function, traits) {
            self.report.skip(function.name, &reason, call.index);
            if self.follows_addresses {
                self.note_unavailable(call, function);
            }
            self.forgo(call, function);
        }
        if noted {
            self.arrive(call);
            self.put_host_memory(call, true);
        }
        if traits.is_init && !self.ready && call.succeeded() && self.api.device_count().is_ok() {
            self.set_up()?;
        }
        Ok(())
    }

    fn attempt(&mut self, call: &Call<'t>, function: &'static Function, traits: &Traits) -> Played {
        if call.leave.is_none() {
            return Err(Skip::because("in flight when the recording ended"));
        }
        self.watch_capture(call, function, traits.capture)?;
        if function.returns_result && call.result() == Some(DEINITIALIZED) {
            return Err(Skip::because(
                "the recorded driver was shutting down with its process (CUDA_ERROR_DEINITIALIZED)",
            ));
        }
        if !traits.reissued {
            return Err(Skip::because(function.reason));
        }
        if self.follows_addresses {
            if !self.unavailable.is_empty() {
                self.needs_nothing_unavailable(call, function)?;
            }
            self.note_addresses(call, function);
        }
        if self.polls_again(call, function, traits) {
            self.answered[usize::from(function.id)] += 1;
            return Ok(());
        }
        match traits.play {
            Some(play) => play(self, call, function),
            None => self.plain(call, function),
        }
    }

    /// True for a query that its thread had just made, and that was told again that work is not done: one such query stands for
    /// all of them, and the one that was told that it is done waits.
    fn polls_again(&mut self, call: &Call<'t>, function: &Function, traits: &Traits) -> bool {
        if traits.is_query && call.result() == Some(NOT_READY) {
            let query = (function.id, call.argument(0));
            return self.polling.insert(call.thread, query) == Some(query);
        }
        self.forget_query(call.thread);
        false
    }

    /// A thread makes another call than a query.
    #[inline]
    pub(crate) fn forget_query(&mut self, thread: u32) {
        if !self.polling.is_empty() {
            self.polling.remove(&thread);
        }
    }

    /// Re-issues a call from the registry's roles alone.
    pub(crate) fn plain(&mut self, call: &Call<'t>, function: &'static Function) -> Played {
        let frame = self.marshal(call, function, &[])?;
        self.reissue(call, function, frame)
    }

    /// Gives a call to the driver, unless the books have the answer, and compares.
    pub(crate) fn reissue(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: Frame,
    ) -> Played {
        if call.result() == Some(INVALID_VALUE)
            && traits::of(function).names_memory
            && self.names_freed_memory(call, function)
        {
            return self.answer(call, function, frame, INVALID_VALUE);
        }
        let result = self.issue(call, function, &frame)?;
        self.conclude(call, function, frame, result);
        Ok(())
    }

    /// Takes the replayer's own answer for the driver's.
    pub(crate) fn answer(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: Frame,
        result: Code,
    ) -> Played {
        self.answered[usize::from(function.id)] += 1;
        self.conclude(call, function, frame, result);
        Ok(())
    }

    /// True if a device operand lies in placed memory that is freed, or that no allocation covers: the driver of the
    /// recording saw that, the one of the replay may not, because granules are shared.
    fn names_freed_memory(&self, call: &Call<'t>, function: &'static Function) -> bool {
        function.params.iter().enumerate().any(|(position, param)| {
            let (Role::DeviceRead(length) | Role::DeviceWrite(length)) = param.role else {
                return false;
            };
            let (address, length) = (call.argument(position), length_of(call, function, length));
            self.is_freed(address, length)
        })
    }

    /// As above, for some bytes.
    pub(crate) fn is_freed(&self, address: u64, length: u64) -> bool {
        if address == 0 || length == 0 || self.ranges.covers(address, length) {
            return false;
        }
        let placed = matches!(
            self.ranges.find(address),
            crate::place::address::Found::Freed(range) if range.way != Way::Plain
        );
        placed || self.placement.reserves(address, 1)
    }

    /// Calls the driver. With threads at once, others play meanwhile.
    pub(crate) fn issue(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: &Frame,
    ) -> Result<Code, Skip> {
        self.issue_with(call, function, &frame.args)
    }

    /// As `issue`, for arguments that need no frame.
    pub(crate) fn issue_with(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        args: &[u64],
    ) -> Result<Code, Skip> {
        self.position.call.store(call.index, Ordering::Relaxed);
        if self.lease.is_some() {
            self.position.enters(call.thread as usize, call.index);
        }
        // The program went on because the work was done; the replay must not run ahead of it.
        let waits = call.succeeded() && traits::of(function).is_query;
        let patience = self.patience;
        let is_timed = self.comparing && self.measure.as_ref().is_some_and(Measure::is_of_calls);
        let (result, ticks) = if is_timed {
            self.given_away(|api| {
                let begin = clock::ticks();
                let result = call_driver(api, function, args, waits, patience);
                (result, clock::ticks().saturating_sub(begin))
            })
        } else {
            self.given_away(|api| (call_driver(api, function, args, waits, patience), 0))
        };
        let result = result.map_err(|error| Skip::because(error.to_string()))?;
        self.waited = result == 0 && call.succeeded() && function.waits != Waits::No;
        if is_timed && let Some(measure) = &mut self.measure {
            let recorded = returned_at(call).saturating_sub(call.ticks);
            measure.add(function, recorded, ticks);
        }
        self.report.calls_replayed += 1;
        if let Some(recorder) = &mut self.recorder {
            let context = self.api.current_context().unwrap_or(0);
            recorder.issued(call, function, args, context, result);
        }
        Ok(result)
    }

    /// Does something that may take long in the driver; with threads at once, others have the player meanwhile.
    fn given_away<T>(&mut self, work: impl FnOnce(&Api) -> T) -> T {
        let Some(lease) = self.lease.take() else {
            return work(&self.api);
        };
        let api = Arc::clone(&lease.blank.api);
        // What is about the call in hand.
        let (comparing, is_captured, before) = (
            self.comparing,
            self.captures.is_captured,
            self.enqueued_before,
        );
        let (result, lease) = lease.without(self, || work(&api));
        self.comparing = comparing;
        self.captures.is_captured = is_captured;
        self.enqueued_before = before;
        self.lease = Some(lease);
        result
    }

    /// Waits for the work of the current context, which must not be tried while one of its streams snapshots: that would
    /// end the capture.
    pub(crate) fn wait_for_device(&mut self) -> Result<(), Code> {
        if self.captures.any_open() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        self.given_away(Api::synchronize)
    }

    /// True if the driver has told that the work is done which the recorded call was told to be done, by the same proof.
    pub(crate) fn has_waited(&self) -> bool {
        self.waited && self.report.skipped.is_empty() && self.report.divergence_count == 0
    }

    /// What is left when the last call has been played.
    pub(crate) fn finish(&mut self) {
        let left = self.readbacks.give_up();
        if left > 0 {
            self.report.bytes_not_compared += left;
            self.report.note("copies back whose arrival the recording does not prove: their bytes are not compared");
        }
        for (function, &count) in FUNCTIONS.iter().zip(&self.answered) {
            if count > 0 {
                let name = function.name.to_owned();
                self.report.calls_emulated.insert(name, count);
            }
        }
        if let Some(measure) = &mut self.measure {
            measure.close();
            (self.report.timing, self.report.span) = measure.result(self.trace.ticks_per_second());
        }
    }

    /// Says once more that bytes of the program are not in the trace, at most their hash, so that what comes back cannot be compared.
    pub(crate) fn bytes_are_missing(&mut self, hash: Option<[u8; 16]>) {
        self.bytes_comparable = false;
        self.report.note(match hash {
            None => "host bytes were left out of the trace: zeros were copied instead, bytes are not compared",
            Some(_) => "of host bytes the trace has only a hash: zeros were copied instead, bytes are not compared",
        });
    }

    /// In one phrase, why placed memory is not where it was.
    pub(crate) fn refusal_text(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::NotReserved(_) if !self.place => "placement is off".to_owned(),
            Refusal::NotReserved(why) => (*why).to_owned(),
            Refusal::Driver(code) => {
                format!("the driver answered {} to mapping it", result_name(*code))
            }
        }
    }
}

/// When a call had returned in the recording, or was entered if it never did.
fn returned_at(call: &Call) -> u64 {
    call.leave.map_or(call.ticks, |leave| leave.ticks)
}

pub(crate) fn setup(function: &'static str, code: Code) -> Error {
    Error::Setup {
        function,
        result: result_name(code),
    }
}

/// The answer to waiting for a context of which a stream captures (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED).
const CAPTURE_UNSUPPORTED: Code = 900;

/// Queries that follow each other at once before there are pauses between them.
const EAGER_QUERIES: u32 = 64;
/// The first pause between queries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(200));

/// Gives a call to the driver; a query that `waits` is repeated as long as work is not done and `patience` lasts.
fn call_driver(
    api: &Api,
    function: &'static Function,
    args: &[u64],
    waits: bool,
    patience: Duration,
) -> Result<Code, CallError> {
    // SAFETY: `marshal` and the overrides give numbers, live handles, live addresses, and pointers to memory that the
    // frame or the player keeps, as long as the registry says.
    let give = || unsafe { api.call(function.id, args) };
    let mut result = give();
    if !waits || result != Ok(NOT_READY) {
        return result;
    }
    let begin = Instant::now();
    let (mut pause, longest) = PAUSES;
    let mut queries = 0;
    while result == Ok(NOT_READY) && begin.elapsed() < patience {
        queries += 1;
        if queries < EAGER_QUERIES {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
        result = give();
    }
    result
}

/// Calls by which a program asks whether work is done.
pub(crate) fn is_query(function: &'static Function) -> bool {
    traits::of(function).is_query
}

/// Calls whose host memory must outlive them.
pub(crate) fn is_asynchronous(function: &'static Function) -> bool {
    traits::of(function).is_asynchronous
}
