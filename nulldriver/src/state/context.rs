//! The context stack of each thread, and the end of a context.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, needs_drop};

use crate::call::answer::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, require};
use crate::object::context::{Context, StoredValue};
use crate::settings;
use crate::state::store::State;
use crate::state::teardown;

/// A thread's contexts: (handle, id), the current one last. The id tells whether the handle was
/// reused.
type Stack = Vec<(u64, u64)>;

thread_local! {
    /// The context stack of the thread. Never dropped: exit handlers run after the destructors of
    /// thread-local values, and still find the current context. A thread that ends with a current
    /// context leaves its stack allocated.
    static STACK: RefCell<ManuallyDrop<Stack>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

const _: () = assert!(!needs_drop::<RefCell<ManuallyDrop<Stack>>>());

/// In a context stack, the id of a context that was destroyed before it was pushed.
pub(crate) const PUSHED_DESTROYED: u64 = u64::MAX;
/// The id of a primary context that did not exist when it was pushed.
const PRIMARY_WITHOUT_CONTEXT: u64 = 0;

/// Works on the calling thread's context stack.
pub(crate) fn with_stack<T>(work: impl FnOnce(&mut Stack) -> T) -> T {
    STACK.with(|stack| {
        let mut stack = stack.borrow_mut();
        let result = work(&mut stack);
        if stack.is_empty() {
            stack.shrink_to_fit();
        } else {
            teardown::watch_thread();
        }
        result
    })
}

/// Registers what runs at the end of the process, and of threads with contexts.
pub(crate) fn register_teardown() {
    teardown::register(forget_stack);
}

extern "C" fn forget_stack(_value: *mut c_void) {
    with_stack(Vec::clear);
}

/// The keys of the objects that the condition holds for.
fn keys_where<'a, T: 'a>(
    objects: impl IntoIterator<Item = (&'a u64, &'a T)>,
    condition: impl Fn(&T) -> bool,
) -> Vec<u64> {
    let chosen = objects.into_iter().filter(|(_, object)| condition(object));
    chosen.map(|(&key, _)| key).collect()
}

impl State {
    /// A new context without a handle.
    pub(crate) fn new_context(&mut self, device: i32, flags: u32, is_primary: bool) -> Context {
        Context {
            device,
            flags,
            is_primary,
            id: self.new_id(),
            stream_id: self.new_id(),
            ..Context::default()
        }
    }

    /// The handle of a device's primary context, whether it exists now or not.
    pub(crate) fn primary_handle(&mut self, device: i32) -> Answer<u64> {
        let primary = &mut self.primaries[device as usize];
        if let Some(handle) = primary.handle {
            return Ok(handle);
        }
        let handle = self.contexts.new_handle()?;
        primary.handle = Some(handle);
        Ok(handle)
    }

    /// Whether this is the handle of a primary context, which need not exist now.
    fn is_primary(&self, handle: u64) -> bool {
        let mut primaries = self.primaries.iter();
        primaries.any(|primary| primary.handle == Some(handle))
    }

    /// The context of a handle: `CONTEXT_IS_DESTROYED` for a primary context that does not exist
    /// now (assumed, from the description of that code).
    pub(crate) fn context(&self, handle: u64) -> Answer<&Context> {
        match self.contexts.get(&handle) {
            Some(context) => Ok(context),
            None if self.is_primary(handle) => Err(CONTEXT_IS_DESTROYED),
            None => Err(INVALID_CONTEXT),
        }
    }

    /// The id of the context of a handle that is made current. A primary context can be current
    /// before it exists; the runtime does that (seen in its recordings; driver 580, H200,
    /// 2026-11-23).
    pub(crate) fn id_to_push(&self, handle: u64) -> Answer<u64> {
        match self.context(handle) {
            Err(CONTEXT_IS_DESTROYED) => Ok(PRIMARY_WITHOUT_CONTEXT),
            context => context.map(|context| context.id),
        }
    }

    /// The calling thread's current context: `INVALID_CONTEXT` without one, `CONTEXT_IS_DESTROYED`
    /// for one that was destroyed.
    pub(crate) fn current(&self) -> Answer<u64> {
        let (handle, id) = with_stack(|stack| stack.last().copied()).ok_or(INVALID_CONTEXT)?;
        // What was current before a reset of the primary context is current again when the context
        // is retained again (lupinemachines/lupine, issue 844: driver and RTX 4090).
        let context = self.contexts.get(&handle);
        let is_alive = context.is_some_and(|context| context.is_primary || context.id == id);
        require(is_alive, CONTEXT_IS_DESTROYED)?;
        Ok(handle)
    }

    /// The current context itself.
    pub(crate) fn current_context(&mut self) -> Answer<&mut Context> {
        let handle = self.current()?;
        self.contexts.get_mut(&handle).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// The context of a handle, the current one for NULL.
    pub(crate) fn context_or_current(&mut self, handle: u64) -> Answer<&mut Context> {
        match handle {
            0 => self.current_context(),
            handle => {
                self.context(handle)?;
                self.contexts.find_mut(handle)
            }
        }
    }

    /// Checks that a context is alive; NULL means the current one.
    pub(crate) fn check_context(&self, handle: u64) -> Answer {
        match handle {
            0 => self.current().map(|_| ()),
            handle => self.context(handle).map(|_| ()),
        }
    }

    /// The device of the current context.
    pub(crate) fn current_device(&self) -> Answer<i32> {
        let handle = self.current()?;
        Ok(self.contexts[&handle].device)
    }

    /// The compute capability of the current context's device; of the first one without a context.
    pub(crate) fn capability(&self) -> (u16, u16) {
        settings::get().capability(self.current_device().unwrap_or(0))
    }

    /// Destroys everything that lives in a context, then the context.
    pub(crate) fn destroy_context(&mut self, handle: u64) {
        for module in keys_where(&*self.modules, |module| module.context == handle) {
            self.remove_module(module);
        }
        for library in self.libraries.values_mut() {
            library.modules.remove(&handle);
            library.launched_in.remove(&handle);
        }
        for stream in keys_where(&*self.streams, |stream| stream.context == handle) {
            self.streams.remove(stream);
            self.end_stream(stream);
            self.queue.forget_stream(stream);
        }
        for event in keys_where(&*self.events, |event| event.context == handle) {
            self.events.remove(event);
            self.note_captured_event(event, None);
        }
        for address in keys_where(&self.allocations, |memory| memory.context == handle) {
            self.remove_allocation(address);
        }
        for array in keys_where(&*self.arrays, |array| array.context == handle) {
            self.remove_array(array);
        }
        self.textures.retain(|_, texture| texture.context != handle);
        self.surfaces.retain(|_, surface| surface.context != handle);
        (self.texture_references).retain(|_, reference| reference.context != handle);
        self.mipmapped.retain(|_, levels| levels.context != handle);
        (self.registrations).retain(|_, memory| memory.context != handle);
        let storage = std::mem::take(&mut self.context_storage);
        let is_of_it = |entry: &((u64, u64), StoredValue)| entry.0.0 == handle;
        let (ended, kept) = storage.into_iter().partition::<Vec<_>, _>(is_of_it);
        self.context_storage = kept.into_iter().collect();
        let with_destructor = ended.into_iter().filter(|entry| entry.1.destructor != 0);
        self.ended_storage.extend(with_destructor);
        // A device's primary context keeps its handle for the next one.
        match self.contexts.get(&handle) {
            Some(context) if context.is_primary => HashMap::remove(&mut self.contexts, &handle),
            _ => self.contexts.remove(handle),
        };
    }
}
