//! One of the processes, after the calls so far.

use cutape_format::layout::field;
use cutape_format::{Call, Note};
use cutape_model::{ObjectId, Scope, TraceState, function_of};
use cutape_registry::{Family, Function, Kind, Role};

use super::recording::ProcessEnd;
use crate::call_site::{self, name_of};
use crate::context::TraceContext;
use crate::decode::Names;
use crate::finding::{CallSite, ObjectHistory, RecordedProcess};
use crate::layouts::{Layouts, pointers};

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    name: RecordedProcess,
    /// `rank 3`, or the name of its trace.
    pub(super) label: String,
    pub(super) trace: TraceState,
    /// Enter of its last call.
    pub(super) last_ticks: u64,
    /// Index of its last call.
    pub(super) last_call: Option<u64>,
    /// How it ended.
    pub(super) end: ProcessEnd,
    /// By the number of the signature; `None` before the first call.
    functions: Vec<Option<Option<Uses>>>,
    layouts: Layouts,
}

/// The parameters of a function that matter here.
#[derive(Clone, Debug)]
pub(super) struct Uses {
    pub(super) function: &'static Function,
    /// Positions of events that it uses and does not destroy.
    pub(super) events: Box<[usize]>,
    /// Positions of device addresses that it reads or writes.
    pub(super) addresses: Box<[usize]>,
    /// Position of the function or kernel that it launches.
    launched: Option<usize>,
}

impl Uses {
    fn of(function: &'static Function) -> Self {
        let positions = |is: fn(Role) -> bool| {
            let params = function.params.iter().enumerate();
            let positions = params.filter(|(_, param)| is(param.role));
            positions.map(|(position, _)| position).collect()
        };
        Self {
            function,
            events: positions(|role| role == Role::Use(Kind::Event)),
            addresses: positions(|role| matches!(role, Role::DeviceRead(_) | Role::DeviceWrite(_))),
            launched: match function.family {
                Family::Launch(_) => {
                    let mut roles = function.params.iter().map(|param| param.role);
                    roles.position(|role| role == Role::Use(Kind::Function))
                }
                _ => None,
            },
        }
    }
}

impl Process {
    pub(super) fn new(name: RecordedProcess, end: ProcessEnd) -> Self {
        Self {
            label: name.label(),
            name,
            trace: TraceState::new(Scope::Work),
            last_ticks: 0,
            last_call: None,
            end,
            functions: Vec::new(),
            layouts: Layouts::default(),
        }
    }

    /// The process before its first call.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.name.clone(), self.end)
    }

    /// Takes note of a call before it changes anything.
    pub(super) fn begin(&mut self, call: &Call<'_>) {
        self.last_ticks = call.ticks;
        self.last_call = Some(call.index);
        let id = usize::from(call.signature.id);
        if self.functions.len() <= id {
            self.functions.resize_with(id + 1, || None);
        }
        if let Some(known) = self.functions.get_mut(id) {
            known.get_or_insert_with(|| function_of(call.signature).map(Uses::of));
        }
        for note in call.notes() {
            if let Note::Layout(handle, layout) = note {
                self.layouts.note(handle, layout);
            }
        }
    }

    /// The objects that a call uses, as far as its arguments and the pointers among the parameters
    /// of its kernel say.
    pub(super) fn used(&self, uses: &Uses, call: &Call<'_>) -> Vec<ObjectId> {
        let state = &self.trace.state;
        let mut found = Vec::new();
        for position in &uses.events {
            found.extend(state.objects.live(Kind::Event, call.argument(*position)));
        }
        for position in &uses.addresses {
            found.extend(state.memory_at(call.argument(*position)));
        }
        let launched = uses.launched.map(|position| call.argument(position));
        if let Some(layout) = launched.and_then(|handle| self.layouts.of(handle)) {
            let pieces = call.snapshots();
            let pieces = pieces.filter(|piece| piece.field == field::KERNEL_PARAMETERS);
            for bytes in pieces.filter_map(|piece| piece.bytes.inline()) {
                // Whether a word of a struct is a pointer is not known.
                let pointers = pointers(layout, bytes).filter(|pointer| pointer.member.is_none());
                found.extend(pointers.filter_map(|pointer| state.memory_at(pointer.address)));
            }
        }
        found
    }

    /// The parameters of the function of a call that has begun.
    pub(super) fn uses(&self, call: &Call<'_>) -> Option<&Uses> {
        let known = self.functions.get(usize::from(call.signature.id))?;
        known.as_ref()?.as_ref()
    }

    /// The object's name, with the process: `event#2 0x55d0 of rank 0`.
    pub(super) fn label_of(&self, id: ObjectId) -> String {
        call_site::label(&self.trace.state.objects, id)
    }

    pub(super) fn site(&self, context: &dyn TraceContext, call: &Call<'_>) -> CallSite {
        CallSite {
            process: Some(self.name.clone()),
            ..call_site::call_site(context, call, self, 0)
        }
    }

    pub(super) fn history(
        &self,
        context: &dyn TraceContext,
        id: ObjectId,
    ) -> Option<ObjectHistory> {
        let history = call_site::history(&self.trace.state.objects, context, id)?;
        Some(ObjectHistory {
            process: Some(self.name.clone()),
            ..history
        })
    }
}

impl Names for Process {
    fn handle(&self, kind: Kind, handle: u64) -> Option<String> {
        name_of(&self.trace.state.objects, kind, handle)
    }

    /// A finding about memory names it in its message.
    fn place(&self, _address: u64) -> Option<String> {
        None
    }
}
