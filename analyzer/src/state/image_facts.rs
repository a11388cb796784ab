//! What images say of functions, and what devices allow: the limits that rules explain.

use cutape_format::{Call, FileRange};
use cutape_image::{CodeKind, Function, Uses, runs_on};
use cutape_model::ObjectId;
use cutape_registry::{Kind, is_default_stream};

use super::State;
use super::data::{Attributes, Data, ImageBytes, Own};
use crate::context::TraceContext;

/// Longer images are not parsed before a rule asks for them.
const SHORT_IMAGE: u64 = 1 << 20;

impl State {
    /// What the image of a function or kernel says. Where the image has several entries that the
    /// driver may have chosen, all must say the same.
    pub(crate) fn image_fact<T: PartialEq>(
        &self,
        id: ObjectId,
        thread: u32,
        context: &dyn TraceContext,
        fact: impl Fn(&Function) -> Option<T>,
    ) -> Option<T> {
        let name = self.objects.get(id)?.name.as_deref()?;
        let owner = self.image_of(id)?;
        let image = self.parsed(owner, context)?;
        let capability = self.capability(thread, context);
        let of_kind = |kind: CodeKind| {
            let entries = image.entries.iter().filter(move |entry| entry.code == kind);
            let fitting = entries.filter(move |entry| {
                let both = entry.target.zip(capability);
                both.is_none_or(|(target, device)| runs_on(target, kind, device))
            });
            let functions = fitting.filter_map(|entry| entry.content.as_ref().ok()?.function(name));
            functions.collect::<Vec<_>>()
        };
        // The driver compiles PTX only if no machine code fits.
        let mut candidates = of_kind(CodeKind::Elf);
        if candidates.is_empty() {
            candidates = of_kind(CodeKind::Ptx);
        }
        let (first, others) = candidates.split_first()?;
        let value = fact(first)?;
        let agree = others
            .iter()
            .all(|other| fact(other).as_ref() == Some(&value));
        agree.then_some(value)
    }

    /// The module or library that a function or kernel is of, if its image is known.
    fn image_of(&self, id: ObjectId) -> Option<ObjectId> {
        let mut ancestors = self.objects.ancestors(id);
        ancestors.find(|&ancestor| {
            let data = self.image_data(ancestor);
            data.is_some_and(|data| !matches!(data.source, ImageBytes::Unknown))
        })
    }

    /// What the code of a function or kernel uses of its launches. Only short images are looked at,
    /// because this is asked of each function that a program looks up.
    pub(super) fn uses_of(&self, id: ObjectId, context: &dyn TraceContext) -> Uses {
        let uses = || {
            let name = self.objects.get(id)?.name.as_deref()?;
            let owner = self.image_of(id)?;
            let data = self.image_data(owner)?;
            let is_short = data.is_short.get_or_init(|| {
                let length = match &data.source {
                    ImageBytes::Blob(blob) => blob.length,
                    ImageBytes::InFile(encoded) => {
                        FileRange::decode(encoded).map_or(0, |range| range.length)
                    }
                    ImageBytes::Bytes(bytes) => bytes.len() as u64,
                    ImageBytes::Unknown => u64::MAX,
                };
                length <= SHORT_IMAGE
            });
            let image = self.parsed(owner, context).filter(|_| *is_short)?;
            let contents = image
                .entries
                .iter()
                .filter_map(|entry| entry.content.as_ref().ok());
            let uses = contents.filter_map(|content| Some(content.function(name)?.uses));
            uses.reduce(|a, b| Uses {
                device_launch: a.device_launch || b.device_launch,
                grid_barrier: a.grid_barrier || b.grid_barrier,
                early_trigger: a.early_trigger || b.early_trigger,
                dependency_wait: a.dependency_wait || b.dependency_wait,
            })
        };
        uses().unwrap_or_default()
    }

    /// Whether neither a kernel nor a device function of its image waits for the grids before it;
    /// `None` if some of the code is not known.
    pub(crate) fn waits_for_nothing(
        &self,
        id: ObjectId,
        context: &dyn TraceContext,
    ) -> Option<bool> {
        let image = self.parsed(self.image_of(id)?, context)?;
        let name = self.objects.get(id)?.name.as_deref()?;
        let mut waits = false;
        for entry in &image.entries {
            let content = entry
                .content
                .as_ref()
                .ok()
                .filter(|c| c.shows_dependencies())?;
            // It may call device functions, but no other kernel.
            let mut reachable = content
                .functions
                .iter()
                .filter(|function| !function.is_entry || function.name == name);
            waits |= reachable.any(|function| function.uses.dependency_wait);
        }
        Some(!waits)
    }

    /// The parameters of a function or kernel: offset and size of each, as the driver told the
    /// recorder, or else as the image has them.
    pub(crate) fn parameters_of(
        &self,
        handle: u64,
        thread: u32,
        context: &dyn TraceContext,
    ) -> Option<Vec<(u32, u32)>> {
        if let Some(layout) = self.layout(handle) {
            return Some(layout.to_vec());
        }
        let id = self.objects.resolve(Kind::Function, handle).live()?;
        self.image_fact(id, thread, context, |function| {
            let parameters = function.parameters.iter();
            Some(parameters.map(|p| (p.offset, p.size)).collect())
        })
    }

    /// Attributes that calls set on a function or kernel, or asked for.
    fn attributes_of(&self, id: ObjectId) -> Option<&Attributes> {
        match &self.objects.get(id)?.data {
            Data::Other(Own::Attributes(attributes)) => Some(attributes),
            _ => None,
        }
    }

    /// The value of a function attribute that was set last, on the function or on its kernel.
    pub(crate) fn set_attribute_of(
        &self,
        id: ObjectId,
        attribute: i32,
        device: i32,
    ) -> Option<(i64, cutape_model::Site)> {
        let of = |id: ObjectId| {
            let set = &self.attributes_of(id)?.set;
            let value = set
                .get(&(attribute, -1))
                .or_else(|| set.get(&(attribute, device)));
            value.copied()
        };
        let kernel = || self.objects.get(id)?.parent;
        of(id).or_else(|| of(kernel()?))
    }

    /// The value of a function attribute that the program asked for last.
    pub(crate) fn queried_attribute_of(
        &self,
        id: ObjectId,
        attribute: i32,
        device: i32,
    ) -> Option<i64> {
        let of = |id: ObjectId| {
            let got = &self.attributes_of(id)?.got;
            let value = got
                .get(&(attribute, -1))
                .or_else(|| got.get(&(attribute, device)));
            value.copied()
        };
        let kernel = || self.objects.get(id)?.parent;
        of(id).or_else(|| of(kernel()?))
    }

    /// The device of a context.
    pub(crate) fn device_of(&self, context: ObjectId) -> Option<i32> {
        match &self.objects.get(context)?.data {
            Data::Context(context) => Some(context.device),
            _ => None,
        }
    }

    /// The context of a stream that the program created.
    pub(crate) fn stream_context(&self, stream: u64) -> Option<ObjectId> {
        if is_default_stream(stream) {
            return None;
        }
        let id = self.objects.live(Kind::Stream, stream)?;
        self.objects.get(id)?.context
    }

    /// The device that work in a stream runs on.
    pub(crate) fn device_for(&self, call: &Call<'_>, stream: Option<u64>) -> Option<i32> {
        let of_stream = stream.and_then(|stream| self.stream_context(stream));
        let current = || self.contexts.current(call.thread).object;
        self.device_of(of_stream.or_else(current)?)
    }
}
