//! All objects of the process, behind one lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cutape_registry::Kind;

use crate::call::answer::{Answer, OUT_OF_MEMORY};
use crate::call::argument::{Argument, Call};
use crate::object::address_space::Space;
use crate::object::array::{Array, MipmappedArray};
use crate::object::capture::Captures;
use crate::object::context::{Context, GreenContext, Primary};
use crate::object::function::{Function, Kernel};
use crate::object::graph::Graphs;
use crate::object::handle::Handles;
use crate::object::link::{Link, Quarantine};
use crate::object::memory::{Advice, Allocation, Mapping, MemoryHandle, Pool, Registration};
use crate::object::module::{Library, Module};
use crate::object::stream::{Event, StreamObject};
use crate::object::texture::{Surface, Texture, TextureReference};
use crate::settings;

/// All objects; handles are the keys.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) contexts: HashMap<u64, Context>,
    /// Handles of contexts that `cuCtxDestroy` has destroyed.
    pub(crate) destroyed_contexts: HashSet<u64>,
    /// By device.
    pub(crate) primaries: Vec<Primary>,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) libraries: HashMap<u64, Library>,
    pub(crate) kernels: HashMap<u64, Kernel>,
    pub(crate) links: HashMap<u64, Link>,
    pub(crate) quarantine: Quarantine,
    pub(crate) streams: HashMap<u64, StreamObject>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) pools: HashMap<u64, Pool>,
    pub(crate) arrays: HashMap<u64, Array>,
    pub(crate) mipmapped: HashMap<u64, MipmappedArray>,
    pub(crate) textures: HashMap<u64, Texture>,
    pub(crate) surfaces: HashMap<u64, Surface>,
    pub(crate) texture_references: HashMap<u64, TextureReference>,
    pub(crate) green_contexts: HashMap<u64, GreenContext>,
    /// Resource descriptors: number of multiprocessors.
    pub(crate) descriptors: HashMap<u64, u32>,
    /// Advice given to managed memory, by its address.
    pub(crate) advice: HashMap<u64, Advice>,
    pub(crate) space: Space,
    /// Linear memory that the driver placed, by address.
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Registered host memory, by address.
    pub(crate) registrations: BTreeMap<u64, Registration>,
    /// Virtual memory, by address.
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) memory_handles: HashMap<u64, MemoryHandle>,
    pub(crate) graphs: Graphs,
    pub(crate) captures: RefCell<Captures>,
    handles: Handles,
    last_id: u64,
}

// SAFETY: State is not Send because of raw pointers inside copies of the program's structs (launch
// attributes, allocation properties); they are only returned, never followed.
unsafe impl Send for State {}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    Mutex::new(State {
        primaries: vec![Primary::default(); settings::get().devices as usize],
        last_id: 1,
        ..State::default()
    })
});

/// The process that called `cuInit`; 0 before.
static INITIALISED_BY: AtomicI32 = AtomicI32::new(0);

/// The state, locked.
pub(crate) type Locked = MutexGuard<'static, State>;

impl Argument for Locked {
    const WORDS: usize = 0;

    fn read(_call: &Call, _index: usize) -> Answer<Self> {
        Ok(lock())
    }
}

/// The state, locked by a call that needs a current context.
pub(crate) struct Current {
    state: Locked,
    /// The current context.
    pub(crate) context: u64,
}

impl Argument for Current {
    const WORDS: usize = 0;

    fn read(_call: &Call, _index: usize) -> Answer<Self> {
        let state = lock();
        let context = state.current()?;
        Ok(Current { state, context })
    }
}

impl Deref for Current {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Current {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// The state, locked. A panic in another call does not make it unusable.
pub(crate) fn lock() -> Locked {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `cuInit` succeeded in this very process; a forked child is not initialised.
pub(crate) fn is_initialised() -> bool {
    INITIALISED_BY.load(Ordering::Acquire) == process()
}

/// Whether the process inherited an initialised driver from its parent, which makes it unusable.
pub(crate) fn is_forked_child() -> bool {
    let process_of_init = INITIALISED_BY.load(Ordering::Acquire);
    process_of_init != 0 && process_of_init != process()
}

/// Notes that `cuInit` succeeds. The first call makes the state, which reads the memory map.
pub(crate) fn initialise() {
    drop(lock());
    INITIALISED_BY.store(process(), Ordering::Release);
}

fn process() -> i32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

impl State {
    /// A handle for a new object of that kind.
    pub(crate) fn create_handle(&mut self, kind: Kind) -> Answer<u64> {
        self.handles.create(kind).ok_or(OUT_OF_MEMORY)
    }

    /// Takes back the handle of a destroyed object.
    pub(crate) fn release(&mut self, kind: Kind, handle: u64) {
        self.handles.release(kind, handle);
    }

    /// A number that no other object of the process has.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
