//! Learns of launches: what they use, what they record, what they overwrite.

use cutape_format::Call;
use cutape_image::Uses;
use cutape_model::{Data, ObjectId, Site};
use cutape_registry::{
    EventOp, Family, FunctionOp, GraphOp, Kind, LaunchAttribute, LaunchOp, is_default_stream,
};

use super::State;
use super::data::{Attributes, Own};
use super::launches::{EventTrigger, LastKernel, LaunchEvent, StreamName};
use crate::context::TraceContext;
use crate::launch::{LaunchAttributes, pointee, u32_at, u64_at};
use crate::layouts::parameters_of_eight;
use crate::plan::Plan;

/// How many streams' last kernels are remembered.
const STREAMS: usize = 4096;

impl State {
    /// A launch has succeeded.
    #[inline]
    pub(super) fn launched(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        if !self.launches.old_state.is_empty() {
            self.overwrite_old_state(plan, call, site);
        }
        if let Some(config) = plan.config {
            let attributes = LaunchAttributes::of(call, config);
            if attributes.address != 0 {
                self.attributes_passed(plan, call, attributes, site);
            }
        }
    }

    #[cold]
    fn overwrite_old_state(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) = plan.function.family
        else {
            return;
        };
        let handle = plan.launched.map(|position| call.argument(position));
        let id = handle.and_then(|handle| self.objects.live(Kind::Function, handle));
        if let Some(overwritten) = id.and_then(|id| self.launches.old_state.get_mut(&id)) {
            *overwritten = Some(site);
        }
    }

    /// Remembers the events that a launch records by attribute.
    fn attributes_passed(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        attributes: LaunchAttributes<'_>,
        site: Site,
    ) {
        for (attribute, trigger) in [
            (
                LaunchAttribute::ProgrammaticEvent,
                EventTrigger::Programmatic,
            ),
            (LaunchAttribute::CompletionEvent, EventTrigger::Begun),
        ] {
            let event = attributes
                .value(attribute)
                .and_then(|value| u64_at(value, 0));
            let Some(id) = event.and_then(|event| self.objects.live(Kind::Event, event)) else {
                continue;
            };
            let stream = plan.config_stream(call);
            let event = LaunchEvent {
                trigger,
                site,
                device: self.device_for(call, stream),
                priority: self.priority_of(stream.unwrap_or(0)),
            };
            self.launches.events.insert(id, event);
            let object = self.model.objects.get_mut(id);
            if let Some(Data::Event(data)) = object.map(|object| &mut object.data) {
                data.unobserved = true;
            }
        }
    }

    /// The priority of a stream; 0, the default, unless it was created with another.
    pub(crate) fn priority_of(&self, stream: u64) -> i32 {
        let id = self.objects.live(Kind::Stream, stream);
        match id
            .and_then(|id| self.objects.get(id))
            .map(|object| &object.data)
        {
            Some(Data::Stream(stream)) => stream.priority,
            _ => 0,
        }
    }

    fn stream_name(&self, plan: &Plan, call: &Call<'_>) -> Option<StreamName> {
        let handle = plan.stream(call)?;
        let current = self.contexts.current(call.thread).handle;
        Some((
            handle,
            if is_default_stream(handle) {
                current
            } else {
                0
            },
        ))
    }

    /// Remembers the last kernel of a stream, while it matters.
    #[inline]
    pub(super) fn note_kernel(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        if self.launches.has_early_triggers {
            self.note_last_kernel(plan, call, site);
        }
    }

    #[cold]
    fn note_last_kernel(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let Some(stream) = self.stream_name(plan, call) else {
            return;
        };
        let handle = plan.launched.map(|position| call.argument(position));
        let function =
            handle.and_then(|handle| self.objects.resolve(Kind::Function, handle).live());
        let Some(function) = function else {
            self.launches.last_kernels.remove(&stream);
            return;
        };
        if self.launches.last_kernels.len() >= STREAMS {
            self.launches.last_kernels.clear();
        }
        let kernel = LastKernel {
            function,
            site,
            memory: self.parameter_memory(plan, call),
        };
        self.launches.last_kernels.insert(stream, kernel);
    }

    /// The last work of a stream, if it is a kernel that lets the next one start early.
    fn early_kernel(&self, plan: &Plan, call: &Call<'_>) -> Option<&LastKernel> {
        let stream = self.stream_name(plan, call)?;
        let kernel = self.launches.last_kernels.get(&stream)?;
        let uses = self.launches.uses.get(&kernel.function)?;
        uses.early_trigger.then_some(kernel)
    }

    /// The kernel before a launch with programmatic stream serialization, if it lets the next one
    /// start early, and memory that both get.
    pub(crate) fn overlapped_kernel(
        &self,
        plan: &Plan,
        call: &Call<'_>,
    ) -> Option<(&LastKernel, ObjectId)> {
        let attributes = LaunchAttributes::of(call, plan.config?);
        attributes
            .number(LaunchAttribute::ProgrammaticSerialization)
            .filter(|&allowed| allowed != 0)?;
        let before = self.early_kernel(plan, call)?;
        let memory = self.parameter_memory(plan, call);
        let shared = memory
            .into_iter()
            .find(|memory| before.memory.contains(memory))?;
        Some((before, shared))
    }

    /// The memory that the parameters of a launch point to.
    pub(crate) fn parameter_memory(&self, plan: &Plan, call: &Call<'_>) -> Vec<ObjectId> {
        let Some(layout) = plan.launched.and_then(|at| self.layout(call.argument(at))) else {
            return Vec::new();
        };
        let bytes = plan.parameters(call).unwrap_or_default();
        parameters_of_eight(layout, bytes)
            .filter_map(|(_, address)| self.memory_at(address))
            .collect()
    }

    /// A call succeeded that tells rules something about launches.
    pub(super) fn learn_of_launches(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        site: Site,
    ) {
        match plan.function.family {
            Family::Function(FunctionOp::Find { output, .. })
            | Family::Kernel(FunctionOp::Find { output, .. })
            | Family::Function(FunctionOp::OfKernel { output, .. }) => {
                let handle = call.out(output.into()).unwrap_or(0);
                let id = self.objects.resolve(Kind::Function, handle).live();
                if let Some(id) = id {
                    let uses = self.uses_of(id, context);
                    if uses != Uses::default() {
                        self.launches.has_early_triggers |= uses.early_trigger;
                        self.launches.uses.insert(id, uses);
                    }
                }
            }
            Family::Function(FunctionOp::GetAttribute) => {
                let handle = plan.handle_of(call, Kind::Function);
                let id = handle.and_then(|handle| self.objects.live(Kind::Function, handle));
                self.attribute_queried(plan, call, id, -1);
            }
            Family::Kernel(FunctionOp::GetAttribute) => {
                let handle = plan.handle_of(call, Kind::Kernel);
                let id = handle.and_then(|handle| self.objects.live(Kind::Kernel, handle));
                let device = plan.at("dev").map_or(-1, |at| call.argument(at) as i32);
                self.attribute_queried(plan, call, id, device);
            }
            Family::Function(FunctionOp::ParameterInfo)
            | Family::Kernel(FunctionOp::ParameterInfo) => {
                let index = plan.at("paramIndex").map_or(0, |at| call.argument(at));
                let asked = (call.argument(0), index);
                self.thread_mut(call.thread).parameter_asked = Some(asked);
            }
            Family::Function(FunctionOp::SetLaunchState) => {
                let handle = plan.handle_of(call, Kind::Function);
                let id = handle.and_then(|handle| self.objects.live(Kind::Function, handle));
                if let Some(id) = id {
                    self.launches.old_state.insert(id, None);
                }
            }
            Family::Event(EventOp::Record) if !self.launches.events.is_empty() => {
                let handle = plan.handle_of(call, Kind::Event);
                let id = handle.and_then(|handle| self.objects.live(Kind::Event, handle));
                if let Some(id) = id {
                    self.launches.events.remove(&id);
                }
            }
            Family::Graph(GraphOp::SetKernelAttribute { attribute, value }) => {
                let updatable = LaunchAttribute::DeviceUpdatableNode as u64;
                let value = pointee(call, value.into()).and_then(|value| u32_at(value, 0));
                let handle = plan.handle_of(call, Kind::GraphNode);
                let id = handle.and_then(|handle| self.objects.live(Kind::GraphNode, handle));
                if let Some(id) = id
                    && call.argument(attribute.into()) == updatable
                    && value == Some(1)
                {
                    self.launches.updatable.entry(id).or_insert(site);
                }
            }
            _ => {}
        }
    }

    fn attribute_queried(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        id: Option<ObjectId>,
        device: i32,
    ) {
        let attribute = plan.at("attrib").map(|at| call.argument(at) as i32);
        let value = plan.at("pi").and_then(|at| call.out(at));
        if let (Some(id), Some(attribute), Some(value)) = (id, attribute, value)
            && let Some(attributes) = self.attributes_mut(id)
        {
            attributes
                .got
                .insert((attribute, device), i64::from(value as i32));
        }
    }

    /// The attributes that are remembered of a function or kernel.
    pub(super) fn attributes_mut(&mut self, id: ObjectId) -> Option<&mut Attributes> {
        let object = self.model.objects.get_mut(id)?;
        if !matches!(object.data, Data::Other(Own::Attributes(_))) {
            object.data = Data::Other(Own::Attributes(Box::default()));
        }
        match &mut object.data {
            Data::Other(Own::Attributes(attributes)) => Some(attributes),
            _ => None,
        }
    }

    /// Remembers that a copy or a memset has written a variable.
    pub(super) fn note_written(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let target = plan.written_address;
        let target = target.filter(|_| self.objects.has_had(Kind::Global));
        if let Some(id) = target.and_then(|at| self.memory_at(call.argument(at)))
            && self
                .objects
                .get(id)
                .is_some_and(|object| object.kind == Kind::Global)
        {
            self.launches.written.insert(id, site);
        }
    }
}
