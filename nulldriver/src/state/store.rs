//! All objects of the process, behind one lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cutape_play::CallId;

use crate::call::answer::{Answer, CUresult, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE};
use crate::call::argument::{Argument, Call};
use crate::object::address_space::Space;
use crate::object::array::{Array, MipmappedArray};
use crate::object::capture::Captures;
use crate::object::context::{Context, GreenContext, Primary, ResourceDescriptor, StoredValue};
use crate::object::function::{Function, Kernel};
use crate::object::graph::{Exec, Graph, Node, UserObject};
use crate::object::link::{Link, Quarantine};
use crate::object::memory::{
    Advice, Allocation, Import, Mapping, MemoryHandle, Pool, Registration,
};
use crate::object::module::{Library, Module};
use crate::object::queue::Queue;
use crate::object::stream::{Event, StreamObject};
use crate::object::table::{Object, Table};
use crate::object::texture::{Surface, Texture, TextureReference};
use crate::object::work::HostFunction;
use crate::settings;

macro_rules! missing {
    ($($code:ident: $($type:ty)*;)*) => {
        $($(impl Object for $type {
            const MISSING: CUresult = $code;
        })*)*
    };
}

missing! {
    INVALID_CONTEXT: Context;
    INVALID_HANDLE: Array Event Function GreenContext Kernel Library Link MipmappedArray Module
        StreamObject;
    INVALID_VALUE: Exec Graph MemoryHandle Node Pool ResourceDescriptor Surface Texture
        TextureReference UserObject;
}

/// What a task of the queue does when it runs.
pub(crate) enum Action {
    /// Changes memory.
    Run(Box<dyn FnOnce(&mut State) + Send>),
    /// Calls a function of the program, without the lock; for a call that is played.
    Host(HostFunction, Option<CallId>),
    /// Completes when the condition holds.
    Until(Box<dyn Fn(&State) -> bool + Send>),
    /// Only has a place in the order.
    Nothing,
    /// Gives up memory or an object that earlier work may use. The program cannot notice when.
    Retire(Box<dyn FnOnce(&mut State) + Send>),
}

/// All objects.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) contexts: Table<Context>,
    /// Handles of contexts that `cuCtxDestroy` has destroyed.
    pub(crate) destroyed_contexts: HashSet<u64>,
    /// By device.
    pub(crate) primaries: Vec<Primary>,
    /// Context-local storage, by context and key.
    pub(crate) context_storage: BTreeMap<(u64, u64), StoredValue>,
    /// What has a destructor of the storage of contexts that have ended, by context and key.
    pub(crate) ended_storage: Vec<((u64, u64), StoredValue)>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) libraries: Table<Library>,
    pub(crate) kernels: Table<Kernel>,
    pub(crate) links: Table<Link>,
    pub(crate) quarantine: Quarantine,
    pub(crate) streams: Table<StreamObject>,
    pub(crate) events: Table<Event>,
    pub(crate) pools: Table<Pool>,
    pub(crate) arrays: Table<Array>,
    pub(crate) mipmapped: Table<MipmappedArray>,
    pub(crate) textures: Table<Texture>,
    pub(crate) surfaces: Table<Surface>,
    pub(crate) texture_references: Table<TextureReference>,
    pub(crate) green_contexts: Table<GreenContext>,
    pub(crate) descriptors: Table<ResourceDescriptor>,
    /// Advice given to managed memory, by its address.
    pub(crate) advice: HashMap<u64, Advice>,
    pub(crate) space: Space,
    /// Linear memory that the driver placed, by address.
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Registered host memory, by address.
    pub(crate) registrations: BTreeMap<u64, Registration>,
    /// Virtual memory, by address.
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    /// Memory of other processes, by address.
    pub(crate) imported: BTreeMap<u64, Import>,
    pub(crate) memory_handles: Table<MemoryHandle>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) nodes: Table<Node>,
    pub(crate) execs: Table<Exec>,
    pub(crate) user_objects: Table<UserObject>,
    /// Destructors of ended user objects with their arguments; `run_destructors` takes them.
    pub(crate) destructors: Vec<(u64, u64)>,
    /// By handle of a condition: the default value, if one is assigned at each launch.
    pub(crate) conditions: HashMap<u64, Option<u32>>,
    /// Memory of allocation nodes while it is not allocated.
    pub(crate) inactive: BTreeMap<u64, Allocation>,
    /// Memory of graphs that a launch in progress has not freed yet.
    pub(crate) in_launches: Vec<u64>,
    /// The addresses of all memory of allocation nodes.
    pub(crate) graph_addresses: HashSet<u64>,
    pub(crate) captures: RefCell<Captures>,
    /// Work that is not complete.
    pub(crate) queue: Queue<Action>,
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
    crate::object::table::prepare();
    INITIALISED_BY.store(process(), Ordering::Release);
}

fn process() -> i32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

impl State {
    /// A number that no other object of the process has.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
