//! Context Management: contexts, the stack of each thread, limits.

use cutape_driver::types::CUctxCreateParams;

use crate::call::answer::{
    Answer, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED, UNSUPPORTED_LIMIT, invalid_if, reject_if,
    require,
};
use crate::call::argument::{In, Out, OutRef};
use crate::call::entry::entries;
use crate::crash;
use crate::object::context::check_flags;
use crate::object::device::PRIORITIES;
use crate::object::device::check_device;
use crate::section::private_tables::context_storage::run_destructors;
use crate::settings;
use crate::state::{Current, Locked, PUSHED_DESTROYED, State, lock, with_stack};
use crate::work::schedule;

entries! {
    cuCtxCreate: create_with;
    [symbol] cuCtxCreate: create;
    [symbol] cuCtxCreate_v2: create;
    [symbol] cuCtxCreate_v3: create_with_affinity;
    cuCtxDestroy: destroy;
    cuCtxAttach: |context: OutRef<u64>, flags: u32| {
        invalid_if(flags != 0)?;
        context.set(lock().current()?)
    };
    // Attachments are no longer counted; the context must be alive.
    cuCtxDetach: |context: u64| require(lock().contexts.contains_key(&context), INVALID_CONTEXT);
    cuCtxPushCurrent: push;
    cuCtxPopCurrent: pop;
    cuCtxSetCurrent: set_current;
    cuCtxGetCurrent: get_current;
    [symbol] cuCtxGetDevice: |device: Out<i32>| device.set(lock().current_device()?);
    [symbol] cuCtxGetDevice_v2: |device: Out<i32>, context: u64|
        device.set(lock().context_or_current(context)?.device);
    cuCtxGetFlags: |flags: Out<u32>| flags.set(lock().current_context()?.flags);
    cuCtxSetFlags: set_flags;
    cuCtxGetId: get_id;
    [symbol] cuCtxSynchronize: || synchronize(0);
    [symbol] cuCtxSynchronize_v2: synchronize;
    cuCtxSetLimit: set_limit;
    cuCtxGetLimit: get_limit;
    cuCtxGetCacheConfig: |config: Out<u32>| config.set(lock().current_context()?.cache_config);
    cuCtxSetCacheConfig: set_cache_config;
    cuCtxGetSharedMemConfig: |config: Out<u32>| config.set(lock().current_context()?.shared_config);
    cuCtxSetSharedMemConfig: set_shared_config;
    cuCtxGetApiVersion: get_api_version;
    cuCtxGetStreamPriorityRange: |least: Out<i32>, greatest: Out<i32>| {
        lock().current()?;
        least.set_if(PRIORITIES.0);
        greatest.set_if(PRIORITIES.1);
        Ok(())
    };
    cuCtxResetPersistingL2Cache: check_current;
    cuCtxEnablePeerAccess: enable_peer_access;
    cuCtxDisablePeerAccess: disable_peer_access;
}

/// `cuCtxGetCurrent`.
pub(crate) fn get_current(context: Out<u64>) -> Answer {
    context.set(with_stack(|stack| stack.last().map_or(0, |top| top.0)))
}

/// `cuCtxGetId`.
pub(crate) fn get_id(context: u64, id: Out<u64>) -> Answer {
    id.set(lock().context_or_current(context)?.id)
}

/// `cuCtxCreate_v2`.
pub(crate) fn create(mut state: Locked, context: OutRef<u64>, flags: u32, device: i32) -> Answer {
    check_flags(flags)?;
    check_device(device)?;
    let object = state.new_context(device, flags, false);
    let id = object.id;
    let handle = state.contexts.add(object)?;
    state.destroyed_contexts.remove(&handle);
    with_stack(|stack| stack.push((handle, id)));
    context.set(handle)
}

fn create_with_affinity(
    state: Locked,
    context: OutRef<u64>,
    affinity: In<u64>,
    count: i32,
    flags: u32,
    device: i32,
) -> Answer {
    // Execution affinity needs MPS.
    reject_if(count != 0 || !affinity.is_null(), NOT_SUPPORTED)?;
    create(state, context, flags, device)
}

fn create_with(
    state: Locked,
    context: OutRef<u64>,
    parameters: In<CUctxCreateParams>,
    flags: u32,
    device: i32,
) -> Answer {
    if !parameters.is_null() {
        let given = parameters.get()?;
        reject_if(
            given.numExecAffinityParams != 0 || !given.cigParams.is_null(),
            NOT_SUPPORTED,
        )?;
    }
    create(state, context, flags, device)
}

fn destroy(mut state: Locked, context: u64) -> Answer {
    invalid_if(context == 0)?;
    let object = state.contexts.find(context)?;
    // A primary context is released with cuDevicePrimaryCtxRelease.
    reject_if(object.is_primary, INVALID_CONTEXT)?;
    state.destroy_context(context);
    state.destroyed_contexts.insert(context);
    // The calling thread pops it if it was current; other threads keep the stale handle.
    with_stack(|stack| {
        if stack.last().is_some_and(|top| top.0 == context) {
            stack.pop();
        }
    });
    run_destructors(state)
}

fn push(state: Locked, context: u64) -> Answer {
    let id = match state.id_to_push(context) {
        Ok(id) => id,
        // The real driver accepts a destroyed context, and faults in the pop that follows
        // (measured).
        Err(_) if state.destroyed_contexts.contains(&context) => PUSHED_DESTROYED,
        Err(code) => return Err(code),
    };
    with_stack(|stack| stack.push((context, id)));
    Ok(())
}

fn pop(context: Out<u64>) -> Answer {
    let (handle, id) = with_stack(Vec::pop).ok_or(INVALID_CONTEXT)?;
    if id == PUSHED_DESTROYED {
        crash::segmentation_fault();
    }
    context.set_if(handle);
    Ok(())
}

fn set_current(state: Locked, context: u64) -> Answer {
    if context == 0 {
        with_stack(Vec::pop);
        return Ok(());
    }
    let id = state.id_to_push(context)?;
    with_stack(|stack| {
        stack.pop();
        stack.push((context, id));
    });
    Ok(())
}

fn set_flags(mut state: Locked, flags: u32) -> Answer {
    let context = state.current_context()?;
    check_flags(flags)?;
    context.flags = flags;
    Ok(())
}

fn synchronize(context: u64) -> Answer {
    let mut state = lock();
    state.context_or_current(context)?;
    let context = if context == 0 {
        state.current()?
    } else {
        context
    };
    let pending = state.queue.of_context(context);
    schedule::wait(state, &pending);
    Ok(())
}

fn check_current() -> Answer {
    lock().current().map(|_| ())
}

// CUlimit.
const STACK_SIZE: u32 = 0;
const SYNC_DEPTH: u32 = 3;
const MAX_L2_FETCH_GRANULARITY: u32 = 5;
const CIG_ENABLED: u32 = 8;

/// The default of a limit, in bytes or calls; `None` for one that cannot be queried.
fn default_limit(limit: u32) -> Option<u64> {
    match limit {
        STACK_SIZE => Some(1024),
        1 => Some(7 << 20), // PRINTF_FIFO_SIZE
        2 => Some(8 << 20), // MALLOC_HEAP_SIZE
        SYNC_DEPTH => Some(2),
        4 => Some(2048), // DEV_RUNTIME_PENDING_LAUNCH_COUNT
        MAX_L2_FETCH_GRANULARITY => Some(64),
        6 => Some(0),           // PERSISTING_L2_CACHE_SIZE
        CIG_ENABLED => Some(0), // measured: no error
        _ => None,
    }
}

fn check_limit(limit: u32) -> Answer<u64> {
    let list = cutape_registry::enumeration("CUlimit");
    let name = list.and_then(|list| list.name_of(i64::from(limit)));
    match (default_limit(limit), name) {
        (Some(value), _) => Ok(value),
        (None, Some(name)) if name != "CU_LIMIT_MAX" => Err(UNSUPPORTED_LIMIT),
        (None, _) => Err(INVALID_VALUE),
    }
}

fn set_limit(mut state: Locked, limit: u32, value: u64) -> Answer {
    state.current()?;
    check_limit(limit)?;
    // Synchronization inside kernels ends with compute capability 9.0 (cuCtxSetLimit).
    let lacks_limit = limit == SYNC_DEPTH && state.capability() >= (9, 0);
    reject_if(lacks_limit, UNSUPPORTED_LIMIT)?;
    let context = state.current_context()?;
    // It is fixed when a context for graphics is created; the code is assumed.
    reject_if(limit == CIG_ENABLED, UNSUPPORTED_LIMIT)?;
    let value = match limit {
        STACK_SIZE if value <= 512 << 10 => value.next_multiple_of(16),
        MAX_L2_FETCH_GRANULARITY if value <= 128 => value,
        STACK_SIZE | MAX_L2_FETCH_GRANULARITY => return Err(INVALID_VALUE),
        _ => value,
    };
    context.limits.insert(limit, value);
    Ok(())
}

fn get_limit(mut state: Locked, value: Out<usize>, limit: u32) -> Answer {
    let context = state.current_context()?;
    let default = check_limit(limit)?;
    value.set(context.limits.get(&limit).copied().unwrap_or(default) as usize)
}

fn set_cache_config(mut state: Locked, config: u32) -> Answer {
    let context = state.current_context()?;
    invalid_if(config > 3)?;
    context.cache_config = config;
    Ok(())
}

fn set_shared_config(mut state: Locked, config: u32) -> Answer {
    let context = state.current_context()?;
    invalid_if(config > 2)?;
    context.shared_config = config;
    Ok(())
}

fn get_api_version(context: u64, version: Out<u32>) -> Answer {
    const API_VERSION: u32 = 3020;
    lock().context_or_current(context)?;
    version.set(API_VERSION)
}

/// The device and the id of a context that is to be a peer of the current one.
fn peer_of(state: &State, peer: u64) -> Answer<(i32, u64)> {
    let current = state.current()?;
    let context = state.contexts.find(peer)?;
    reject_if(peer == current, INVALID_CONTEXT)?;
    Ok((context.device, context.id))
}

/// The codes are the manual's (Peer Context Memory Access).
fn enable_peer_access(mut state: Current, peer: u64, flags: u32) -> Answer {
    invalid_if(flags != 0)?;
    let (device, id) = peer_of(&state, peer)?;
    let context = state.current_context()?;
    let are_peers = settings::get().are_peers(context.device, device);
    require(are_peers, PEER_ACCESS_UNSUPPORTED)?;
    require(context.peers.insert(id), PEER_ACCESS_ALREADY_ENABLED)
}

fn disable_peer_access(mut state: Locked, peer: u64) -> Answer {
    let (_, id) = peer_of(&state, peer)?;
    let was_enabled = state.current_context()?.peers.remove(&id);
    require(was_enabled, PEER_ACCESS_NOT_ENABLED)
}
