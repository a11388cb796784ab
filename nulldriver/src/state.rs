//! What the driver knows: all objects of the process, behind one lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use cutape_registry::Kind;

use crate::address::Space;
use crate::answer::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_DEVICE, OUT_OF_MEMORY};
use crate::array::{Array, Mipmapped};
use crate::capture::Captures;
use crate::context::Context;
use crate::event::Event;
use crate::function::{Function, Kernel};
use crate::graph::Graphs;
use crate::green::Green;
use crate::handle::Handles;
use crate::hint::Advice;
use crate::library::Library;
use crate::link::{Link, Quarantine};
use crate::memory::Allocation;
use crate::module::Module;
use crate::pool::Pool;
use crate::primary::Primary;
use crate::settings;
use crate::stream::StreamState;
use crate::texture::{Surface, Texture};
use crate::texture_reference::Reference;
use crate::virtual_memory::{Handle, Mapping};

/// All objects; handles are the keys.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) contexts: HashMap<u64, Context>,
    /// Handles of contexts that `cuCtxDestroy` has ended.
    pub(crate) ended_contexts: HashSet<u64>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) libraries: HashMap<u64, Library>,
    pub(crate) kernels: HashMap<u64, Kernel>,
    pub(crate) links: HashMap<u64, Link>,
    pub(crate) quarantine: Quarantine,
    pub(crate) streams: HashMap<u64, StreamState>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) pools: HashMap<u64, Pool>,
    pub(crate) arrays: HashMap<u64, Array>,
    pub(crate) mipmapped: HashMap<u64, Mipmapped>,
    pub(crate) textures: HashMap<u64, Texture>,
    pub(crate) surfaces: HashMap<u64, Surface>,
    pub(crate) texture_references: HashMap<u64, Reference>,
    pub(crate) greens: HashMap<u64, Green>,
    /// Resource descriptors: how many multiprocessors.
    pub(crate) descriptors: HashMap<u64, u32>,
    /// Advice given to managed memory, by its address.
    pub(crate) advice: HashMap<u64, Advice>,
    pub(crate) space: Space,
    /// Linear memory that the driver placed, by address.
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Registered host memory: address to (bytes, flags, context).
    pub(crate) registrations: BTreeMap<u64, (u64, u32, u64)>,
    /// Virtual memory: what is mapped where.
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    /// Virtual memory handles.
    pub(crate) physical: HashMap<u64, Handle>,
    pub(crate) graphs: Graphs,
    pub(crate) captures: RefCell<Captures>,
    handles: Handles,
    next_id: u64,
}

// SAFETY: what keeps State from being Send are raw pointers inside copies of the program's structs (launch attributes,
// allocation properties); they are handed back as numbers and never followed.
unsafe impl Send for State {}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

/// The process that called `cuInit`; 0 before.
static INITIALISED_BY: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The context stack of the thread: (handle, id), the current one last. An id tells a recycled handle apart.
    static STACK: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// The state, locked. A panic of another call does not make it unusable.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether `cuInit` succeeded in this very process; a forked child is not initialised.
pub(crate) fn is_initialised() -> bool {
    let by = INITIALISED_BY.load(Ordering::Acquire);
    by != 0 && by == process()
}

/// Whether the process inherited an initialised driver from its parent, which makes it useless.
pub(crate) fn is_forked_child() -> bool {
    let by = INITIALISED_BY.load(Ordering::Acquire);
    by != 0 && by != process()
}

/// Notes that `cuInit` succeeded; what is mapped now is found out here.
pub(crate) fn initialise() {
    drop(lock());
    INITIALISED_BY.store(process(), Ordering::Release);
}

fn process() -> i32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

/// Works on the calling thread's context stack.
pub(crate) fn with_stack<T>(work: impl FnOnce(&mut Vec<(u64, u64)>) -> T) -> T {
    STACK.with(|stack| work(&mut stack.borrow_mut()))
}

impl State {
    fn new() -> State {
        State {
            contexts: HashMap::new(),
            ended_contexts: HashSet::new(),
            primaries: (0..settings::get().devices)
                .map(|_| Primary::default())
                .collect(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            libraries: HashMap::new(),
            kernels: HashMap::new(),
            links: HashMap::new(),
            quarantine: Quarantine::default(),
            streams: HashMap::new(),
            events: HashMap::new(),
            pools: HashMap::new(),
            arrays: HashMap::new(),
            mipmapped: HashMap::new(),
            textures: HashMap::new(),
            surfaces: HashMap::new(),
            texture_references: HashMap::new(),
            greens: HashMap::new(),
            descriptors: HashMap::new(),
            advice: HashMap::new(),
            space: Space::new(),
            allocations: BTreeMap::new(),
            registrations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: HashMap::new(),
            graphs: Graphs::default(),
            captures: RefCell::default(),
            handles: Handles::new(),
            next_id: 1,
        }
    }

    /// A handle for a new object of that kind.
    pub(crate) fn make(&mut self, kind: Kind) -> Answer<u64> {
        self.handles.make(kind).ok_or(OUT_OF_MEMORY)
    }

    /// Takes the handle of a destroyed object back.
    pub(crate) fn release(&mut self, kind: Kind, handle: u64) {
        self.handles.release(kind, handle);
    }

    /// A number that no other object of the process has.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The calling thread's current context: `INVALID_CONTEXT` without one, `CONTEXT_IS_DESTROYED` for a dead one.
    pub(crate) fn current(&self) -> Answer<u64> {
        let (handle, id) = with_stack(|stack| stack.last().copied()).ok_or(INVALID_CONTEXT)?;
        match self.contexts.get(&handle) {
            Some(context) if context.id == id => Ok(handle),
            _ => Err(CONTEXT_IS_DESTROYED),
        }
    }

    /// The current context itself.
    pub(crate) fn current_context(&mut self) -> Answer<&mut Context> {
        let handle = self.current()?;
        self.contexts.get_mut(&handle).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// The context of a handle, the current one for NULL.
    pub(crate) fn context_or_current(&mut self, handle: u64) -> Answer<&mut Context> {
        if handle == 0 {
            return self.current_context();
        }
        self.contexts.get_mut(&handle).ok_or(INVALID_CONTEXT)
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

    /// Ends everything that lives in a context, then the context.
    pub(crate) fn destroy_context(&mut self, handle: u64) {
        let modules: Vec<u64> = self
            .modules
            .iter()
            .filter(|(_, module)| module.context == handle)
            .map(|(&key, _)| key)
            .collect();
        for module in modules {
            self.remove_module(module);
        }
        for library in self.libraries.values_mut() {
            library.modules.remove(&handle);
        }
        let streams: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.context == handle)
            .map(|(&key, _)| key)
            .collect();
        for stream in streams {
            self.streams.remove(&stream);
            self.stream_ended(stream);
            self.release(Kind::Stream, stream);
        }
        let events: Vec<u64> = self
            .events
            .iter()
            .filter(|(_, event)| event.context == handle)
            .map(|(&key, _)| key)
            .collect();
        for event in events {
            self.events.remove(&event);
            self.release(Kind::Event, event);
        }
        let memory: Vec<u64> = self
            .allocations
            .iter()
            .filter(|(_, one)| one.context == handle)
            .map(|(&key, _)| key)
            .collect();
        for address in memory {
            self.remove_allocation(address);
        }
        let arrays: Vec<u64> = self
            .arrays
            .iter()
            .filter(|(_, array)| array.context == handle)
            .map(|(&key, _)| key)
            .collect();
        for array in arrays {
            self.remove_array(array);
        }
        self.remove_textures(handle);
        self.mipmapped.retain(|_, levels| levels.context != handle);
        self.registrations
            .retain(|_, registration| registration.2 != handle);
        self.contexts.remove(&handle);
    }
}

/// Checks a device ordinal, which is what `CUdevice` is here and in the real driver.
pub(crate) fn check_device(device: i32) -> Answer {
    if (0..settings::get().devices).contains(&device) {
        Ok(())
    } else {
        Err(INVALID_DEVICE)
    }
}
