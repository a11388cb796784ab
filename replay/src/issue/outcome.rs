//! After a call: compares its results, and notes the objects and memory that it made or ended.

use std::sync::atomic::Ordering;

use cutape_format::layout::field;
use cutape_registry::{Family, Kind, MemoryOp, Parent, Role};

use crate::api::buffer::number;
use crate::api::{Code, NOT_READY};
use crate::calls::frame::{Expect, Frame, Place, handle_size};
use crate::compare::readbacks::Target;
use crate::issue::context;
use crate::issue::fill;
use crate::objects::handles::{Belongs, Key, Resolved};
use crate::place::address::{Range, Way};
use crate::plan::length::made_length;
use crate::player::{Job, Played, Player};
use crate::report::{Translated, What};

/// Addresses that are listed in the report as translated.
const TRANSLATED_KEPT: usize = 10_000;
/// Why the memory of allocation nodes is elsewhere.
pub(crate) const OF_GRAPH: &str = "the driver places the memory of graphs";
/// Bytes lent to copies to the host that no call proves complete, before they are given up.
const LENT_LIMIT: usize = 1 << 30;

impl<'t> Job<'_, 't> {
    /// Compares the results of a call, and notes what it made and ended.
    pub(crate) fn conclude(&mut self, mut frame: Frame, received: Code) -> Played {
        let traits = self.traits;
        if self.call.leave.is_none() {
            self.settle(&mut frame);
            self.issuer.recycle(frame);
            self.report
                .note("calls that never returned in the recording, and returned in the replay");
            return Ok(());
        }
        let recorded = self.call.result().unwrap_or(0);
        let polled = traits.is_query && recorded == NOT_READY && received == 0;
        if !polled && !self.compare_result(recorded, received) && recorded == 0 {
            self.forgo();
        }
        if recorded == 0 && received == 0 {
            let of_objects =
                |place: &Place| matches!(place.expect, Expect::Made(..) | Expect::Found(..));
            let context = match frame.places.iter().any(of_objects) {
                true => self.api.current_context().unwrap_or(0),
                false => 0,
            };
            for place in &frame.places {
                if place.expect == Expect::Bytes {
                    self.save_bytes(&[(place.address, place.length)]);
                }
                self.take(&frame, place, context);
            }
            if traits.destroys {
                for (position, param) in self.function.params.iter().enumerate() {
                    if let Role::Destroy(kind) = param.role {
                        self.destroyed(kind, self.call.argument(position));
                    }
                }
            }
            if traits.is_of_contexts {
                context::after(self);
            }
            self.settle(&mut frame);
        }
        self.issuer.recycle(frame);
        Ok(())
    }

    /// Frees or keeps the memory that was lent for a call.
    fn settle(&mut self, frame: &mut Frame) {
        let traits = self.traits;
        if let Some(recorder) = &mut self.issuer.recorder {
            recorder.keep(std::mem::take(&mut frame.buffers));
        }
        // Work of other contexts goes on.
        if traits.waits_for_context && self.handles.is_one_context() {
            let before = self.current.enqueued_before;
            self.lent.in_flight.done(before);
        }
        if !traits.is_asynchronous {
            return;
        }
        for (start, end) in frame.reads.drain(..) {
            self.lent.in_flight.reads(start, end);
        }
        if !frame.buffers.is_empty() {
            let buffers = self
                .player
                .readbacks
                .adopt(self.call, std::mem::take(&mut frame.buffers));
            self.lent.in_flight.retain(buffers);
        }
        if self.readbacks.lent() > LENT_LIMIT && self.wait_for_all_work().is_ok() {
            self.report.bytes_not_compared += self.readbacks.give_up();
        }
        if self.lent.in_flight.is_full() {
            self.finish_in_flight();
        }
    }

    /// Takes what a successful call has put behind one pointer.
    fn take(&mut self, frame: &Frame, place: &Place, context: u64) {
        let position = place.position;
        match place.expect {
            Expect::Made(kind @ Kind::Device, _)
            | Expect::Found(kind @ Kind::Device, _)
            | Expect::Got(kind) => {
                if let Some(recorded) = self.call.out(position) {
                    let live = number(&frame.received(place));
                    self.got(position, kind, recorded, live);
                }
            }
            Expect::Made(kind, parent) | Expect::Found(kind, parent) => {
                let found = matches!(place.expect, Expect::Found(..));
                let Some(recorded) = self.call.out_bytes(position) else {
                    return;
                };
                let size = handle_size(kind);
                let parent = self.parent_key(parent);
                let belongs = Belongs { parent, context };
                let received = frame.received(place);
                for (recorded, live) in recorded.chunks_exact(size).zip(received.chunks_exact(size))
                {
                    let (recorded, live) = (number(recorded), number(live));
                    self.made(frame, (kind, recorded), live, belongs, found);
                }
            }
            Expect::Value => self.compare_out(position, &frame.received(place)),
            Expect::Text => {
                let param = self.function.params.get(position);
                if param.is_some_and(|param| !param.may_differ)
                    && let Some(expected) = self.call.out_bytes(position)
                {
                    self.compare_text(position, expected, &frame.received(place));
                }
            }
            Expect::DriverString => self.take_driver_string(position, frame, place),
            Expect::Bytes => match self.returned(position, field::POINTEE) {
                Some(expected) => {
                    self.wait_if_placed(self.call.argument(position));
                    let pieces = [(place.address, place.length)];
                    self.compare_bytes(position, &expected, &pieces, None);
                }
                None => self.player.readbacks.expect(
                    self.call,
                    self.function,
                    vec![Target {
                        rows: vec![(self.call.argument(position), place.length)],
                        pieces: vec![(place.address, place.length)],
                    }],
                ),
            },
            Expect::Ignore => {}
        }
    }

    fn take_driver_string(&mut self, position: usize, frame: &Frame, place: &Place) {
        let expected = self.returned(position, field::TEXT);
        let Some(expected) = expected.and_then(|snapshot| snapshot.bytes.inline()) else {
            return;
        };
        let pointer = number(&frame.received(place)) as *const libc::c_char;
        if pointer.is_null() {
            return self.compare_text(position, expected, b"(no string)");
        }
        // SAFETY: the driver returned success and says that a NUL-terminated string of its own is
        // there.
        let text = unsafe { std::ffi::CStr::from_ptr(pointer) }
            .to_bytes()
            .to_vec();
        self.compare_text(position, expected, &text);
    }

    fn parent_key(&self, parent: Parent) -> Option<Key> {
        let Parent::Param(position) = parent else {
            return None;
        };
        let value = self.call.argument(usize::from(position));
        match self.function.params.get(usize::from(position))?.role {
            Role::Use(Kind::Function) if !self.handles.is_live((Kind::Function, value)) => {
                Some((Kind::Kernel, value))
            }
            Role::Use(kind) => Some((kind, value)),
            _ => None,
        }
    }

    /// Notes a new or found object.
    fn made(&mut self, frame: &Frame, key: Key, live: u64, mut belongs: Belongs, found: bool) {
        let (kind, recorded) = key;
        if kind.is_address() {
            return self.add_range(frame, key, live, belongs);
        }
        if let Kind::Context | Kind::Library | Kind::Kernel | Kind::Allocation = kind {
            belongs.context = 0;
        }
        if recorded == 0 {
            return;
        }
        if matches!(kind, Kind::TextureObject | Kind::SurfaceObject) && recorded != live {
            self.report.note(
                "textures or surfaces have other handles than recorded: replaced in kernel parameters of 8 bytes that equal one; inside structs and memory the recorded ones are left",
            );
        }
        let site = self.site();
        if found {
            self.handles.find(key, Some(live), belongs, site);
        } else {
            self.handles.insert(key, Some(live), belongs, site);
        }
    }

    /// Notes memory, also in the report.
    pub(crate) fn add_range(
        &mut self,
        frame: &Frame,
        (kind, start): Key,
        live: u64,
        belongs: Belongs,
    ) {
        if start == 0 {
            return;
        }
        // No request can place managed memory (the driver refuses to create it for a reservation):
        // the report lists it as translated. The driver places what is allocated in a capture.
        let of_graph = self.current.is_captured;
        let is_managed = self.function.family == Family::Memory(MemoryOp::AllocateManaged);
        let placeable = (!is_managed && !of_graph) || self.is_natural();
        if placeable && matches!(kind, Kind::Memory | Kind::HostMemory | Kind::Registration) {
            self.report.placed.allocations += 1;
            self.report.placed.at_recorded_address += u64::from(start == live);
        }
        if start != live && matches!(kind, Kind::HostMemory | Kind::Registration) {
            self.issuer.position.moved.store(1, Ordering::Relaxed);
        }
        let length = frame.length;
        let mut length = length.unwrap_or_else(|| made_length(self.call, self.function));
        if kind == Kind::Global
            && let Some(place) = frame
                .places
                .iter()
                .find(|place| place.expect == Expect::Ignore)
        {
            length = number(&frame.received(place));
        }
        // Programs query a global repeatedly.
        let known = self
            .ranges
            .at(start)
            .is_some_and(|known| known.live == live && known.length == length);
        if self.is_natural() && kind != Kind::Registration {
            let call = self.call.index;
            self.player.fillers.placed(call, (start, live));
        }
        if start != live && !known {
            let reason = frame.refusal.clone().unwrap_or_else(|| match of_graph {
                true => OF_GRAPH.to_owned(),
                false => why_translated(kind).to_owned(),
            });
            self.note_translated((start, length, live), reason);
        }
        let mut range = self.range(kind, start, length, live);
        range.way = frame.way.unwrap_or(Way::Plain);
        range.context = match kind {
            Kind::Reservation => 0,
            _ => belongs.context,
        };
        range.owner = belongs.parent;
        self.ranges.insert(range);
        if let Some(byte) = self.options.fill {
            fill::fresh(self, byte, live, length);
        }
    }

    /// Lists memory that is not where it was, in the report.
    pub(crate) fn note_translated(
        &mut self,
        (start, length, live): (u64, u64, u64),
        reason: String,
    ) {
        if self.report.translated.len() < TRANSLATED_KEPT {
            self.player.report.translated.push(Translated {
                call: self.call.index,
                function: self.function.name.to_owned(),
                recorded: start,
                replayed: live,
                length,
                reason,
            });
        }
    }

    /// Memory that the call made or found.
    pub(crate) fn range(&self, kind: Kind, start: u64, length: u64, live: u64) -> Range {
        Range {
            start,
            length,
            live,
            kind,
            way: Way::Plain,
            context: 0,
            owner: None,
            made: self.call.index,
            made_by: self.function,
            ended: None,
            flags: self.call.argument_named("Flags").unwrap_or(0),
        }
    }

    /// Checks that a handle that the driver returned is the object of the recording.
    fn got(&mut self, position: usize, kind: Kind, recorded: u64, live: u64) {
        let expected = match self.handles.resolve(kind, recorded) {
            // One without a counterpart cannot be compared.
            _ if kind == Kind::Device => match self.machine.devices.ordinal(recorded as i32) {
                Some(ordinal) => Some(u64::from(ordinal as u32)),
                None => return,
            },
            _ if recorded == 0 => Some(0),
            Resolved::Live(expected) | Resolved::Dead(expected) => Some(expected),
            Resolved::Missing => return,
            Resolved::Unknown if kind == Kind::Stream && recorded <= 2 => Some(recorded),
            Resolved::Unknown => None,
        };
        match expected {
            Some(expected) if expected == live => {}
            Some(expected) => {
                if self.is_compared() {
                    let texts = match kind {
                        Kind::Device => (format!("device {expected}"), format!("device {live}")),
                        _ => (format!("the object at {expected:#x}"), format!("{live:#x}")),
                    };
                    self.diverge(What::OutParameter, Some(position), texts);
                }
            }
            None => {
                // An object that no re-issued call made, e.g. a context of the driver's own: known
                // from here on.
                let context = match kind {
                    Kind::Context => 0,
                    _ => self.api.current_context().unwrap_or(0),
                };
                let belongs = Belongs {
                    parent: None,
                    context,
                };
                let site = self.site();
                self.handles
                    .find((kind, recorded), Some(live), belongs, site);
            }
        }
    }

    /// Notes the end of an object.
    fn destroyed(&mut self, kind: Kind, value: u64) {
        if value == 0 {
            return;
        }
        if kind == Kind::Reservation {
            self.ranges.end_reservation(value);
            return;
        }
        if kind.is_address() {
            if let Some(range) = self.player.ranges.end(value, self.call.index) {
                self.player.held_addresses.forget(&range);
                self.player.end_registered(&range);
            }
            return;
        }
        let context = match kind {
            Kind::Context => self
                .handles
                .object((kind, value))
                .and_then(|known| known.data),
            _ => None,
        };
        let site = self.site();
        let ended = self.handles.end((kind, value), site);
        let owns_memory = |key: &Key| {
            matches!(
                key.0,
                Kind::Module | Kind::Library | Kind::Context | Kind::Link
            )
        };
        for &(_, library) in ended.iter().filter(|key| key.0 == Kind::Library) {
            self.lent.images.remove(&library);
        }
        let is_kernel = |key: &&Key| matches!(key.0, Kind::Function | Kind::Kernel);
        for &(_, kernel) in ended.iter().filter(is_kernel) {
            self.lent.launch_marks.forget_kernel(kernel);
        }
        if ended.iter().any(owns_memory) {
            self.player.end_ranges(self.call.index, &ended, context);
        }
    }

    /// Notes the effects of a call that was not re-issued: its objects are missing, and those that
    /// it ended have ended.
    pub(crate) fn forgo(&mut self) {
        if !self.call.succeeded() {
            return;
        }
        for (position, param) in self.function.params.iter().enumerate() {
            match param.role {
                Role::Make(kind, _) | Role::Find(kind, _) if !kind.is_address() => {
                    let Some(recorded) = self.call.out(position).filter(|&value| value != 0) else {
                        continue;
                    };
                    let made = matches!(param.role, Role::Make(..));
                    if made || self.handles.object((kind, recorded)).is_none() {
                        let site = self.site();
                        let key = (kind, recorded);
                        self.handles.insert(key, None, Belongs::default(), site);
                    }
                }
                Role::Destroy(kind) => self.destroyed(kind, self.call.argument(position)),
                _ => {}
            }
        }
    }
}

impl<'t> Player<'t> {
    /// Gives back the memory in the place of a registration that has ended, unless calls that use
    /// it are made again.
    fn end_registered(&mut self, range: &Range) {
        if range.kind == Kind::Registration && self.issuer.recorder.is_none() {
            self.lent.registered.remove(&range.start);
        }
    }

    /// Ends memory whose owner or context has ended.
    pub(crate) fn end_ranges(&mut self, index: u64, owners: &[Key], context: Option<u64>) {
        if context.is_none() && !owners.iter().any(|&owner| self.ranges.has_owned(owner)) {
            return;
        }
        let owned = |range: &Range| range.owner.is_some_and(|owner| owners.contains(&owner));
        let in_context = |range: &Range| {
            context.is_some_and(|context| context == range.context)
                && matches!(
                    range.kind,
                    Kind::Memory | Kind::HostMemory | Kind::Registration | Kind::Global
                )
                && !range.is_managed()
        };
        let ended = self
            .ranges
            .end_where(index, |range| owned(range) || in_context(range));
        for range in ended {
            self.held_addresses.forget(&range);
            self.end_registered(&range);
            if matches!(range.way, Way::Granules | Way::PinnedGranules) {
                let state = &mut **self;
                let placement = &mut state.placement;
                placement.unmap(&state.api, range.start, range.length);
            }
        }
        if let Some(context) = context {
            self.digests.end_context(context);
            self.placement.forget_context(context);
            self.lent.launch_marks.end_context(context);
            self.lent.host_signals.end_context(context);
        }
    }
}

fn why_translated(kind: Kind) -> &'static str {
    match kind {
        Kind::Global => "the driver places a module's globals",
        Kind::Reservation => "the driver did not honour the hint",
        Kind::HostMemory | Kind::Registration => "placement is off",
        _ => "memory of this kind is not placed",
    }
}
