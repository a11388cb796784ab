//! The context stack of each thread, and the end of a context.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, needs_drop};

use crate::call::answer::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, require};
use crate::object::context::Context;
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

    /// The calling thread's current context: `INVALID_CONTEXT` without one, `CONTEXT_IS_DESTROYED`
    /// for one that was destroyed.
    pub(crate) fn current(&self) -> Answer<u64> {
        let (handle, id) = with_stack(|stack| stack.last().copied()).ok_or(INVALID_CONTEXT)?;
        let is_alive = self
            .contexts
            .get(&handle)
            .is_some_and(|context| context.id == id);
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
            handle => self.contexts.find_mut(handle),
        }
    }

    /// Checks that a context is alive; NULL means the current one.
    pub(crate) fn check_context(&self, handle: u64) -> Answer {
        match handle {
            0 => self.current().map(|_| ()),
            handle => require(self.contexts.contains_key(&handle), INVALID_CONTEXT),
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
        }
        for stream in keys_where(&*self.streams, |stream| stream.context == handle) {
            self.streams.remove(stream);
            self.end_stream(stream);
        }
        for event in keys_where(&*self.events, |event| event.context == handle) {
            self.events.remove(event);
        }
        for address in keys_where(&self.allocations, |memory| memory.context == handle) {
            self.remove_allocation(address);
        }
        for array in keys_where(&*self.arrays, |array| array.context == handle) {
            self.arrays.remove(array);
        }
        self.textures.retain(|_, texture| texture.context != handle);
        self.surfaces.retain(|_, surface| surface.context != handle);
        (self.texture_references).retain(|_, reference| reference.context != handle);
        self.mipmapped.retain(|_, levels| levels.context != handle);
        (self.registrations).retain(|_, memory| memory.context != handle);
        // A device's primary context keeps its handle for the next one.
        match self.contexts.get(&handle) {
            Some(context) if context.is_primary => HashMap::remove(&mut self.contexts, &handle),
            _ => self.contexts.remove(handle),
        };
    }
}
