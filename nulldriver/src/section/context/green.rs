//! Green Contexts: parts of a device's multiprocessors. Here they only change what queries return.

use cutape_driver::types::CUdevResource;

use crate::call::answer::{Answer, INVALID_CONTEXT, INVALID_HANDLE, invalid_if, reject_if};
use crate::call::argument::{In, Out, OutRef, Stream};
use crate::call::entry::entries;
use crate::object::context::{GreenContext, ResourceDescriptor};
use crate::object::device::MULTIPROCESSORS;
use crate::object::device::check_device;
use crate::object::stream::NON_BLOCKING;
use crate::section::private_tables::context_storage::run_destructors;
use crate::state::{Locked, State, lock};

entries! {
    cuDeviceGetDevResource: |device: i32, target: OutRef<CUdevResource>, kind: u32|
        target.set(check_device(device).and_then(|()| resource_of(kind, MULTIPROCESSORS))?);
    cuCtxGetDevResource: of_context;
    cuGreenCtxGetDevResource: |green: u64, target: OutRef<CUdevResource>, kind: u32|
        target.set(resource_of(kind, lock().green_contexts.find(green)?.multiprocessors)?);
    cuDevSmResourceSplitByCount: split;
    cuDevResourceGenerateDesc: describe;
    cuGreenCtxCreate: create;
    cuGreenCtxDestroy: destroy;
    cuCtxFromGreenCtx: |context: OutRef<u64>, green: u64|
        context.set(lock().green_contexts.find(green)?.context);
    cuGreenCtxStreamCreate: create_stream;
    cuStreamGetGreenCtx: |state: Locked, stream: Stream, green: OutRef<u64>| {
        let context = state.stream_context(stream)?;
        green.set(find_by_context(&state, context).map_or(0, |(handle, _)| handle))
    };
    cuGreenCtxRecordEvent: record;
    cuGreenCtxWaitEvent: |green: u64, event: u64| {
        let mut state = lock();
        let context = state.green_contexts.find(green)?.context;
        state.wait_in_context(context, event)
    };
    cuGreenCtxGetId: |green: u64, id: OutRef<u64>| id.set(lock().green_contexts.find(green)?.id);
}

/// `CU_DEV_RESOURCE_TYPE_SM`.
const SM: u32 = 1;
/// On compute capability 9.0 a part has at least eight multiprocessors, and a multiple of eight
/// unless flags allow less (cuDevSmResourceSplitByCount).
const STEP: u32 = 8;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, which every green context must have.
const DEFAULT_STREAM: u32 = 1;
/// Marks the padding of a resource that this process returned, unlike one that a program filled in.
fn mark() -> [u8; 12] {
    let mut mark = *b"cutapeSM\0\0\0\0";
    mark[8..].copy_from_slice(&std::process::id().to_le_bytes());
    mark
}

/// A resource with that many multiprocessors.
fn resource(multiprocessors: u32) -> CUdevResource {
    let mut one = CUdevResource::default();
    one.type_.0 = SM;
    one._internal_padding[..12].copy_from_slice(&mark());
    one.__bindgen_anon_1.sm.smCount = multiprocessors;
    one.__bindgen_anon_1.sm.minSmPartitionSize = STEP;
    one.__bindgen_anon_1.sm.smCoscheduledAlignment = STEP;
    one
}

/// The multiprocessors of a resource that this process returned.
fn count_of(resource: &CUdevResource) -> Answer<u32> {
    invalid_if(resource.type_.0 != SM || resource._internal_padding[..12] != mark())?;
    // SAFETY: the type says that the union holds `sm`; any bits are a number.
    Ok(unsafe { resource.__bindgen_anon_1.sm.smCount })
}

/// The green context behind a context.
fn find_by_context(state: &State, context: u64) -> Option<(u64, &GreenContext)> {
    let mut all = state.green_contexts.iter();
    let found = all.find(|(_, green)| green.context == context);
    found.map(|(&handle, green)| (handle, green))
}

fn resource_of(kind: u32, multiprocessors: u32) -> Answer<CUdevResource> {
    invalid_if(kind != SM)?;
    Ok(resource(multiprocessors))
}

fn of_context(state: Locked, context: u64, target: OutRef<CUdevResource>, kind: u32) -> Answer {
    reject_if(!state.contexts.contains_key(&context), INVALID_CONTEXT)?;
    let green = find_by_context(&state, context);
    let multiprocessors = green.map_or(MULTIPROCESSORS, |(_, green)| green.multiprocessors);
    target.set(resource_of(kind, multiprocessors)?)
}

fn split(
    result: Out<CUdevResource>,
    groups: Out<u32>,
    input: In<CUdevResource>,
    remaining: Out<CUdevResource>,
    flags: u32,
    least: u32,
) -> Answer {
    let wanted = groups.get()?;
    let total = count_of(&input.get()?)?;
    // Ignore co-scheduling, largest potential clusters.
    invalid_if(flags & !3 != 0 || least > total)?;
    let step = if flags & 1 != 0 { 2 } else { STEP };
    let size = least.max(step).next_multiple_of(step);
    let possible = total / size;
    if result.is_null() {
        // The program asks only for the number of groups.
        return groups.set(possible);
    }
    let made = wanted.min(possible);
    invalid_if(made == 0)?;
    for group in 0..made {
        result.set_at(group as usize, resource(size));
    }
    remaining.set_if(match total - made * size {
        0 => CUdevResource::default(),
        left => resource(left),
    });
    groups.set(made)
}

fn describe(target: Out<u64>, resources: In<CUdevResource>, count: u32) -> Answer {
    let mut state = lock();
    target.check()?;
    invalid_if(count == 0 || count > 4096)?;
    let mut total = 0u32;
    for resource in resources.list(count as usize)? {
        total = total.saturating_add(count_of(&resource)?);
    }
    invalid_if(total > MULTIPROCESSORS)?;
    target.set(state.descriptors.add(ResourceDescriptor {
        multiprocessors: total,
    })?)
}

fn create(target: Out<u64>, descriptor: u64, device: i32, flags: u32) -> Answer {
    let mut state = lock();
    target.check()?;
    check_device(device)?;
    invalid_if(flags != DEFAULT_STREAM)?;
    let multiprocessors = state.descriptors.find(descriptor)?.multiprocessors;
    let context = state.new_context(device, 0, false);
    let green = GreenContext {
        device,
        multiprocessors,
        context: state.contexts.add(context)?,
        id: state.new_id(),
    };
    target.set(state.green_contexts.add(green)?)
}

fn destroy(mut state: Locked, green: u64) -> Answer {
    let object = state.green_contexts.remove(green).ok_or(INVALID_HANDLE)?;
    if state.contexts.contains_key(&object.context) {
        state.destroy_context(object.context);
    }
    run_destructors(state)
}

fn create_stream(target: Out<u64>, green: u64, flags: u32, priority: i32) -> Answer {
    let mut state = lock();
    target.check()?;
    let context = state.green_contexts.find(green)?.context;
    invalid_if(flags != NON_BLOCKING)?;
    target.set(state.create_stream(context, flags, priority)?)
}

fn record(mut state: Locked, green: u64, event: u64) -> Answer {
    let device = state.green_contexts.find(green)?.device;
    let of = state.event(event)?.context;
    let context = state.contexts.get(&of);
    let is_foreign = context.is_none_or(|context| context.device != device);
    reject_if(is_foreign, INVALID_HANDLE)?;
    let context = state.green_contexts.find(green)?.context;
    state.record_context(context, event);
    Ok(())
}
