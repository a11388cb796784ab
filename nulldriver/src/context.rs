//! Context Management: contexts, the stack of each thread, limits.

use std::collections::{HashMap, HashSet};

use cutape_driver::types::CUctxCreateParams;
use cutape_registry::Kind;

use crate::answer::{
    Answer, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED,
};
use crate::argument::{In, Out};
use crate::crash;
use crate::dispatch::{Entry, bind};
use crate::state::{State, check_device, lock, with_stack};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuCtxCreate", bind(create_with)),
    ("=cuCtxCreate", bind(create)),
    ("=cuCtxCreate_v2", bind(create)),
    ("=cuCtxCreate_v3", bind(create_with_affinity)),
    ("cuCtxDestroy", bind(destroy)),
    ("cuCtxAttach", bind(attach)),
    ("cuCtxDetach", bind(detach)),
    ("cuCtxPushCurrent", bind(push)),
    ("cuCtxPopCurrent", bind(pop)),
    ("cuCtxSetCurrent", bind(set_current)),
    ("cuCtxGetCurrent", bind(get_current)),
    ("=cuCtxGetDevice", bind(get_device)),
    ("=cuCtxGetDevice_v2", bind(get_device_of)),
    ("cuCtxGetFlags", bind(get_flags)),
    ("cuCtxSetFlags", bind(set_flags)),
    ("cuCtxGetId", bind(get_id)),
    ("=cuCtxSynchronize", bind(synchronize)),
    ("=cuCtxSynchronize_v2", bind(synchronize_of)),
    ("cuCtxSetLimit", bind(set_limit)),
    ("cuCtxGetLimit", bind(get_limit)),
    ("cuCtxGetCacheConfig", bind(get_cache_config)),
    ("cuCtxSetCacheConfig", bind(set_cache_config)),
    ("cuCtxGetSharedMemConfig", bind(get_shared_config)),
    ("cuCtxSetSharedMemConfig", bind(set_shared_config)),
    ("cuCtxGetApiVersion", bind(get_api_version)),
    (
        "cuCtxGetStreamPriorityRange",
        bind(get_stream_priority_range),
    ),
    ("cuCtxResetPersistingL2Cache", bind(reset_persisting_l2)),
    ("cuCtxEnablePeerAccess", bind(enable_peer_access)),
    ("cuCtxDisablePeerAccess", bind(disable_peer_access)),
];

/// Numerically highest and lowest priority of streams (least, greatest), as on an H200.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: i32,
    /// Never used again, unlike the handle.
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) is_primary: bool,
    /// `cuStreamGetId` of the legacy default stream; the per-thread ones follow from the thread.
    pub(crate) stream_id: u64,
    limits: HashMap<u32, u64>,
    /// Ids of the contexts whose memory it may use.
    peers: HashSet<u64>,
    cache_config: u32,
    shared_config: u32,
    api_version: u32,
}

impl Context {
    pub(crate) fn new(
        state: &mut State,
        device: i32,
        flags: u32,
        is_primary: bool,
        api_version: u32,
    ) -> Context {
        Context {
            device,
            id: state.new_id(),
            flags,
            is_primary,
            stream_id: state.new_id(),
            limits: HashMap::new(),
            peers: HashSet::new(),
            cache_config: 0,
            shared_config: 0,
            api_version,
        }
    }
}

/// Scheduling (one of three bits), mapped host memory, local memory, coredumps, synchronous memory operations.
pub(crate) fn check_flags(flags: u32) -> Answer {
    let scheduling = flags & 7;
    if flags & !0xff == 0 && matches!(scheduling, 0 | 1 | 2 | 4) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn make_context(context: Out<u64>, flags: u32, device: i32, version: u32) -> Answer {
    let mut state = lock();
    context.check()?;
    check_flags(flags)?;
    check_device(device)?;
    let handle = state.make(Kind::Context)?;
    let object = Context::new(&mut state, device, flags, false, version);
    let id = object.id;
    state.ended_contexts.remove(&handle);
    state.contexts.insert(handle, object);
    with_stack(|stack| stack.push((handle, id)));
    context.set(handle)
}

fn create(context: Out<u64>, flags: u32, device: i32) -> Answer {
    make_context(context, flags, device, 3020)
}

fn create_with_affinity(
    context: Out<u64>,
    affinity: In<u64>,
    count: i32,
    flags: u32,
    device: i32,
) -> Answer {
    // Execution affinity needs MPS.
    if count != 0 || !affinity.is_null() {
        return Err(NOT_SUPPORTED);
    }
    make_context(context, flags, device, 3020)
}

fn create_with(
    context: Out<u64>,
    parameters: In<CUctxCreateParams>,
    flags: u32,
    device: i32,
) -> Answer {
    if !parameters.is_null() {
        let given = parameters.get()?;
        if given.numExecAffinityParams != 0 || !given.cigParams.is_null() {
            return Err(NOT_SUPPORTED);
        }
    }
    make_context(context, flags, device, 3020)
}

fn destroy(context: u64) -> Answer {
    let mut state = lock();
    if context == 0 {
        return Err(INVALID_VALUE);
    }
    let object = state.contexts.get(&context).ok_or(INVALID_CONTEXT)?;
    if object.is_primary {
        // A primary context is given back with cuDevicePrimaryCtxRelease.
        return Err(INVALID_CONTEXT);
    }
    state.destroy_context(context);
    state.ended_contexts.insert(context);
    state.release(Kind::Context, context);
    // Popped where it was current to the calling thread; other threads keep the dead handle.
    with_stack(|stack| {
        if stack.last().is_some_and(|top| top.0 == context) {
            stack.pop();
        }
    });
    Ok(())
}

fn attach(context: Out<u64>, flags: u32) -> Answer {
    let state = lock();
    context.check()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    context.set(state.current()?)
}

fn detach(context: u64) -> Answer {
    let state = lock();
    // The count of attachments is gone since contexts became objects of the process; only a living one is accepted.
    if state.contexts.contains_key(&context) {
        Ok(())
    } else {
        Err(INVALID_CONTEXT)
    }
}

/// The id of a context that had ended when it was pushed.
const PUSHED_DEAD: u64 = u64::MAX;

fn push(context: u64) -> Answer {
    let state = lock();
    let id = match state.contexts.get(&context) {
        Some(context) => context.id,
        // The real driver takes a context that has been destroyed, and faults in the pop that follows (measured).
        None if state.ended_contexts.contains(&context) => PUSHED_DEAD,
        None => return Err(INVALID_CONTEXT),
    };
    with_stack(|stack| stack.push((context, id)));
    Ok(())
}

fn pop(context: Out<u64>) -> Answer {
    let (handle, id) = with_stack(Vec::pop).ok_or(INVALID_CONTEXT)?;
    if id == PUSHED_DEAD {
        crash::segmentation_fault();
    }
    context.set_if(handle);
    Ok(())
}

fn set_current(context: u64) -> Answer {
    let state = lock();
    if context == 0 {
        with_stack(Vec::pop);
        return Ok(());
    }
    let id = state.contexts.get(&context).ok_or(INVALID_CONTEXT)?.id;
    with_stack(|stack| {
        stack.pop();
        stack.push((context, id));
    });
    Ok(())
}

fn get_current(context: Out<u64>) -> Answer {
    context.set(with_stack(|stack| stack.last().map_or(0, |top| top.0)))
}

fn get_device(device: Out<i32>) -> Answer {
    let current = lock().current_device()?;
    device.set(current)
}

fn get_device_of(device: Out<i32>, context: u64) -> Answer {
    let of = lock().context_or_current(context)?.device;
    device.set(of)
}

fn get_flags(flags: Out<u32>) -> Answer {
    let value = lock().current_context()?.flags;
    flags.set(value)
}

fn set_flags(flags: u32) -> Answer {
    let mut state = lock();
    let context = state.current_context()?;
    check_flags(flags)?;
    context.flags = flags;
    Ok(())
}

fn get_id(context: u64, id: Out<u64>) -> Answer {
    let value = lock().context_or_current(context)?.id;
    id.set(value)
}

fn synchronize() -> Answer {
    lock().current().map(|_| ())
}

fn synchronize_of(context: u64) -> Answer {
    lock().context_or_current(context).map(|_| ())
}

/// What a limit is unless set, in bytes or calls; `None` for one that cannot be asked for.
fn default_limit(limit: u32) -> Option<u64> {
    match limit {
        0 => Some(1024),    // STACK_SIZE
        1 => Some(7 << 20), // PRINTF_FIFO_SIZE
        2 => Some(8 << 20), // MALLOC_HEAP_SIZE
        3 => Some(2),       // DEV_RUNTIME_SYNC_DEPTH
        4 => Some(2048),    // DEV_RUNTIME_PENDING_LAUNCH_COUNT
        5 => Some(64),      // MAX_L2_FETCH_GRANULARITY
        6 => Some(0),       // PERSISTING_L2_CACHE_SIZE
        8 => Some(0),       // CIG_ENABLED (measured: no error)
        _ => None,
    }
}

fn check_limit(limit: u32) -> Answer<u64> {
    let defined =
        cutape_registry::enumeration("CUlimit").and_then(|list| list.name_of(i64::from(limit)));
    match (default_limit(limit), defined) {
        (Some(value), _) => Ok(value),
        (None, Some(name)) if name != "CU_LIMIT_MAX" => Err(crate::answer::UNSUPPORTED_LIMIT),
        (None, _) => Err(INVALID_VALUE),
    }
}

fn set_limit(limit: u32, value: u64) -> Answer {
    let mut state = lock();
    let context = state.current_context()?;
    check_limit(limit)?;
    if limit == 8 {
        // What contexts for graphics are made with cannot be changed later; the code is an assumption.
        return Err(crate::answer::UNSUPPORTED_LIMIT);
    }
    let too_much = match limit {
        0 => value > 512 << 10,
        5 => value > 128,
        _ => false,
    };
    if too_much {
        return Err(INVALID_VALUE);
    }
    let rounded = if limit == 0 {
        value.next_multiple_of(16)
    } else {
        value
    };
    context.limits.insert(limit, rounded);
    Ok(())
}

fn get_limit(value: Out<usize>, limit: u32) -> Answer {
    let mut state = lock();
    let context = state.current_context()?;
    let default = check_limit(limit)?;
    value.set(context.limits.get(&limit).copied().unwrap_or(default) as usize)
}

fn get_cache_config(config: Out<u32>) -> Answer {
    let value = lock().current_context()?.cache_config;
    config.set(value)
}

fn set_cache_config(config: u32) -> Answer {
    let mut state = lock();
    let context = state.current_context()?;
    if config > 3 {
        return Err(INVALID_VALUE);
    }
    context.cache_config = config;
    Ok(())
}

fn get_shared_config(config: Out<u32>) -> Answer {
    let value = lock().current_context()?.shared_config;
    config.set(value)
}

fn set_shared_config(config: u32) -> Answer {
    let mut state = lock();
    let context = state.current_context()?;
    if config > 2 {
        return Err(INVALID_VALUE);
    }
    context.shared_config = config;
    Ok(())
}

fn get_api_version(context: u64, version: Out<u32>) -> Answer {
    let value = lock().context_or_current(context)?.api_version;
    version.set(value)
}

fn get_stream_priority_range(least: Out<i32>, greatest: Out<i32>) -> Answer {
    lock().current()?;
    least.set_if(PRIORITIES.0);
    greatest.set_if(PRIORITIES.1);
    Ok(())
}

fn reset_persisting_l2() -> Answer {
    lock().current().map(|_| ())
}

/// The device and the id of a context that is to be a peer of the current one.
fn peer_of(state: &State, peer: u64) -> Answer<(i32, u64)> {
    let current = state.current()?;
    let context = state.contexts.get(&peer).ok_or(INVALID_CONTEXT)?;
    if peer == current {
        return Err(INVALID_CONTEXT);
    }
    Ok((context.device, context.id))
}

/// The codes are the manual's (Peer Context Memory Access).
fn enable_peer_access(peer: u64, flags: u32) -> Answer {
    let mut state = lock();
    state.current()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let (device, id) = peer_of(&state, peer)?;
    let context = state.current_context()?;
    if device == context.device {
        return Err(PEER_ACCESS_UNSUPPORTED);
    }
    if context.peers.insert(id) {
        Ok(())
    } else {
        Err(PEER_ACCESS_ALREADY_ENABLED)
    }
}

fn disable_peer_access(peer: u64) -> Answer {
    let mut state = lock();
    let (_, id) = peer_of(&state, peer)?;
    if state.current_context()?.peers.remove(&id) {
        Ok(())
    } else {
        Err(PEER_ACCESS_NOT_ENABLED)
    }
}
