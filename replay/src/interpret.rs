//! Playing one call: from its record to the driver and back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cutape_format::{Bytes, Call, Note, Trace, layout::field};
use cutape_registry::{Function, Kind, Parent, Role, Waits};

use crate::address::{Range, Ranges, Way};
use crate::api::{Api, Code, INVALID_VALUE, NOT_READY, result_name};
use crate::arrival::Arrivals;
use crate::buffer::{Buffer, number};
use crate::capturing::Capturing;
use crate::error::Error;
use crate::frame::{Expect, Frame, Place, Skip, handle_size, is_address_kind, length_of};
use crate::guard::Position;
use crate::handles::{Handles, Key};
use crate::machine;
use crate::overrides::{self, link::LinkState};
use crate::placement::{Placement, Refusal};
use crate::plan::{Plan, function_of, made_length, not_reissued};
use crate::report::{Report, Timing, Translated, What};
use crate::run::Options;

/// Addresses that are listed in the report as translated.
const TRANSLATED_KEPT: usize = 10_000;
/// Host memory that is kept for copies in flight before the device is waited for.
const RETAINED_LIMIT: usize = 256 << 20;

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
    pub links: HashMap<u64, LinkState>,
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
    /// The device whose primary context the replay holds until the program retains it.
    pub held: Option<i32>,
    /// The live primary contexts that the program retained, by device.
    pub primaries: HashMap<i32, u64>,
    functions: HashMap<u16, Option<&'static Function>>,
    /// Host memory of asynchronous calls, until the device has been waited for.
    retained: Vec<Buffer>,
    retained_bytes: usize,
    ready: bool,
    force: bool,
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
            report: Report { calls: plan.calls, ..Report::default() },
            arrivals: Arrivals::default(),
            capturing: Capturing::default(),
            links: HashMap::new(),
            layouts: HashMap::new(),
            kept: Vec::new(),
            in_flight_reads: Vec::new(),
            nothing: Buffer::zeroed(4096),
            comparing: true,
            bytes_comparable: !options.timing,
            context_error: plan.context_error,
            held: None,
            primaries: HashMap::new(),
            functions: HashMap::new(),
            retained: Vec::new(),
            retained_bytes: 0,
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
        if self.api.is_null_driver() && self.trace.meta_value("driver.kind") != Some("null") {
            self.bytes_comparable = false;
            self.report.note(
                "recorded on a real driver, replayed on the null driver, which runs no kernels: bytes are not compared",
            );
        }
        if self.plan.first_init.is_none() && self.plan.calls > 0 {
            if let Err(code) = self.api.init() {
                return Err(setup("cuInit", code));
            }
            self.set_up()?;
        }
        Ok(())
    }

    /// Looks at the machine and puts the recorded address space in place. Needs `cuInit`.
    fn set_up(&mut self) -> Result<(), Error> {
        self.ready = true;
        self.report.machine = machine::differences(self.trace, self.plan, &self.api);
        let reasons: Vec<String> = self
            .report
            .machine
            .iter()
            .filter(|difference| difference.fatal)
            .map(|d| format!("{}: {} recorded, {} here", d.what, d.recorded, d.here))
            .collect();
        if !reasons.is_empty() && !self.force {
            return Err(Error::Machine { reasons });
        }
        let needed = !self.plan.device_slots.is_empty() || !self.plan.host_regions.is_empty();
        if !self.place || !needed {
            return Ok(());
        }
        let devices = self.api.device_count().unwrap_or(0);
        if devices == 0 {
            return Ok(());
        }
        let before = self.api.current_context().map_err(|code| setup("cuCtxGetCurrent", code))?;
        let context =
            self.api.retain_primary(0).map_err(|code| setup("cuDevicePrimaryCtxRetain", code))?;
        self.held = Some(0);
        self.api.set_current(context).map_err(|code| setup("cuCtxSetCurrent", code))?;
        // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
        let node = self.api.device_attribute(134, 0).unwrap_or(0);
        self.placement = Placement::reserve(&self.api, self.plan, devices, node);
        self.api.set_current(before).map_err(|code| setup("cuCtxSetCurrent", code))?;
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
        let function =
            *self.functions.entry(call.signature.id).or_insert_with(|| function_of(call));
        let Some(function) = function else {
            self.report.skip(&call.signature.name, "this build does not know the function", call.index);
            return Ok(());
        };
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.layouts.insert(handle, layout);
            }
        }
        if let Err(Skip(reason)) = self.attempt(call, function) {
            self.report.skip(function.name, &reason, call.index);
            self.forgo(call, function);
        }
        self.arrive(call, function);
        if !self.ready && function.base == "cuInit" && call.succeeded() {
            self.set_up()?;
        }
        Ok(())
    }

    fn attempt(&mut self, call: &Call<'t>, function: &'static Function) -> Played {
        if call.leave.is_none() {
            return Err(Skip::because("in flight when the recording ended"));
        }
        self.watch_capture(call, function)?;
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
    pub(crate) fn reissue(&mut self, call: &Call<'t>, function: &'static Function, frame: Frame) -> Played {
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
        *self.report.calls_emulated.entry(function.name.to_owned()).or_default() += 1;
        self.conclude(call, function, frame, result);
        Ok(())
    }

    /// True if a device operand lies in placed memory that is freed, or that no allocation covers: the driver of the
    /// recording saw that, the one of the replay may not, because granules are shared.
    fn names_freed_memory(&self, call: &Call<'t>, function: &'static Function) -> bool {
        function.params.iter().enumerate().any(|(position, param)| {
            let (Role::DeviceRead(length) | Role::DeviceWrite(length)) = param.role else { return false };
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
            let entry: &mut Timing = self.report.timing.entry(function.name.to_owned()).or_default();
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
        Ok(result)
    }

    fn call_driver(&self, function: &'static Function, args: &[u64]) -> Result<Code, Skip> {
        // SAFETY: `marshal` and the overrides give numbers, live handles, live addresses, and pointers to memory that the
        // frame or the player keeps, as long as the registry says.
        unsafe { self.api.call(function.id, args) }.map_err(|error| Skip::because(error.to_string()))
    }

    /// Compares what came back, and keeps the books.
    pub(crate) fn conclude(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: Frame,
        received: Code,
    ) {
        let recorded = call.result().unwrap_or(0);
        let polled = is_query(function) && recorded == NOT_READY && received == 0;
        if !polled && !self.compare_result(call, function, recorded, received) && recorded == 0 {
            self.forgo(call, function);
        }
        if recorded != 0 || received != 0 {
            return;
        }
        let context = self.api.current_context().unwrap_or(0);
        for place in frame.places.clone() {
            self.take(call, function, &frame, &place, context);
        }
        for (position, param) in function.params.iter().enumerate() {
            if let Role::Destroy(kind) = param.role {
                self.destroyed(call, function, kind, call.argument(position));
            }
        }
        overrides::context::after(self, call, function);
        let waited = function.waits == Waits::Context || function.base == "cuMemFree";
        self.settle(call, function, frame, waited);
    }

    /// Frees or keeps the memory that was lent for a call.
    fn settle(&mut self, call: &Call<'t>, function: &'static Function, frame: Frame, waited: bool) {
        if waited {
            self.retained.clear();
            self.retained_bytes = 0;
            self.in_flight_reads.clear();
        }
        if !is_asynchronous(function) {
            return;
        }
        for (position, param) in function.params.iter().enumerate() {
            if let Role::HostRead(length) = param.role
                && let Some(&address) = frame.args.get(position)
            {
                let length = length_of(call, function, length);
                self.in_flight_reads.push((address, address.saturating_add(length)));
            }
        }
        let buffers = self.arrivals.adopt(call, frame.buffers);
        self.retained_bytes += buffers.iter().map(Buffer::len).sum::<usize>();
        self.retained.extend(buffers);
        if (self.retained_bytes > RETAINED_LIMIT || self.in_flight_reads.len() > 1 << 16)
            && self.api.synchronize().is_ok()
        {
            self.retained.clear();
            self.retained_bytes = 0;
            self.in_flight_reads.clear();
        }
    }

    /// Takes what a successful call has put behind one pointer.
    fn take(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: &Frame,
        place: &Place,
        context: u64,
    ) {
        let position = place.position;
        match place.expect {
            Expect::Made(kind, parent) | Expect::Found(kind, parent) => {
                let found = matches!(place.expect, Expect::Found(..));
                let Some(recorded) = call.out_bytes(position).map(<[u8]>::to_vec) else { return };
                let size = handle_size(kind);
                let parent = self.parent_key(call, function, parent);
                let received = frame.received(place);
                for (recorded, live) in recorded.chunks_exact(size).zip(received.chunks_exact(size)) {
                    let (recorded, live) = (number(recorded), number(live));
                    self.made(call, function, frame, (kind, recorded), live, parent, context, found);
                }
            }
            Expect::Got(kind) => {
                if let Some(recorded) = call.out(position) {
                    let live = number(&frame.received(place));
                    self.got(call, function, position, kind, recorded, live, context);
                }
            }
            Expect::Value => self.compare_out(call, function, position, &frame.received(place)),
            Expect::Text => {
                if !function.params[position].may_differ
                    && let Some(expected) = call.out_bytes(position)
                {
                    self.compare_text(call, function, position, expected, &frame.received(place));
                }
            }
            Expect::DriverString => self.take_driver_string(call, function, position, frame, place),
            Expect::Bytes => {
                let expected = call.leave.and_then(|leave| leave.capture(position, field::POINTEE));
                match expected {
                    Some(expected) => {
                        let received = frame.received(place);
                        self.compare_bytes(call, function, position, &expected, &received, None);
                    }
                    None => self.arrivals.expect(call, function, place.address, place.length),
                }
            }
            Expect::Ignore => {}
        }
    }

    fn take_driver_string(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        position: usize,
        frame: &Frame,
        place: &Place,
    ) {
        let expected = call.leave.and_then(|leave| leave.capture(position, field::TEXT));
        let Some(Bytes::Inline(expected)) = expected.map(|capture| capture.bytes) else { return };
        let pointer = number(&frame.received(place)) as *const libc::c_char;
        if pointer.is_null() {
            return self.compare_text(call, function, position, expected, b"(no string)");
        }
        // SAFETY: the driver returned success and says that a NUL-terminated string of its own is there.
        let text = unsafe { std::ffi::CStr::from_ptr(pointer) }.to_bytes().to_vec();
        self.compare_text(call, function, position, expected, &text);
    }

    fn parent_key(&self, call: &Call<'t>, function: &'static Function, parent: Parent) -> Option<Key> {
        let Parent::Param(position) = parent else { return None };
        let value = call.argument(usize::from(position));
        match function.params.get(usize::from(position))?.role {
            Role::Use(Kind::Function)
                if self.handles.get((Kind::Function, value)).is_none_or(|object| !object.alive) =>
            {
                Some((Kind::Kernel, value))
            }
            Role::Use(kind) => Some((kind, value)),
            _ => None,
        }
    }

    /// Enters a new or found object into the books.
    #[allow(clippy::too_many_arguments)]
    fn made(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: &Frame,
        key: Key,
        live: u64,
        parent: Option<Key>,
        context: u64,
        found: bool,
    ) {
        let (kind, recorded) = key;
        if is_address_kind(kind) {
            return self.add_range(call, function, frame, key, live, parent, context);
        }
        let global = matches!(kind, Kind::Device | Kind::Context | Kind::Library | Kind::Kernel | Kind::Allocation);
        let context = if global { 0 } else { context };
        if recorded == 0 {
            return;
        }
        if found {
            self.handles.find(key, Some(live), parent, context, call.index, function.name);
        } else {
            self.handles.insert(key, Some(live), parent, context, call.index, function.name);
        }
    }

    /// Enters memory into the books, and into the report.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn add_range(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        frame: &Frame,
        (kind, start): Key,
        live: u64,
        owner: Option<Key>,
        context: u64,
    ) {
        if start == 0 {
            return;
        }
        if matches!(kind, Kind::Memory | Kind::HostMemory | Kind::Registration) {
            self.report.placed.allocations += 1;
            self.report.placed.at_recorded_address += u64::from(start == live);
        }
        let mut length = made_length(call, function);
        if kind == Kind::Global
            && let Some(place) = frame.places.iter().find(|place| place.expect == Expect::Ignore)
        {
            length = number(&frame.received(place));
        }
        if start != live && self.report.translated.len() < TRANSLATED_KEPT {
            let reason = frame.refusal.clone().unwrap_or_else(|| why_translated(kind).to_owned());
            self.report.translated.push(Translated {
                call: call.index,
                function: function.name.to_owned(),
                recorded: start,
                replayed: live,
                length,
                reason,
            });
        }
        let flags = call.argument_named("Flags").unwrap_or(0);
        self.ranges.insert(Range {
            start,
            length,
            live,
            kind,
            way: frame.way.unwrap_or(Way::Plain),
            context: if kind == Kind::Reservation { 0 } else { context },
            owner,
            made: call.index,
            made_by: function.name,
            ended: None,
            flags,
        });
    }

    /// Checks that a handle that the driver returned is the object of the recording.
    #[allow(clippy::too_many_arguments)]
    fn got(
        &mut self,
        call: &Call<'t>,
        function: &'static Function,
        position: usize,
        kind: Kind,
        recorded: u64,
        live: u64,
        context: u64,
    ) {
        use crate::handles::Resolved;
        let expected = match self.handles.resolve(kind, recorded) {
            _ if recorded == 0 => Some(0),
            Resolved::Live(expected) | Resolved::Dead(expected) => Some(expected),
            Resolved::Missing => return,
            Resolved::Unknown if kind == Kind::Device => Some(recorded),
            Resolved::Unknown if kind == Kind::Stream && recorded <= 2 => Some(recorded),
            Resolved::Unknown => None,
        };
        match expected {
            Some(expected) if expected == live => {}
            Some(expected) => {
                if self.comparing {
                    let texts = (format!("the object at {expected:#x}"), format!("{live:#x}"));
                    let what = What::OutParameter;
                    self.diverge(call, function, what, Some(position), texts.0, texts.1, None, None);
                }
            }
            None => {
                // An object that no re-issued call made, e.g. a context of the driver's own: known from here on.
                let context = if kind == Kind::Context { 0 } else { context };
                self.handles.find((kind, recorded), Some(live), None, context, call.index, function.name);
            }
        }
    }

    /// Books the end of an object.
    fn destroyed(&mut self, call: &Call<'t>, function: &'static Function, kind: Kind, value: u64) {
        if value == 0 {
            return;
        }
        if kind == Kind::Reservation {
            self.ranges.end_reservation(value);
            return;
        }
        if is_address_kind(kind) {
            self.ranges.end(value, call.index);
            return;
        }
        let context = (kind == Kind::Context)
            .then(|| self.handles.get((kind, value)).and_then(|object| object.live))
            .flatten();
        let ended = self.handles.end((kind, value), call.index, function.name);
        self.end_ranges(call.index, &ended, context);
    }

    /// Ends memory whose owner or context has ended.
    pub(crate) fn end_ranges(&mut self, index: u64, owners: &[Key], context: Option<u64>) {
        let owned = |range: &Range| range.owner.is_some_and(|owner| owners.contains(&owner));
        let in_context = |range: &Range| {
            context.is_some_and(|context| context == range.context)
                && matches!(range.kind, Kind::Memory | Kind::HostMemory | Kind::Registration | Kind::Global)
                && range.made_by != "cuMemAllocManaged"
        };
        let ended = self.ranges.end_where(index, |range| owned(range) || in_context(range));
        for range in ended {
            if matches!(range.way, Way::Granules | Way::PinnedGranules) {
                self.placement.unmap(&self.api, range.start, range.length);
            }
        }
        if let Some(context) = context {
            self.placement.forget_context(context);
        }
    }

    /// Books the effects of a call that replay did not make: its objects are missing, those that it ended have ended.
    fn forgo(&mut self, call: &Call<'t>, function: &'static Function) {
        if !call.succeeded() {
            return;
        }
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Make(kind, _) | Role::Find(kind, _) if !is_address_kind(kind) => {
                    let Some(recorded) = call.out(position).filter(|&value| value != 0) else { continue };
                    let made = matches!(param.role, Role::Make(..));
                    if made || self.handles.get((kind, recorded)).is_none() {
                        self.handles.insert((kind, recorded), None, None, 0, call.index, function.name);
                    }
                }
                Role::Destroy(kind) => self.destroyed(call, function, kind, call.argument(position)),
                _ => {}
            }
        }
    }

    /// Says once more that bytes of the program are not in the trace, so that what comes back cannot be compared.
    pub(crate) fn bytes_are_missing(&mut self) {
        self.bytes_comparable = false;
        self.report.note("host bytes were left out of the trace: zeros were copied instead, bytes are not compared");
    }

    /// In one phrase, why placed memory is not where it was.
    pub(crate) fn refusal_text(refusal: &Refusal) -> String {
        match refusal {
            Refusal::NotReserved(why) => (*why).to_owned(),
            Refusal::Driver(code) => format!("the driver answered {} to mapping it", result_name(*code)),
        }
    }
}

fn setup(function: &'static str, code: Code) -> Error {
    Error::Setup { function, result: result_name(code) }
}

/// Calls by which a program asks whether work is done.
fn is_query(function: &Function) -> bool {
    matches!(function.base, "cuStreamQuery" | "cuEventQuery")
}

/// Calls whose host memory must outlive them.
pub(crate) fn is_asynchronous(function: &Function) -> bool {
    function.stream.is_some() && function.waits == Waits::No
}

fn why_translated(kind: Kind) -> &'static str {
    match kind {
        Kind::Global => "the driver places a module's globals",
        Kind::Reservation => "the driver did not honour the hint",
        Kind::HostMemory | Kind::Registration => "placement is off",
        _ => "memory of this kind is not placed",
    }
}
