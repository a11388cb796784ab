//! The contexts that are current in each thread, and the primary contexts of the devices.

use rustc_hash::FxHashMap;

use crate::objects::ObjectId;

/// A context that is current in a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The driver's value; 0 if none is current.
    pub handle: u64,
    /// Its object, if it was seen.
    pub object: Option<ObjectId>,
}

#[derive(Clone, Copy, Debug)]
struct Primary {
    context: ObjectId,
    retained: u32,
}

/// Stacks of current contexts by thread, primary contexts by device (Context Management, Primary
/// Context Management).
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    stacks: Vec<Vec<Current>>,
    primaries: FxHashMap<i32, Primary>,
}

impl Contexts {
    /// The context that is current in a thread.
    #[inline]
    pub fn current(&self, thread: u32) -> Current {
        let stack = self.stacks.get(thread as usize);
        let top = stack.and_then(|stack| stack.last());
        top.copied().unwrap_or_default()
    }

    fn stack(&mut self, thread: u32) -> Option<&mut Vec<Current>> {
        let thread = thread as usize;
        if self.stacks.len() <= thread {
            self.stacks.resize_with(thread + 1, Vec::new);
        }
        self.stacks.get_mut(thread)
    }

    pub(crate) fn push(&mut self, thread: u32, current: Current) {
        self.stack(thread)
            .into_iter()
            .for_each(|stack| stack.push(current));
    }

    pub(crate) fn pop(&mut self, thread: u32) {
        self.stack(thread).and_then(Vec::pop);
    }

    /// A call has shown which context is current in a thread.
    pub(crate) fn replace(&mut self, thread: u32, current: Current) {
        self.pop(thread);
        if current.handle != 0 {
            self.push(thread, current);
        }
    }

    /// A handle names this context from now on, also where it is current already and its object was
    /// unknown or `is_stale`.
    pub(crate) fn attach(
        &mut self,
        handle: u64,
        context: ObjectId,
        is_stale: impl Fn(ObjectId) -> bool,
    ) {
        let entries = self.stacks.iter_mut().flatten();
        for entry in entries.filter(|entry| entry.handle == handle) {
            if entry.object.is_none_or(&is_stale) {
                entry.object = Some(context);
            }
        }
    }

    /// True while the primary context of a device is retained, as far as was seen.
    pub fn is_retained(&self, device: i32) -> bool {
        self.primaries.contains_key(&device)
    }

    /// How often the primary context of a device is retained, as far as was seen.
    pub fn retained(&self, device: i32) -> u32 {
        self.primaries
            .get(&device)
            .map_or(0, |primary| primary.retained)
    }

    /// The primary context of a device, as far as was seen.
    pub fn primary(&self, device: i32) -> Option<ObjectId> {
        Some(self.primaries.get(&device)?.context)
    }

    /// The primary context of a device that one more release ends.
    pub fn last_retain(&self, device: i32) -> Option<ObjectId> {
        let primary = self.primaries.get(&device)?;
        (primary.retained <= 1).then_some(primary.context)
    }

    pub(crate) fn retain(&mut self, device: i32, context: ObjectId) {
        let first = Primary {
            context,
            retained: 0,
        };
        let primary = self.primaries.entry(device).or_insert(first);
        if primary.context != context {
            *primary = first;
        }
        primary.retained += 1;
    }

    /// Returns the context if that was the last reference.
    pub(crate) fn release(&mut self, device: i32) -> Option<ObjectId> {
        let primary = self.primaries.get_mut(&device)?;
        primary.retained = primary.retained.saturating_sub(1);
        let last = primary.retained == 0;
        last.then(|| self.primaries.remove(&device))?
            .map(|primary| primary.context)
    }
}
