//! Stream Management.

use cutape_driver::types::CUstreamAttrValue;
use cutape_registry::{STREAM_LEGACY, STREAM_PER_THREAD, is_default_stream};

use crate::call::answer::{
    Answer, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, invalid_if, reject_if, valid_if,
};
use crate::call::argument::{In, Out, OutRef, Stream};
use crate::call::entry::entries;
use crate::crash;
use crate::object::capture::this_thread;
use crate::object::device::PRIORITIES;
use crate::object::memory::Purpose;
use crate::object::queue::Ticket;
use crate::object::stream::StreamObject;
use crate::object::work::Work;
use crate::state::{Current, Locked, State, lock};
use crate::work::memory_operation::{self, Operation};
use crate::work::schedule;
use crate::work::value_wait::Value;

entries! {
    cuStreamCreate: |state: Current, stream: OutRef<u64>, flags: u32|
        create(state, stream, flags, 0);
    cuStreamCreateWithPriority: create;
    cuStreamDestroy: destroy;
    cuStreamGetPriority: |stream: Stream, priority: Out<i32>|
        priority.set(object(&lock(), stream)?.map_or(0, |object| object.priority));
    cuStreamGetFlags: |stream: Stream, flags: Out<u32>|
        flags.set(object(&lock(), stream)?.map_or(0, |object| object.flags));
    cuStreamGetId: get_id;
    cuStreamGetDevice: |stream: Stream, device: Out<i32>|
        device.set(lock().living_context(stream)?.device);
    [symbol] cuStreamGetCtx: |stream: Stream, context: Out<u64>|
        context.set(lock().stream_context(stream)?);
    [symbol] cuStreamGetCtx_v2: get_context_v2;
    cuStreamQuery: |stream: Stream| {
        let (state, awaited) = awaited(stream)?;
        schedule::query(state, &awaited)
    };
    cuStreamSynchronize: |stream: Stream| {
        let (state, awaited) = awaited(stream)?;
        schedule::wait(state, &awaited);
        Ok(())
    };
    cuStreamWaitEvent: wait_event;
    cuStreamAttachMemAsync: attach;
    cuStreamCopyAttributes: copy_attributes;
    cuStreamGetAttribute: get_attribute;
    cuStreamSetAttribute: set_attribute;
    [symbol] cuStreamWriteValue32: write::<u32>;
    [symbol] cuStreamWriteValue32_v2: write::<u32>;
    [symbol] cuStreamWriteValue64: write::<u64>;
    [symbol] cuStreamWriteValue64_v2: write::<u64>;
    [symbol] cuStreamWaitValue32: wait_value::<u32>;
    [symbol] cuStreamWaitValue32_v2: wait_value::<u32>;
    [symbol] cuStreamWaitValue64: wait_value::<u64>;
    [symbol] cuStreamWaitValue64_v2: wait_value::<u64>;
}

fn create(mut state: Current, stream: OutRef<u64>, flags: u32, priority: i32) -> Answer {
    let context = state.context;
    invalid_if(flags > 1)?;
    stream.set(state.create_stream(context, flags, priority)?)
}

/// The object of a usable stream; the default streams have none.
fn object(state: &State, stream: Stream) -> Answer<Option<&StreamObject>> {
    state.check_stream(stream)?;
    Ok(state.streams.get(&stream.0))
}

fn destroy(mut state: Locked, stream: u64) -> Answer {
    reject_if(is_default_stream(stream), INVALID_HANDLE)?;
    if state.streams.remove(stream).is_none() {
        crash::segmentation_fault();
    }
    state.end_stream(stream);
    state.queue.forget_stream(stream);
    Ok(())
}

fn get_id(state: Locked, stream: Stream, id: Out<u64>) -> Answer {
    let context = state.living_context(stream)?;
    id.set(match stream.0 {
        STREAM_LEGACY => context.stream_id,
        // Each thread has a per-thread stream in each context.
        STREAM_PER_THREAD => this_thread() << 32 | context.stream_id,
        handle => state.streams[&handle].id,
    })
}

fn get_context_v2(stream: Stream, context: Out<u64>, green: Out<u64>) -> Answer {
    let state = lock();
    context.check()?;
    green.check()?;
    context.set_if(state.stream_context(stream)?);
    green.set(0)
}

fn wait_event(mut state: Locked, stream: Stream, event: u64, flags: u32) -> Answer {
    state.check_stream(stream)?;
    state.event(event)?;
    match flags {
        0 => {
            state.capture_wait(stream, event)?;
            let event = state.event(event)?;
            let (before, is_recorded) = (event.ticket, event.recorded.is_some());
            if state.capture_of(stream)?.is_none() && is_recorded {
                state.enqueue_wait(stream, before)?;
            }
            Ok(())
        }
        // An external wait is a node of its own and exists in captures only.
        1 => {
            let site = state.capture_of(stream)?.ok_or(ILLEGAL_STATE)?;
            state.add_captured(site, Work::Wait(event))
        }
        _ => Err(INVALID_VALUE),
    }
}

/// cuda.h: CU_MEM_ATTACH_SINGLE.
const ATTACH_SINGLE: u32 = 4;

fn attach(state: Locked, stream: Stream, address: u64, length: u64, flags: u32) -> Answer {
    state.check_uncaptured(stream)?;
    let (base, allocation) = state.allocation_at(address).ok_or(INVALID_VALUE)?;
    let whole = address == base && (length == 0 || length == allocation.size);
    let managed = allocation.purpose == Purpose::Managed;
    // No default stream can have memory for itself (Stream Management, cuStreamAttachMemAsync).
    let possible = flags != ATTACH_SINGLE || object(&state, stream)?.is_some();
    valid_if(managed && whole && possible && matches!(flags, 1 | 2 | ATTACH_SINGLE))
}

// CUlaunchAttributeID.
const ACCESS_POLICY_WINDOW: u32 = 1;
const SYNCHRONIZATION_POLICY: u32 = 3;
const PRIORITY: u32 = 8;
const MEM_SYNC_DOMAIN: u32 = 10;

/// Checks that a launch attribute exists for streams; 9 is MEM_SYNC_DOMAIN_MAP.
fn check_attribute(attribute: u32) -> Answer {
    let exists = matches!(
        attribute,
        ACCESS_POLICY_WINDOW | SYNCHRONIZATION_POLICY | PRIORITY..=MEM_SYNC_DOMAIN
    );
    valid_if(exists)
}

fn copy_attributes(mut state: Locked, to: Stream, from: Stream) -> Answer {
    state.check_stream(to)?;
    let attributes = object(&state, from)?.map(|object| object.attributes.clone());
    if let (Some(attributes), Some(target)) = (attributes, state.streams.get_mut(&to.0)) {
        target.attributes = attributes;
    }
    Ok(())
}

fn get_attribute(stream: Stream, attribute: u32, value: Out<CUstreamAttrValue>) -> Answer {
    let state = lock();
    state.check_stream(stream)?;
    value.check()?;
    check_attribute(attribute)?;
    let object = object(&state, stream)?;
    // SAFETY: the union consists of integers, floats and pointers, for which all-zero bytes are
    // valid.
    let mut answer: CUstreamAttrValue = unsafe { std::mem::zeroed() };
    match object.and_then(|object| object.attributes.get(&attribute)) {
        Some(stored) => answer = *stored,
        None if attribute == PRIORITY => {
            answer.priority = object.map_or(0, |object| object.priority)
        }
        None if attribute == SYNCHRONIZATION_POLICY => answer.syncPolicy.0 = 1, // CU_SYNC_POLICY_AUTO
        None => {}
    }
    value.set(answer)
}

fn set_attribute(stream: Stream, attribute: u32, value: In<CUstreamAttrValue>) -> Answer {
    let mut state = lock();
    state.check_stream(stream)?;
    let mut value = value.get()?;
    check_attribute(attribute)?;
    // SAFETY: every field of the union is made of numbers and pointers, so any bytes are a value of
    // each.
    unsafe {
        match attribute {
            // Only a hit may be persisting (measured INVALID_VALUE for a persisting miss).
            ACCESS_POLICY_WINDOW if value.accessPolicyWindow.missProp.0 == 2 => {
                return Err(INVALID_VALUE);
            }
            ACCESS_POLICY_WINDOW if !(0.0..=1.0).contains(&value.accessPolicyWindow.hitRatio) => {
                return Err(INVALID_VALUE);
            }
            SYNCHRONIZATION_POLICY if !(1..=4).contains(&value.syncPolicy.0) => {
                return Err(INVALID_VALUE);
            }
            PRIORITY => value.priority = value.priority.clamp(PRIORITIES.1, PRIORITIES.0),
            MEM_SYNC_DOMAIN if value.memSyncDomain.0 > 1 => return Err(INVALID_VALUE),
            _ => {}
        }
    }
    if let Some(object) = state.streams.get_mut(&stream.0) {
        object.attributes.insert(attribute, value);
        if attribute == PRIORITY {
            // SAFETY: written just above as a number.
            object.priority = unsafe { value.priority };
        }
    }
    Ok(())
}

/// What a wait for a stream waits for that does not capture.
fn awaited(stream: Stream) -> Answer<(Locked, Vec<Ticket>)> {
    let state = lock();
    state.check_uncaptured(stream)?;
    let awaited = state.queue.awaited(&state.lane(stream)?);
    Ok((state, awaited))
}

fn write<T: Into<Value>>(stream: Stream, address: u64, value: T, flags: u32) -> Answer {
    enqueue(stream, Operation::Write(address, value.into(), flags))
}

fn wait_value<T: Into<Value>>(stream: Stream, address: u64, wanted: T, flags: u32) -> Answer {
    enqueue(stream, Operation::Wait(address, wanted.into(), flags))
}

fn enqueue(stream: Stream, operation: Operation) -> Answer {
    let mut state = lock();
    state.check_uncaptured(stream)?;
    let work = memory_operation::action(&state, operation)?;
    state.enqueue(stream, work).map(|_| ())
}
