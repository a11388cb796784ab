//! The contexts that are current in each thread, and the primary contexts of the devices.

use cutape_format::Call;
use cutape_registry::ContextOp;
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
    /// The call with this index created it.
    Created(u64),
    /// A call pushed it.
    Pushed(Site),
}

impl Entry {
    /// The call that created or pushed the context.
    fn pushed_by(self) -> Option<u64> {
        match self {
            Self::Set => None,
            Self::Created(index) => Some(index),
            Self::Pushed(site) => Some(site.index),
        }
    }
}

/// A context on the stack of a thread.
#[derive(Clone, Copy, Debug)]
struct Stacked {
    current: Current,
    entry: Entry,
    /// The call that made it current, or showed that it is.
    set_by: u64,
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

/// Stacks of current contexts by thread (Context Management).
#[derive(Clone, Debug, Default)]
pub struct ContextStacks {
    stacks: Vec<Vec<Stacked>>,
    /// By thread: the pop that took its last context, which no call had pushed or created.
    surplus_pops: FxHashMap<u32, Site>,
}

/// Stacks of current contexts by thread, primary contexts by device (Primary Context Management).
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    pub(crate) stacks: ContextStacks,
    primaries: FxHashMap<i32, Primary>,
}

/// How many places that retain a context are told apart.
const PLACES: usize = 64;

impl ContextStacks {
    #[inline]
    fn top(&self, thread: u32) -> Option<&Stacked> {
        self.stacks.get(thread as usize)?.last()
    }

    /// The context that is current in a thread.
    #[inline]
    pub fn current(&self, thread: u32) -> Current {
        self.top(thread).map(|top| top.current).unwrap_or_default()
    }

    /// The call that made the thread's context current, or showed that it is.
    pub(crate) fn set_by(&self, thread: u32) -> Option<u64> {
        self.top(thread).map(|top| top.set_by)
    }

    /// The call that pushed the uppermost entry of a thread's stack; `None` if a call set a context
    /// while the thread had none.
    pub(crate) fn pushed_by(&self, thread: u32) -> Option<u64> {
        self.top(thread)?.entry.pushed_by()
    }

    /// The calls that made contexts current, or pushed them, in any thread.
    pub(crate) fn calls(&self) -> impl Iterator<Item = u64> {
        let stacked = self.stacks.iter().flatten();
        stacked.flat_map(|stacked| {
            let pushed_by = stacked.entry.pushed_by();
            pushed_by.into_iter().chain([stacked.set_by])
        })
    }

    /// Applies a successful call of that function. Returns the handle of a context that it makes
    /// current, or shows to be.
    pub fn apply(
        &mut self,
        operation: ContextOp,
        function: &'static str,
        call: &Call<'_>,
    ) -> Option<u64> {
        let given = call.argument(0);
        let site = || Site::of(function, call);
        match operation {
            ContextOp::Create => {
                let created = call.out(0)?;
                self.push(call, created, Entry::Created(call.index));
                Some(created)
            }
            ContextOp::Push => {
                self.push(call, given, Entry::Pushed(site()));
                Some(given)
            }
            ContextOp::Pop => {
                self.pop(call.thread, Some(site()));
                None
            }
            ContextOp::Set => self.replace(call, given),
            // The driver's private tables change it, too.
            ContextOp::Current => {
                let shown = call.out(0)?;
                let is_news = self.current(call.thread).handle != shown;
                is_news.then(|| self.replace(call, shown))?
            }
            ContextOp::Destroy if self.current(call.thread).handle == given => {
                self.pop(call.thread, None);
                None
            }
            _ => None,
        }
    }

    /// What the current context of a thread is.
    pub(crate) fn name(&mut self, thread: u32, object: Option<ObjectId>) {
        let stack = self.stacks.get_mut(thread as usize);
        if let Some(top) = stack.and_then(|stack| stack.last_mut()) {
            top.current.object = object;
        }
    }

    /// The places of the program whose pushes were not popped, each with the stack that holds most
    /// of them.
    fn left_pushes(&self) -> Vec<LeftPushes> {
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

    fn push(&mut self, call: &Call<'_>, handle: u64, entry: Entry) {
        self.surplus_pops.remove(&call.thread);
        let current = Current {
            handle,
            object: None,
        };
        if let Some(stack) = self.stack(call.thread) {
            stack.push(Stacked {
                current,
                entry,
                set_by: call.index,
            });
        }
    }

    /// The context on top goes; by a call that pops, or else by its end.
    fn pop(&mut self, thread: u32, by: Option<Site>) {
        let popped = self.stack(thread).and_then(Vec::pop);
        let is_surplus = popped.is_some_and(|popped| matches!(popped.entry, Entry::Set));
        if let Some(by) = by.filter(|_| is_surplus && self.current(thread).handle == 0) {
            self.surplus_pops.insert(thread, by);
        }
    }

    /// A call has shown which context is current in a thread; returns its handle if there is one.
    fn replace(&mut self, call: &Call<'_>, handle: u64) -> Option<u64> {
        if handle == 0 {
            self.pop(call.thread, None);
            return None;
        }
        match self.stack(call.thread).and_then(|stack| stack.last_mut()) {
            Some(top) if top.current.handle == handle => {}
            Some(top) => {
                top.current.handle = handle;
                top.set_by = call.index;
            }
            None => self.push(call, handle, Entry::Set),
        }
        Some(handle)
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
}

impl Contexts {
    /// The context that is current in a thread.
    #[inline]
    pub fn current(&self, thread: u32) -> Current {
        self.stacks.current(thread)
    }

    /// The pop that took the last context of a thread, if no call had pushed or created it.
    pub fn surplus_pop(&self, thread: u32) -> Option<Site> {
        self.stacks.surplus_pops.get(&thread).copied()
    }

    /// The places of the program whose pushes were not popped, each with the stack that holds most
    /// of them.
    pub fn left_pushes(&self) -> Vec<LeftPushes> {
        self.stacks.left_pushes()
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
