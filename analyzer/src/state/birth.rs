//! New objects: what is put down of each kind, and when.

use cutape_format::Call;
use cutape_registry::Kind;

use super::data::{ContextData, Data, EventData, ImageData, ImageSource, LinkData, StreamData};
use super::links::{BINARY_IS_PRESERVED, library_option};
use super::objects::{NewObject, ObjectId};
use super::{State, image_snapshot, options_of};
use crate::plan::{Plan, Special};

/// Flag of `cuStreamCreate` (cuda.h: CU_STREAM_NON_BLOCKING).
const NON_BLOCKING: u64 = 1;
/// Flag of `cuEventCreate` (cuda.h: CU_EVENT_DISABLE_TIMING).
const DISABLE_TIMING: u64 = 2;

/// An object whose making call has returned, perhaps later than the calls that are looked at now.
#[derive(Debug)]
pub(super) struct Born {
    pub(super) new: NewObject,
    pub(super) data: Data,
    pub(super) size: u64,
}

impl State {
    /// Applies what calls made that have returned by `now`, in the order in which they returned. Before every call, with the time
    /// of its enter; at the end with the last time there is.
    #[inline]
    pub(crate) fn settle(&mut self, now: u64, thread: u32) {
        // Nearly always.
        if !self.unborn.is_empty() {
            self.settle_some(now, thread);
        }
    }

    fn settle_some(&mut self, now: u64, thread: u32) {
        self.unborn.sort_by_key(|born| born.new.made_ticks);
        // What this thread made itself it knows, whatever the clocks say.
        let due = |born: &Born| born.new.made_ticks <= now || born.new.made.thread == thread;
        let (ready, rest) = std::mem::take(&mut self.unborn).into_iter().partition(due);
        self.unborn = rest;
        let ready: Vec<Born> = ready;
        for born in ready {
            self.bear(born);
        }
    }

    pub(super) fn bear(&mut self, born: Born) {
        let id = self.objects.make(born.new);
        self.fill(id, born.data, born.size);
    }

    /// What a kind needs beyond its history.
    pub(super) fn data_of(&self, plan: &Plan, call: &Call<'_>, kind: Kind) -> Data {
        let argument = |name: &str| plan.at(name).map(|position| call.argument(position));
        match kind {
            Kind::Module | Kind::Library
                if plan.image().is_some() || plan.special != Special::None =>
            {
                self.image_of(plan, call)
            }
            Kind::Link => {
                let options = plan
                    .options
                    .map(|shape| options_of(shape, call))
                    .unwrap_or_default();
                Data::Link(Box::new(LinkData {
                    options,
                    ..Default::default()
                }))
            }
            Kind::Context => Data::Context(ContextData {
                device: argument("dev").map_or(0, |device| device as i32),
                primary: plan.special == Special::PrimaryRetain,
            }),
            Kind::Event => Data::Event(EventData {
                timing: argument("Flags").or_else(|| argument("flags")).unwrap_or(0)
                    & DISABLE_TIMING
                    == 0,
                record: None,
                before: Vec::new(),
            }),
            Kind::Stream => Data::Stream(StreamData {
                non_blocking: argument("Flags").or_else(|| argument("flags")).unwrap_or(0)
                    & NON_BLOCKING
                    != 0,
            }),
            _ => Data::None,
        }
    }

    /// Puts down what a kind needs beyond its history.
    pub(super) fn fill(&mut self, id: ObjectId, data: Data, size: u64) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        object.size = size;
        if !matches!(data, Data::None) {
            object.data = data;
        }
        let (kind, handle) = (object.kind, object.handle);
        match &object.data {
            Data::Image(data) if data.preserved => self.preserving.push(id),
            Data::Link(data) if data.options.has_outputs() => self.writing_links.push(id),
            _ => {}
        }
        match kind {
            Kind::Memory | Kind::Global => self.ranges.insert(handle, size, id),
            Kind::HostMemory | Kind::Reservation => self.ranges.clear_dead(handle, size.max(1)),
            _ => {}
        }
    }

    /// The size of a global variable that the program did not ask for, as its parsed image says.
    pub(super) fn known_size(&self, id: ObjectId) -> Option<u64> {
        let object = self.objects.get(id)?;
        let image = self.image_data(object.parent?)?.parsed.get()?.as_ref()?;
        let name = object.name.as_deref()?;
        image
            .entries
            .iter()
            .find_map(|entry| Some(entry.content.as_ref().ok()?.global(name)?.size))
    }

    fn image_of(&self, plan: &Plan, call: &Call<'_>) -> Data {
        let mut data = ImageData::default();
        if let Some(snapshot) = image_snapshot(plan, call) {
            data.length = snapshot.bytes.length().unwrap_or(0);
            data.source = ImageSource::of(snapshot.bytes);
        }
        if let Some(position) = plan.image() {
            data.address = call.argument(position);
        }
        if plan.special == Special::LibraryLoad {
            data.preserved =
                library_option(plan, call, BINARY_IS_PRESERVED).is_some_and(|v| v != 0);
        }
        Data::Image(Box::new(data))
    }
}

/// The bytes that a new object takes, as the call says; 0 if it does not.
pub(super) fn size_of(plan: &Plan, call: &Call<'_>, kind: Kind) -> u64 {
    let out = |name: &str| plan.at(name).and_then(|position| call.out(position));
    match kind {
        Kind::Memory | Kind::HostMemory | Kind::Reservation => {
            let rows = plan.at("Height").map(|position| call.argument(position));
            match (
                plan.size.map(|position| call.argument(position)),
                out("pPitch"),
                rows,
            ) {
                (Some(size), _, _) => size,
                (None, Some(pitch), Some(rows)) => pitch.saturating_mul(rows),
                _ => 0,
            }
        }
        Kind::Global => out("bytes").unwrap_or(0),
        _ => 0,
    }
}
