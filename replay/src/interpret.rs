//! Playing one call: from its record to the driver and back.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cutape_format::{Call, Note, Trace};
use cutape_registry::{Function, Role, Waits};

use crate::address::{Ranges, Way};
use crate::api::{Api, Code, DEINITIALIZED, INVALID_VALUE, NOT_READY, result_name};
use crate::arrival::Arrivals;
use crate::buffer::Buffer;
use crate::capturing::Capturing;
use crate::devices::Devices;
use crate::error::Error;
use crate::frame::{Frame, Skip, length_of};
use crate::guard::Position;
use crate::handles::Handles;
use crate::host_memory::HostMemory;
use crate::machine;
use crate::overrides::{self, link::LinkState};
use crate::placement::{Placement, Refusal};
use crate::plan::{Plan, function_of, not_reissued};
use crate::report::{Report, Timing};
use crate::rerun::{self, Rerun, steps::Recorder};
use crate::run::Options;
use crate::structs::Tokens;

/// The state of a replay.
pub(crate) struct Player<'t> {
    pub trace: &'t Trace,
    pub plan: &'t Plan,
    pub api: Api,
    pub handles: Handles,
    pub ranges: Ranges,
    pub placement: Placement,
    pub report: Report,
    pub arrivals: Arrivals,
    pub capturing: Capturing,
    pub host_memory: HostMemory,
    pub links: HashMap<u64, LinkState>,
    /// What the driver returned to be passed on.
    pub tokens: Tokens,
    /// Parameter layouts by recorded function or kernel handle.
    pub layouts: HashMap<u64, Vec<(u32, u32)>>,
    /// Images that the driver was told to use in place.
    pub kept: Vec<Buffer>,
    /// Pinned bytes that copies in flight may still read.
    pub in_flight_reads: Vec<(u64, u64)>,
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
    functions: HashMap<u16, Option<&'static Function>>,
    /// Host memory of asynchronous calls, until the device has been waited for.
    pub retained: Vec<Buffer>,
    pub retained_bytes: usize,
    /// A measurement that each call is handed to.
    pub rerun: Option<Box<Rerun>>,
    /// Keeps what is done for the call in hand, so that it can be done again.
    pub recorder: Option<Recorder>,
    ready: bool,
    pub force: bool,
    timing: bool,
    place: bool,
    refuse_conflicts: bool,
    patience: Duration,
    ticks_per_second: u64,
    position: Arc<Position>,
}

/// What playing a call ended with.
pub(crate) type Played = Result<(), Skip>;

impl<'t> Player<'t> {
    pub(crate) fn new(
        trace: &'t Trace,
        plan: &'t Plan,
        api: Api,
        options: &Options,
        position: Arc<Position>,
    ) -> Self {
        Self {
            trace,
            plan,
            api,
            handles: Handles::default(),
            ranges: Ranges::default(),
            placement: Placement::default(),
            report: Report {
                calls: plan.calls,
                ..Report::default()
            },
            arrivals: Arrivals::default(),
            capturing: Capturing::default(),
            host_memory: HostMemory::default(),
            links: HashMap::new(),
            tokens: Tokens::default(),
            layouts: HashMap::new(),
            kept: Vec::new(),
            in_flight_reads: Vec::new(),
            nothing: Buffer::zeroed(4096),
            comparing: true,
            bytes_comparable: !options.timing,
            context_error: plan.context_error,
            held: BTreeSet::new(),
            primaries: HashMap::new(),
            devices: Devices::default(),
            wanted_devices: options.devices.clone(),
            functions: HashMap::new(),
            retained: Vec::new(),
            retained_bytes: 0,
            rerun: None,
            recorder: None,
            ready: false,
            force: options.force,
            timing: options.timing,
            place: options.placement,
            refuse_conflicts: options.refuse_conflicts,
            patience: options.watchdog / 2,
            ticks_per_second: trace.ticks_per_second(),
            position,
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

    /// Plays one call.
    pub(crate) fn play(&mut self, call: &Call<'t>) -> Result<(), Error> {
        if self.rerun.is_some() {
            return rerun::play(self, call);
        }
        let function = *self
            .functions
            .entry(call.signature.id)
            .or_insert_with(|| function_of(call));
        let Some(function) = function else {
            self.report.skip(
                &call.signature.name,
                "this build does not know the function",
                call.index,
            );
            return Ok(());
        };
        for note in call.notes() {
            match note {
                Note::Layout(handle, layout) => {
                    self.layouts.insert(handle, layout);
                }
                Note::Origin(origin, name) => overrides::origin::adopt(self, call, origin, &name),
                Note::UnknownSymbol(name) => self.report.unknown(&name),
                _ => {}
            }
        }
        self.put_host_memory(call, false);
        if let Err(Skip(reason)) = self.attempt(call, function) {
            self.report.skip(function.name, &reason, call.index);
            self.forgo(call, function);
        }
        self.arrive(call, function);
        self.put_host_memory(call, true);
        let initialised = function.base == "cuInit" && call.succeeded();
        if !self.ready && initialised && self.api.device_count().is_ok() {
            self.set_up()?;
        }
        Ok(())
    }

    fn attempt(&mut self, call: &Call<'t>, function: &'static Function) -> Played {
        if call.leave.is_none() {
            return Err(Skip::because("in flight when the recording ended"));
        }
        self.watch_capture(call, function)?;
        if function.returns_result && call.result() == Some(DEINITIALIZED) {
            return Err(Skip::because(
                "the recorded driver was shutting down with its process (CUDA_ERROR_DEINITIALIZED)",
            ));
        }
        if not_reissued(function).is_some() {
            return Err(Skip::because(function.reason));
        }
        match overrides::of(function) {
            Some(play) => play(self, call, function),
            None => self.plain(call, function),
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
        if call.result() == Some(INVALID_VALUE) && self.names_freed_memory(call, function) {
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
        *self
            .report
            .calls_emulated
            .entry(function.name.to_owned())
            .or_default() += 1;
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
            crate::address::Found::Freed(range) if range.way != Way::Plain
        );
        placed || self.placement.reserves(address, 1)
    }

    /// Calls the driver.
    pub(crate) fn issue(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: &Frame,
    ) -> Result<Code, Skip> {
        self.position.call.store(call.index, Ordering::Relaxed);
        let begin = Instant::now();
        let mut result = self.call_driver(function, &frame.args)?;
        if is_query(function) && call.succeeded() {
            // The program went on because the work was done; the replay must not run ahead of it.
            while result == NOT_READY && begin.elapsed() < self.patience {
                std::thread::yield_now();
                result = self.call_driver(function, &frame.args)?;
            }
        }
        if self.timing {
            let entry: &mut Timing = self
                .report
                .timing
                .entry(function.name.to_owned())
                .or_default();
            entry.calls += 1;
            entry.nanoseconds += u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if let Some(leave) = call.leave
                && self.ticks_per_second != 0
            {
                let ticks = u128::from(leave.ticks.saturating_sub(call.ticks));
                let nanoseconds = ticks * 1_000_000_000 / u128::from(self.ticks_per_second);
                entry.recorded_nanoseconds += u64::try_from(nanoseconds).unwrap_or(0);
            }
        }
        self.report.calls_replayed += 1;
        if let Some(recorder) = &mut self.recorder {
            let context = self.api.current_context().unwrap_or(0);
            recorder.issued(call, function, &frame.args, context, result);
        }
        Ok(result)
    }

    fn call_driver(&self, function: &'static Function, args: &[u64]) -> Result<Code, Skip> {
        // SAFETY: `marshal` and the overrides give numbers, live handles, live addresses, and pointers to memory that the
        // frame or the player keeps, as long as the registry says.
        unsafe { self.api.call(function.id, args) }
            .map_err(|error| Skip::because(error.to_string()))
    }

    /// What is left when the last call has been played.
    pub(crate) fn finish(&mut self) {
        let left = self.arrivals.give_up();
        if left > 0 {
            self.report.bytes_not_compared += left;
            self.report.note("copies back whose arrival the recording does not prove: their bytes are not compared");
        }
    }

    /// Says once more that bytes of the program are not in the trace, so that what comes back cannot be compared.
    pub(crate) fn bytes_are_missing(&mut self) {
        self.bytes_comparable = false;
        self.report.note("host bytes were left out of the trace: zeros were copied instead, bytes are not compared");
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

pub(crate) fn setup(function: &'static str, code: Code) -> Error {
    Error::Setup {
        function,
        result: result_name(code),
    }
}

/// Calls by which a program asks whether work is done.
pub(crate) fn is_query(function: &Function) -> bool {
    matches!(function.base, "cuStreamQuery" | "cuEventQuery")
}

/// Calls whose host memory must outlive them.
pub(crate) fn is_asynchronous(function: &Function) -> bool {
    function.stream.is_some() && function.waits == Waits::No
}
