//! Which calls later ones may still need: those that created, changed or ended what is known, and
//! the last ones to write memory or to wait.

use rustc_hash::FxHashSet;

use super::builder::NeedsBuilder;
use super::last_changes::Changes;
use crate::objects::ObjectId;

impl NeedsBuilder {
    /// Forgets the needs of calls up to this one that neither chosen calls nor later ones need.
    pub(super) fn forget_unneeded(&mut self, index: u32) {
        let (objects, is_of_live) = (&self.state.objects, self.is_of_live);
        let is_known = |id: ObjectId| {
            let object = objects.get(id);
            object.is_some_and(|object| !is_of_live || object.end.is_none())
        };
        self.changed.retain(|&id, _| is_known(id));
        self.attached.retain(|&id, _| is_known(id));
        self.globals.retain(|&id, _| is_known(id));
        if is_of_live {
            // The memory of a cubin ends with its link state.
            let linking: FxHashSet<u32> = self.changed.values().flat_map(Changes::calls).collect();
            self.cubins.retain(|_, linked| linking.contains(linked));
        }
        let mut needed = self.nameable();
        let chosen = self.chosen.iter().flatten();
        needed.extend(chosen.filter(|&&call| call <= index));
        self.needs.retain(needed);
        let is_held = |call: u32| self.needs.holds(call);
        self.waits.retain(self.contents.all(), is_held);
        self.unreturned.retain(|_, calls| {
            calls.retain(|&call| is_held(call));
            !calls.is_empty()
        });
        if let Some(part) = &mut self.part {
            part.retain(is_held);
        }
    }

    /// The calls that a later call may need directly.
    fn nameable(&self) -> Vec<u32> {
        let mut calls: Vec<u32> = Vec::new();
        for (_, object) in self.state.objects.iter() {
            if self.is_of_live && object.end.is_some() {
                continue;
            }
            calls.push(object.created.index as u32);
            calls.extend(object.end.map(|end| end.site.index as u32));
        }
        calls.extend(self.state.coming().map(|created| created.index as u32));
        calls.extend(self.state.contexts.stacks.calls().map(|call| call as u32));
        calls.extend(self.initialised.iter().chain(&self.poisoned));
        calls.extend(self.changed.values().flat_map(Changes::calls));
        calls.extend(self.devices.values());
        calls.extend(self.retained.values().flatten());
        for capture in self.captures.values() {
            calls.push(capture.begun);
            calls.extend(&capture.members);
        }
        calls.extend(self.cubins.iter().map(|(_, &linked)| linked));
        calls.extend(self.tokens.values().chain(self.strings.values()));
        calls.extend(self.not_made.values());
        if !self.is_of_live {
            calls.extend(self.contents.all_writers().map(|writer| writer.call));
            calls.extend(self.waits.calls());
            calls.extend(&self.unwaited);
        }
        calls
    }
}
