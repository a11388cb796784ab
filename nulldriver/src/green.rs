//! Green Contexts: parts of a device's multiprocessors. They change nothing here but what is answered.

use cutape_driver::types::CUdevResource;
use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE};
use crate::argument::{In, Out, Stream};
use crate::context::Context;
use crate::device::MULTIPROCESSORS;
use crate::dispatch::{Entry, bind};
use crate::state::{State, check_device, lock};
use crate::stream::make_stream;

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuDeviceGetDevResource", bind(of_device)),
    ("cuCtxGetDevResource", bind(of_context)),
    ("cuGreenCtxGetDevResource", bind(of_green)),
    ("cuDevSmResourceSplitByCount", bind(split)),
    ("cuDevResourceGenerateDesc", bind(describe)),
    ("cuGreenCtxCreate", bind(create)),
    ("cuGreenCtxDestroy", bind(destroy)),
    ("cuCtxFromGreenCtx", bind(context_of)),
    ("cuGreenCtxStreamCreate", bind(create_stream)),
    ("cuStreamGetGreenCtx", bind(of_stream)),
    ("cuGreenCtxRecordEvent", bind(record)),
    ("cuGreenCtxWaitEvent", bind(wait)),
    ("cuGreenCtxGetId", bind(get_id)),
];

/// `CU_DEV_RESOURCE_TYPE_SM`.
const SM: u32 = 1;
/// On compute capability 9.0 a part has at least eight multiprocessors, and a multiple of eight unless flags say less
/// (cuDevSmResourceSplitByCount).
const LEAST: u32 = 8;
const STEP: u32 = 8;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, which every green context must have.
const DEFAULT_STREAM: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`, which every stream of one must have.
const NON_BLOCKING: u32 = 1;
/// In a resource's padding, by which one is told from a program's own, and from one of another process.
fn mark() -> [u8; 12] {
    let mut mark = *b"cutapeSM\0\0\0\0";
    mark[8..].copy_from_slice(&std::process::id().to_le_bytes());
    mark
}

/// A green context.
#[derive(Debug)]
pub(crate) struct Green {
    device: i32,
    multiprocessors: u32,
    id: u64,
    /// The context that stands for it where one is asked for.
    context: u64,
}

/// A resource of so many multiprocessors.
fn resource(multiprocessors: u32) -> CUdevResource {
    let mut one = CUdevResource::default();
    one.type_.0 = SM;
    one._internal_padding[..12].copy_from_slice(&mark());
    one.__bindgen_anon_1.sm.smCount = multiprocessors;
    one.__bindgen_anon_1.sm.minSmPartitionSize = LEAST;
    one.__bindgen_anon_1.sm.smCoscheduledAlignment = STEP;
    one
}

/// The multiprocessors of a resource that came from here.
fn count_of(resource: &CUdevResource) -> Answer<u32> {
    if resource.type_.0 != SM || resource._internal_padding[..12] != mark() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the type says that the union holds `sm`; any bits are a number.
    Ok(unsafe { resource.__bindgen_anon_1.sm.smCount })
}

impl State {
    fn green(&self, handle: u64) -> Answer<&Green> {
        self.greens.get(&handle).ok_or(INVALID_HANDLE)
    }
}

fn answer(target: Out<CUdevResource>, kind: u32, multiprocessors: u32) -> Answer {
    if kind != SM {
        return Err(INVALID_VALUE);
    }
    target.set(resource(multiprocessors))
}

fn of_device(device: i32, target: Out<CUdevResource>, kind: u32) -> Answer {
    target.check()?;
    check_device(device)?;
    answer(target, kind, MULTIPROCESSORS)
}

fn of_context(context: u64, target: Out<CUdevResource>, kind: u32) -> Answer {
    let state = lock();
    target.check()?;
    if !state.contexts.contains_key(&context) {
        return Err(INVALID_CONTEXT);
    }
    let green = state.greens.values().find(|green| green.context == context);
    answer(
        target,
        kind,
        green.map_or(MULTIPROCESSORS, |green| green.multiprocessors),
    )
}

fn of_green(green: u64, target: Out<CUdevResource>, kind: u32) -> Answer {
    let state = lock();
    target.check()?;
    answer(target, kind, state.green(green)?.multiprocessors)
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
    if flags & !3 != 0 || least > total {
        return Err(INVALID_VALUE);
    }
    let step = if flags & 1 != 0 { 2 } else { STEP };
    let size = least
        .max(if flags & 1 != 0 { 2 } else { LEAST })
        .next_multiple_of(step);
    let possible = total / size;
    if result.is_null() {
        // Only the number of groups is asked for.
        return groups.set(possible);
    }
    let made = wanted.min(possible);
    if made == 0 {
        return Err(INVALID_VALUE);
    }
    for group in 0..made {
        result.set_at(group as usize, resource(size));
    }
    let left = total - made * size;
    let rest = if left == 0 {
        CUdevResource::default()
    } else {
        resource(left)
    };
    remaining.set_if(rest);
    groups.set(made)
}

fn describe(target: Out<u64>, resources: In<CUdevResource>, count: u32) -> Answer {
    let mut state = lock();
    target.check()?;
    if count == 0 || count > 4096 {
        return Err(INVALID_VALUE);
    }
    let mut total = 0u32;
    for resource in resources.list(count as usize)? {
        total = total.saturating_add(count_of(&resource)?);
    }
    if total > MULTIPROCESSORS {
        return Err(INVALID_VALUE);
    }
    let handle = state.make(Kind::ResourceDescriptor)?;
    state.descriptors.insert(handle, total);
    target.set(handle)
}

fn create(target: Out<u64>, descriptor: u64, device: i32, flags: u32) -> Answer {
    let mut state = lock();
    target.check()?;
    check_device(device)?;
    if flags != DEFAULT_STREAM {
        return Err(INVALID_VALUE);
    }
    let multiprocessors = *state.descriptors.get(&descriptor).ok_or(INVALID_VALUE)?;
    let handle = state.make(Kind::GreenContext)?;
    let context = state.make(Kind::Context)?;
    let object = Context::new(&mut state, device, 0, false, 3020);
    state.contexts.insert(context, object);
    let id = state.new_id();
    state.greens.insert(
        handle,
        Green {
            device,
            multiprocessors,
            id,
            context,
        },
    );
    target.set(handle)
}

fn destroy(green: u64) -> Answer {
    let mut state = lock();
    let object = state.greens.remove(&green).ok_or(INVALID_HANDLE)?;
    if state.contexts.contains_key(&object.context) {
        state.destroy_context(object.context);
        state.release(Kind::Context, object.context);
    }
    state.release(Kind::GreenContext, green);
    Ok(())
}

fn context_of(target: Out<u64>, green: u64) -> Answer {
    let state = lock();
    target.check()?;
    target.set(state.green(green)?.context)
}

fn create_stream(target: Out<u64>, green: u64, flags: u32, priority: i32) -> Answer {
    let mut state = lock();
    target.check()?;
    let context = state.green(green)?.context;
    if flags != NON_BLOCKING {
        return Err(INVALID_VALUE);
    }
    target.set(make_stream(&mut state, context, flags, priority)?)
}

fn of_stream(stream: Stream, target: Out<u64>) -> Answer {
    let state = lock();
    target.check()?;
    let context = state.stream_context(stream)?;
    let found = state
        .greens
        .iter()
        .find(|(_, green)| green.context == context);
    target.set(found.map_or(0, |(&handle, _)| handle))
}

fn record(green: u64, event: u64) -> Answer {
    let mut state = lock();
    let device = state.green(green)?.device;
    let of = state.event(event)?.context;
    if state
        .contexts
        .get(&of)
        .is_none_or(|context| context.device != device)
    {
        return Err(INVALID_HANDLE);
    }
    state.record(event);
    Ok(())
}

fn wait(green: u64, event: u64) -> Answer {
    let state = lock();
    state.green(green)?;
    state.event(event).map(|_| ())
}

fn get_id(green: u64, id: Out<u64>) -> Answer {
    let state = lock();
    id.check()?;
    id.set(state.green(green)?.id)
}
