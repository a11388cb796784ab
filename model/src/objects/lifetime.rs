//! What belongs to what, how objects end, and when an ended one is forgotten.

use cutape_registry::Kind;

use super::object::{End, Object, ObjectId};
use super::table::{Objects, Retention};
use crate::site::Site;

impl<D> Objects<D> {
    /// How it ended: itself, with its parent, or with its context.
    pub fn end_of(&self, id: ObjectId) -> Option<End> {
        let object = self.get(id)?;
        if object.end.is_some() {
            return object.end;
        }
        // A library's modules and functions end with the context that they were asked for in.
        let context = object.context.filter(|&context| context != id)?;
        let end = self.get(context)?.end?;
        Some(End {
            site: end.site,
            by: Some(context),
        })
    }

    /// The object whose destruction ended this one, often itself.
    pub fn root_of_end(&self, id: ObjectId) -> Option<ObjectId> {
        Some(self.end_of(id)?.by.unwrap_or(id))
    }

    /// What the object belongs to, the nearest first.
    pub fn ancestors(&self, id: ObjectId) -> impl Iterator<Item = ObjectId> {
        // A parent may have been forgotten and its slot used again, but no chain is that long.
        const LONGEST: usize = 16;
        let parent = |&id: &ObjectId| self.get(id)?.parent;
        std::iter::successors(parent(&id), parent).take(LONGEST)
    }

    fn in_slot(&mut self, slot: Option<u32>) -> Option<&mut Object<D>> {
        self.slots.get_mut(slot? as usize)?.object.as_mut()
    }

    /// Puts `child` at the head of its parent's list.
    pub(super) fn link(&mut self, child: ObjectId, parent: Option<ObjectId>) {
        let Some(parent) = parent.and_then(|parent| self.get_mut(parent)) else {
            return;
        };
        let next = parent.first_child.replace(child.slot);
        if let Some(sibling) = self.in_slot(next) {
            sibling.previous = Some(child.slot);
        }
        if let Some(object) = self.get_mut(child) {
            object.next = next;
        }
    }

    /// Takes an object out of its parent's list.
    pub(super) fn unlink(&mut self, id: ObjectId) {
        let Some(object) = self.get_mut(id) else {
            return;
        };
        let (next, previous) = (object.next.take(), object.previous.take());
        let parent = object.parent;
        if let Some(sibling) = self.in_slot(next) {
            sibling.previous = previous;
        }
        if let Some(sibling) = self.in_slot(previous) {
            sibling.next = next;
        } else if let Some(parent) = parent.and_then(|parent| self.get_mut(parent))
            && parent.first_child == Some(id.slot)
        {
            parent.first_child = next;
        }
    }

    /// The live objects that belong to it directly, the newest first.
    pub fn children(&self, id: ObjectId) -> impl Iterator<Item = ObjectId> {
        let first = self.get(id).and_then(|object| object.first_child);
        let next = |&slot: &u32| self.slots.get(slot as usize)?.object.as_ref()?.next;
        std::iter::successors(first, next).map(|slot| self.id_of(slot))
    }

    /// The object that a destroying call entered at `ticks` means; none if that is an older object
    /// of the handle, which ended when the call that created the newer one returned.
    pub fn meant_by_destroy(&self, id: ObjectId, ticks: u64) -> Option<ObjectId> {
        let object = self.get(id)?;
        // Calls are applied in the order of entry; the destroying one came before the creating one
        // returned.
        (ticks >= object.created_ticks || object.superseded.is_none()).then_some(id)
    }

    /// Takes back the last of several calls that returned the same live handle; false if there was
    /// only one.
    pub(crate) fn close_last_opening(&mut self, id: ObjectId) -> bool {
        let earlier = self.get(id).and_then(|object| object.superseded);
        let Some(earlier) = earlier else { return false };
        let first = self.get(earlier).and_then(|object| object.superseded);
        if let Some(object) = self.get_mut(id) {
            object.superseded = first;
        }
        true
    }

    /// An object has ended: the one that has its handle afterwards, if its creating call was in
    /// flight.
    pub(crate) fn give_handle_back(&mut self, ended: ObjectId) -> Option<ObjectId> {
        let object = self.get_mut(ended)?;
        let later = object.later.take()?;
        let key = (object.kind, object.handle);
        object.earlier = None;
        if self.by_handle.get(&key) != Some(&ended) || self.end_of(later).is_some() {
            return None;
        }
        if let Some(object) = self.get_mut(later) {
            object.earlier = Some(ended);
        }
        self.by_handle.insert(key, later);
        self.changed(key.0);
        Some(later)
    }

    /// Ends an object and all that belongs to it. Returns every object that ended, itself first.
    pub fn end(&mut self, id: ObjectId, site: Site) -> Vec<ObjectId> {
        if self.get(id).is_none_or(|object| object.end.is_some()) {
            return Vec::new();
        }
        self.unlink(id);
        self.end_tree(id, site, None)
    }

    /// Ends all that belongs to an object, but not the object. Returns every object that ended.
    pub fn end_children(&mut self, id: ObjectId, site: Site) -> Vec<ObjectId> {
        let mut ended = Vec::new();
        let children: Vec<_> = self.children(id).collect();
        for child in children {
            self.unlink(child);
            ended.extend(self.end_tree(child, site, Some(id)));
        }
        ended
    }

    pub(super) fn end_tree(
        &mut self,
        top: ObjectId,
        site: Site,
        by: Option<ObjectId>,
    ) -> Vec<ObjectId> {
        let mut ended = vec![top];
        let mut next = 0;
        while let Some(&id) = ended.get(next) {
            ended.extend(self.children(id));
            let by = if next == 0 { by } else { by.or(Some(top)) };
            next += 1;
            let Some(object) = self.get_mut(id) else {
                continue;
            };
            object.end = Some(End { site, by });
            (object.first_child, object.next, object.previous) = (None, None, None);
            let kind = object.kind;
            self.ended.insert(kind);
            self.changed(kind);
        }
        if let Retention::Recent(limit) = self.retention {
            for &id in &ended {
                self.bury(id, limit);
            }
        }
        ended
    }

    /// Puts an ended object among those of its kind and forgets the oldest beyond the limit.
    fn bury(&mut self, id: ObjectId, limit: usize) {
        let Some(kind) = self.get(id).map(|object| object.kind) else {
            return;
        };
        let tombstones = self.tombstones.of_mut(kind);
        tombstones.push_back(id);
        if tombstones.len() > limit
            && let Some(oldest) = tombstones.pop_front()
        {
            self.forget(oldest);
        }
    }

    pub(super) fn forget(&mut self, id: ObjectId) {
        let Some(object) = self.get(id) else { return };
        let key = (object.kind, object.handle);
        if self.by_handle.get(&key) == Some(&id) {
            self.by_handle.remove(&key);
            self.changed(key.0);
        }
        // It is still in its parent's list if it ended with its context.
        self.unlink(id);
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            slot.object = None;
            slot.serial = slot.serial.wrapping_add(1);
            self.free.push(id.slot);
        }
    }

    /// A call succeeded that may have created an object of this kind whose handle was not recorded.
    pub fn note_unobserved(&mut self, kind: Kind, index: u64) {
        *self.unobserved.of_mut(kind) = Some(index);
    }

    /// True if the driver may have given the handle of an ended object out again without our seeing
    /// it.
    pub fn may_be_reused(&self, id: ObjectId) -> bool {
        let (Some(object), Some(end)) = (self.get(id), self.end_of(id)) else {
            return true;
        };
        self.unobserved
            .of(object.kind)
            .is_some_and(|index| index > end.site.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Lookup, NewObject, Origin};

    const LIMIT: usize = 4096;
    const SITE: Site = Site {
        index: 0,
        function: "f",
        thread: 0,
        caller: 0,
        stack: 0,
        result: Some(0),
    };

    fn new(kind: Kind, handle: u64, parent: Option<ObjectId>) -> NewObject {
        NewObject {
            kind,
            handle,
            origin: Origin::Created,
            created: SITE,
            created_ticks: 0,
            parent,
            context: None,
            name: None,
        }
    }

    #[test]
    fn memory_is_bounded_by_live_objects() {
        for (retention, first, slots) in [
            (Retention::Recent(LIMIT), 0, 2 * LIMIT + 8),
            (Retention::PerHandle, 1, 2 * 20_000 + 8),
        ] {
            let mut objects = Objects::new(retention);
            let context = objects.create(new(Kind::Context, 1, None), ()).0;
            for round in 0..20_000 {
                let module = objects
                    .create(new(Kind::Module, 100 + round, Some(context)), ())
                    .0;
                let function = objects
                    .create(new(Kind::Function, 100 + round, Some(module)), ())
                    .0;
                assert_eq!(objects.end(module, SITE).len(), 2);
                assert_eq!(objects.root_of_end(function), Some(module));
            }
            assert!(objects.slots.len() <= slots, "{}", objects.slots.len());
            let known = objects.find(Kind::Module, 100).known();
            assert_eq!(known.iter().count(), first);
            let last = objects.find(Kind::Module, 20_099);
            assert!(matches!(last, Lookup::Ended(_)));
            assert_eq!(objects.children(context).count(), 0);
        }
    }

    #[test]
    fn of_overlapping_calls_the_last_to_return_has_the_handle_last() {
        let mut objects = Objects::new(Retention::PerHandle);
        let create = |objects: &mut Objects<()>, returned| {
            let created_ticks = returned;
            let kind = Kind::Stream;
            objects.create(
                NewObject {
                    created_ticks,
                    ..new(kind, 7, None)
                },
                (),
            )
        };
        for round in 0..50 {
            let start = 100 * round;
            let (slow, _) = create(&mut objects, start + 50);
            let (fast, ended) = create(&mut objects, start + 20);
            assert_eq!((ended, objects.end_of(slow).is_none()), (vec![], true));
            assert_eq!(objects.live(Kind::Stream, 7), Some(fast));
            assert_eq!(objects.meant_by_destroy(fast, start + 30), Some(fast));
            assert_eq!(objects.end(fast, SITE), [fast]);
            assert_eq!(objects.give_handle_back(fast), Some(slow));
            assert_eq!(objects.give_handle_back(fast), None);
            assert_eq!(objects.live(Kind::Stream, 7), Some(slow));
            assert_eq!(objects.end(slow, SITE), [slow]);
            assert_eq!(objects.give_handle_back(slow), None);
            assert!(matches!(objects.find(Kind::Stream, 7), Lookup::Ended(id) if id == slow));
        }
        assert!(objects.slots.len() <= 4, "{}", objects.slots.len());
        // Both end with their context.
        let context = objects.create(new(Kind::Context, 1, None), ()).0;
        let stream = |returned| NewObject {
            created_ticks: returned,
            ..new(Kind::Stream, 8, Some(context))
        };
        let slow = objects.create(stream(50), ()).0;
        let fast = objects.create(stream(20), ()).0;
        assert_eq!(objects.end(context, SITE), [context, fast, slow]);
        assert_eq!(objects.give_handle_back(fast), None);
    }

    #[test]
    fn an_object_of_a_reused_handle_supersedes_the_older_one() {
        let mut objects = Objects::new(Retention::PerHandle);
        let mut last: Option<ObjectId> = None;
        for round in 1..100 {
            let (module, superseded) = objects.create(new(Kind::Module, 7, None), ());
            let function = objects.create(new(Kind::Function, 7, Some(module)), ()).0;
            assert_eq!(superseded.first(), last.as_ref());
            assert_eq!(objects.get(module).unwrap().handle_use, round);
            assert_eq!(objects.live(Kind::Function, 7), Some(function));
            assert!(superseded.iter().all(|&id| objects.end_of(id).is_some()));
            last = Some(module);
        }
        assert!(objects.slots.len() <= 6, "{}", objects.slots.len());
    }

    #[test]
    fn siblings_end_in_any_order() {
        let mut objects = Objects::new(Retention::Recent(LIMIT));
        let context = objects.create(new(Kind::Context, 1, None), ()).0;
        let all: Vec<_> = (0..5)
            .map(|n| {
                objects
                    .create(new(Kind::Stream, 10 + n, Some(context)), ())
                    .0
            })
            .collect();
        for at in [2, 4, 0] {
            objects.end(all[at], SITE);
        }
        assert!(objects.children(context).eq([all[3], all[1]]));
        assert_eq!(objects.end(context, SITE).len(), 3);
        assert_eq!(objects.end(context, SITE).len(), 0);
    }

    #[test]
    fn a_kernel_stands_for_a_function() {
        let mut objects = Objects::new(Retention::PerHandle);
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Unknown);
        let kernel = objects.create(new(Kind::Kernel, 5, None), ()).0;
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Live(kernel));
        let function = objects.create(new(Kind::Function, 5, None), ()).0;
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Live(function));
        objects.end(function, SITE);
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Live(kernel));
        objects.end(kernel, SITE);
        assert_eq!(objects.resolve(Kind::Function, 5), Lookup::Ended(function));
        assert_eq!(objects.resolve(Kind::Kernel, 6), Lookup::Unknown);
    }
}
