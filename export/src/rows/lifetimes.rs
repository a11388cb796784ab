//! The objects of a trace: one row for each life, and the memory that blocks take meanwhile.

use cutape_format::TraceClock;
use cutape_model::{Changes, Data, MemoryKind, Object, ObjectId, State};
use cutape_registry::Kind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::images::Images;
use super::reference::{CallRef, ObjectRef};
use super::row::{Ending, MemoryRow, ObjectRow};
use super::sink::Sink;

/// The objects whose rows are still to come.
#[derive(Debug, Default)]
pub(super) struct Lifetimes {
    /// The newest object of each handle, from its creation until its row.
    by_handle: FxHashMap<(Kind, u64), ObjectId>,
    /// What a graph allocates at its launches, which is no allocated memory.
    of_graphs: FxHashSet<ObjectId>,
    /// When contexts ended, for what ended with them unnoticed: ticks by call index.
    ended_ticks: FxHashMap<u64, u64>,
    /// By kind: live bytes and blocks.
    live: [(u64, u64); MemoryKind::ALL.len()],
}

/// The name of an object in rows.
pub(super) fn object_ref<D>(object: &Object<D>) -> ObjectRef {
    ObjectRef {
        kind: object.kind,
        generation: object.generation,
    }
}

impl Lifetimes {
    /// Takes what a call changed; `captures` if a stream captured when it was called.
    pub(super) fn changed<S: Sink>(
        &mut self,
        changes: &Changes,
        (state, images): (&State<()>, &mut Images),
        (clock, call, captures): (TraceClock, CallRef, bool),
        sink: &mut S,
    ) -> Result<(), S::Error> {
        for &id in &changes.superseded {
            let ended = (Ending::HandleReused, call);
            self.end(id, ended, (state, images), clock, sink)?;
        }
        for &id in &changes.created {
            let Some(object) = state.objects.get(id) else {
                continue;
            };
            // One that ended with its context is in no list of changes.
            let key = (object.kind, object.handle);
            if let Some(old) = self.by_handle.insert(key, id) {
                self.finish_old(old, (state, images), clock, sink)?;
            }
            let kind = MemoryKind::of(object);
            if captures && kind == Some(MemoryKind::Pool) {
                self.of_graphs.insert(id);
            }
            if let Some(row) = self.memory(id, object, call, true) {
                sink.memory(&row)?;
            }
        }
        for &id in &changes.ended {
            let end = state.objects.end_of(id).and_then(|end| end.by);
            let ending = match end {
                None => Ending::Destroyed,
                Some(_) => Ending::WithOwner,
            };
            self.end(id, (ending, call), (state, images), clock, sink)?;
        }
        Ok(())
    }

    /// The row of an object that ended in a call.
    fn end<S: Sink>(
        &mut self,
        id: ObjectId,
        (ending, call): (Ending, CallRef),
        (state, images): (&State<()>, &mut Images),
        clock: TraceClock,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(object) = state.objects.get(id) else {
            return Ok(());
        };
        if let Some(row) = self.memory(id, object, call, false) {
            sink.memory(&row)?;
        }
        if object.kind == Kind::Context {
            self.ended_ticks.insert(call.index, call.enter_ticks);
        }
        if S::WANTS.ended_objects {
            let ended = (ending, Some(call.index), Some(call.enter_ticks));
            sink.object(&self.row(id, object, ended, (state, images), clock))?;
        }
        self.forget(id, object, images);
        Ok(())
    }

    /// The row of an object whose handle belongs to a newer one, if it is still to come.
    fn finish_old<S: Sink>(
        &mut self,
        id: ObjectId,
        (state, images): (&State<()>, &mut Images),
        clock: TraceClock,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        if S::WANTS.ended_objects
            && let Some(object) = state.objects.get(id)
        {
            let ended = self.ended_with_context(id, state);
            sink.object(&self.row(id, object, ended, (state, images), clock))?;
        }
        images.forget(id);
        self.of_graphs.remove(&id);
        Ok(())
    }

    /// How an object ended that is in no list of changes.
    fn ended_with_context(
        &self,
        id: ObjectId,
        state: &State<()>,
    ) -> (Ending, Option<u64>, Option<u64>) {
        match state.objects.end_of(id) {
            Some(end) => {
                let ticks = self.ended_ticks.get(&end.site.index).copied();
                (Ending::WithOwner, Some(end.site.index), ticks)
            }
            None => (Ending::Alive, None, None),
        }
    }

    /// The rows of all objects that are left.
    pub(super) fn finish<S: Sink>(
        &mut self,
        (state, images): (&State<()>, &Images),
        clock: TraceClock,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let mut left: Vec<_> = state
            .objects
            .iter()
            .filter(|(id, object)| {
                let is_known = self.by_handle.get(&(object.kind, object.handle)) == Some(id);
                // A handle that a call only returned is in no list of changes.
                is_known || (object.end.is_none() && state.objects.end_of(*id).is_none())
            })
            .collect();
        left.sort_by_key(|(_, object)| (object.created.index, object.kind, object.generation));
        for (id, object) in left {
            let ended = self.ended_with_context(id, state);
            sink.object(&self.row(id, object, ended, (state, images), clock))?;
        }
        Ok(())
    }

    fn row<'o>(
        &self,
        id: ObjectId,
        object: &'o Object<Data<()>>,
        (ending, ended_call, ended_ticks): (Ending, Option<u64>, Option<u64>),
        (state, images): (&State<()>, &'o Images),
        clock: TraceClock,
    ) -> ObjectRow<'o> {
        let name_of = |id: Option<ObjectId>| state.objects.get(id?).map(object_ref);
        ObjectRow {
            object: object_ref(object),
            handle: object.handle,
            origin: object.origin,
            created_call: object.created.index,
            created_by: object.created.function,
            created_ticks: object.created_ticks,
            ended_call,
            ended_ticks,
            ending,
            parent: name_of(object.parent),
            context: name_of(object.context),
            bytes: Some(object.size).filter(|bytes| *bytes > 0),
            memory: MemoryKind::of(object).filter(|_| !self.of_graphs.contains(&id)),
            name: object.name.as_deref(),
            image: images.of(id),
            clock,
        }
    }

    /// Counts a block in or out.
    fn memory(
        &mut self,
        id: ObjectId,
        object: &Object<Data<()>>,
        call: CallRef,
        is_new: bool,
    ) -> Option<MemoryRow> {
        let kind = MemoryKind::of(object).filter(|_| !self.of_graphs.contains(&id))?;
        let (bytes, blocks) = self.live.get_mut(kind as usize)?;
        (*bytes, *blocks) = match is_new {
            true => (bytes.saturating_add(object.size), *blocks + 1),
            false => (bytes.saturating_sub(object.size), blocks.saturating_sub(1)),
        };
        Some(MemoryRow {
            call,
            kind,
            object: object_ref(object),
            bytes: object.size,
            is_free: !is_new,
            live_bytes: *bytes,
            live_blocks: *blocks,
        })
    }

    fn forget(&mut self, id: ObjectId, object: &Object<Data<()>>, images: &mut Images) {
        let key = (object.kind, object.handle);
        if self.by_handle.get(&key) == Some(&id) {
            self.by_handle.remove(&key);
        }
        images.forget(id);
        self.of_graphs.remove(&id);
    }
}
