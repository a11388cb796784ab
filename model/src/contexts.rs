//! The contexts that are current in each thread, and the primary contexts of the devices.

use rustc_hash::FxHashMap;

use crate::objects::ObjectId;
use crate::site::Site;

/// A context that is current in a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The driver's value; 0 if none is current.
    pub handle: u64,
    /// Its object, if it was seen.
    pub object: Option<ObjectId>,
}

/// How a context got onto a thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// The thread had none current.
    Set,
    /// It was created.
    Created,
    /// A call pushed it.
    Pushed(Site),
}

/// A context on the stack of a thread.
#[derive(Clone, Copy, Debug)]
struct Stacked {
    current: Current,
    entry: Entry,
}

/// Pushes of one place that are left on the stack of one thread.
#[derive(Clone, Copy, Debug)]
pub struct LeftPushes {
    /// The first push that is left.
    pub first: Site,
    /// How many are left.
    pub count: u64,
}

#[derive(Clone, Debug)]
struct Primary {
    context: ObjectId,
    retained: u32,
    /// The call that reset it, unless it was retained since.
    reset: Option<Site>,
    /// The first retain of each place of the program, and how many of its retains are left if the
    /// last one is released first.
    places: Vec<(Site, u32)>,
    /// The place that retained last, unless a release followed.
    last: Option<u64>,
}

/// Stacks of current contexts by thread, primary contexts by device (Context Management, Primary
/// Context Management).
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    stacks: Vec<Vec<Stacked>>,
    /// By thread: the pop that took its last context, which no call had pushed or created.
    surplus_pops: FxHashMap<u32, Site>,
    primaries: FxHashMap<i32, Primary>,
}

/// How many places that retain a context are told apart.
const PLACES: usize = 64;

impl Contexts {
    /// The context that is current in a thread.
    #[inline]
    pub fn current(&self, thread: u32) -> Current {
        let stack = self.stacks.get(thread as usize);
        let top = stack.and_then(|stack| stack.last());
        top.map(|top| top.current).unwrap_or_default()
    }

    /// The pop that took the last context of a thread, if no call had pushed or created it.
    pub fn surplus_pop(&self, thread: u32) -> Option<Site> {
        self.surplus_pops.get(&thread).copied()
    }

    /// The places of the program whose pushes were not popped, each with the stack that holds most
    /// of them.
    pub fn left_pushes(&self) -> Vec<LeftPushes> {
        let mut left: FxHashMap<u64, LeftPushes> = FxHashMap::default();
        for stack in &self.stacks {
            let mut here: FxHashMap<u64, LeftPushes> = FxHashMap::default();
            for stacked in stack {
                let Entry::Pushed(first) = stacked.entry else {
                    continue;
                };
                let known = here.entry(first.caller);
                known.or_insert(LeftPushes { first, count: 0 }).count += 1;
            }
            for (caller, pushes) in here {
                let most = left.entry(caller).or_insert(pushes);
                if most.count < pushes.count {
                    *most = pushes;
                }
            }
        }
        let mut left: Vec<LeftPushes> = left.into_values().collect();
        left.sort_by_key(|pushes| pushes.first.index);
        left
    }

    fn stack(&mut self, thread: u32) -> Option<&mut Vec<Stacked>> {
        let thread = thread as usize;
        if self.stacks.len() <= thread {
            self.stacks.resize_with(thread + 1, Vec::new);
        }
        self.stacks.get_mut(thread)
    }

    pub(crate) fn push(&mut self, thread: u32, current: Current, entry: Entry) {
        self.surplus_pops.remove(&thread);
        let Some(stack) = self.stack(thread) else {
            return;
        };
        stack.push(Stacked { current, entry });
    }

    /// The context on top goes; by a call that pops, or else by its end.
    pub(crate) fn pop(&mut self, thread: u32, by: Option<Site>) {
        let popped = self.stack(thread).and_then(Vec::pop);
        let is_surplus = popped.is_some_and(|popped| matches!(popped.entry, Entry::Set));
        if let Some(by) = by.filter(|_| is_surplus && self.current(thread).handle == 0) {
            self.surplus_pops.insert(thread, by);
        }
    }

    /// A call has shown which context is current in a thread.
    pub(crate) fn replace(&mut self, thread: u32, current: Current) {
        if current.handle == 0 {
            self.pop(thread, None);
            return;
        }
        match self.stack(thread).and_then(|stack| stack.last_mut()) {
            Some(top) => top.current = current,
            None => self.push(thread, current, Entry::Set),
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
        let entries = entries.map(|stacked| &mut stacked.current);
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

    /// For each device, the place that has retained its primary context most often: its first call
    /// and how many retains are left, at most as many as the context has.
    pub fn retains(&self) -> impl Iterator<Item = (ObjectId, Site, u32)> + '_ {
        self.primaries.values().filter_map(|primary| {
            let most = primary.places.iter().max_by_key(|(_, count)| *count)?;
            Some((primary.context, most.0, most.1.min(primary.retained)))
        })
    }

    pub(crate) fn retain(&mut self, device: i32, context: ObjectId, site: Site) {
        let first = || Primary {
            context,
            retained: 0,
            reset: None,
            places: Vec::new(),
            last: None,
        };
        let primary = self.primaries.entry(device).or_insert_with(first);
        if primary.context != context {
            *primary = first();
        }
        primary.retained += 1;
        primary.reset = None;
        primary.last = Some(site.caller);
        let is_full = primary.places.len() >= PLACES;
        let mut places = primary.places.iter_mut();
        match places.find(|(first, _)| first.caller == site.caller) {
            Some((_, count)) => *count += 1,
            None if is_full => {}
            None => primary.places.push((site, 1)),
        }
    }

    /// Notes a reset of a device's primary context, and returns the context.
    pub(crate) fn reset(&mut self, device: i32, site: Site) -> Option<ObjectId> {
        let primary = self.primaries.get_mut(&device)?;
        primary.reset = Some(site);
        Some(primary.context)
    }

    /// The call that reset a primary context which nothing has retained since.
    pub fn reset_of(&self, context: ObjectId) -> Option<Site> {
        let mut primaries = self.primaries.values();
        primaries.find(|primary| primary.context == context)?.reset
    }

    /// Returns the context if that was the last reference.
    pub(crate) fn release(&mut self, device: i32) -> Option<ObjectId> {
        let primary = self.primaries.get_mut(&device)?;
        primary.retained = primary.retained.saturating_sub(1);
        // Whose retain it takes back is not known: the last one's, else that of the place with most.
        let mut places = primary.places.iter_mut();
        let released = match primary.last.take() {
            Some(caller) => places.find(|(first, _)| first.caller == caller),
            None => places.max_by_key(|(_, count)| *count),
        };
        if let Some((_, count)) = released {
            *count = count.saturating_sub(1);
        }
        let last = primary.retained == 0;
        last.then(|| self.primaries.remove(&device))?
            .map(|primary| primary.context)
    }
}
