//! Page-locked memory that asynchronous copies read, with the bytes that it had when they were
//! enqueued.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::{Access, AccessEffect, ObjectId};
use cutape_registry::{Kind, Role};

use crate::context::TraceContext;
use crate::plan::Plan;
use crate::state::State;
use crate::state::pending::{Content, Source};

/// How many sources are remembered.
const SOURCES: usize = 64;

/// The page-locked source of a copy: its access and its content.
fn source_of<'a>(state: &'a State, plan: &Plan, call: &Call<'_>) -> Option<(&'a Access, Content)> {
    let mut params = plan.function.params.iter();
    let position = params.position(|param| matches!(param.role, Role::HostRead(_)))?;
    let address = call.argument(position);
    let mut accesses = state.ordering.current.iter();
    let access =
        accesses.find(|access| access.address == address && access.effect == AccessEffect::Read)?;
    let kind = state.objects.get(access.object)?.kind;
    matches!(kind, Kind::HostMemory | Kind::Registration).then_some(())?;
    Some((
        access,
        Content::of(call.snapshot(position, field::POINTEE)?.bytes)?,
    ))
}

impl State {
    /// An earlier copy whose source had other bytes than now when it was enqueued, which the host
    /// does not know to be complete.
    pub(crate) fn overwritten_source(
        &self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
    ) -> Option<(&Source, ObjectId)> {
        let (access, content) = source_of(self, plan, call)?;
        if self.may_be_written(access.object) {
            return None;
        }
        let mut sources = self.ordering.sources.iter();
        let source = sources.find(|source| {
            source.object == access.object
                && !self.order.is_done(source.stream.0, source.stream.1)
                && source.differs(access.span(), &content, context)
        })?;
        Some((source, access.object))
    }

    /// The first copy from that memory which the host does not know to be complete, if only the CPU
    /// can have changed its bytes.
    pub(crate) fn changed_source(&self, address: u64, length: u64) -> Option<&Source> {
        let mut sources = self.ordering.sources.iter();
        let source = sources.find(|source| {
            (source.address, source.length) == (address, length)
                && !self.order.is_done(source.stream.0, source.stream.1)
        })?;
        (!self.may_be_written(source.object)).then_some(source)
    }

    /// Whether the device may have written host memory.
    fn may_be_written(&self, object: ObjectId) -> bool {
        let known = self.ordering.accesses.of(object);
        known.iter().any(|other| other.effect != AccessEffect::Read)
    }

    /// A copy was enqueued: remembers its page-locked source.
    pub(super) fn note_source(&mut self, plan: &Plan, call: &Call<'_>, stream: (u32, u64)) {
        let order = &self.model.order;
        let pending = |source: &mut Source| !order.is_done(source.stream.0, source.stream.1);
        self.ordering.sources.retain_mut(pending);
        let Some((access, content)) = source_of(self, plan, call) else {
            return;
        };
        // What work in flight writes there may come before the copy, which then reads other bytes than
        // the recorder has.
        let mut known = self.ordering.accesses.of(access.object).iter();
        let is_written = known.any(|other| {
            other.effect != AccessEffect::Read
                && !self.model.order.is_done(other.stream.0, other.stream.1)
        });
        if is_written {
            return;
        }
        let source = Source {
            object: access.object,
            address: access.address,
            length: access.extent.content(),
            content,
            stream,
            site: access.site,
        };
        if self.ordering.sources.len() >= SOURCES {
            self.ordering.sources.remove(0);
        }
        self.ordering.sources.push(source);
    }

    /// The device or a function of the program may write memory of the host from now on.
    pub(crate) fn forget_sources(&mut self, written: Option<ObjectId>) {
        self.ordering
            .sources
            .retain(|source| written.is_some_and(|written| written != source.object));
    }
}
