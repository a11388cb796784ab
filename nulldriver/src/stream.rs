//! Stream Management. Streams are always idle: what is enqueued is done before the call returns.

use std::collections::HashMap;

use cutape_driver::types::CUstreamAttrValue;
use cutape_registry::Kind;

use crate::answer::{
    Answer, CONTEXT_IS_DESTROYED, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED,
};
use crate::argument::{In, LEGACY, Out, PER_THREAD, Stream};
use crate::capture;
use crate::context::PRIORITIES;
use crate::copy::move_bytes;
use crate::crash;
use crate::dispatch::{Entry, bind};
use crate::graph_work::Work;
use crate::memory::{Allocation, Purpose, Segment};
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    (
        "cuStreamCreate",
        bind(|stream: Out<u64>, flags: u32| create(stream, flags, 0)),
    ),
    ("cuStreamCreateWithPriority", bind(create)),
    ("cuStreamDestroy", bind(destroy)),
    ("cuStreamGetPriority", bind(get_priority)),
    ("cuStreamGetFlags", bind(get_flags)),
    ("cuStreamGetId", bind(get_id)),
    ("cuStreamGetDevice", bind(get_device)),
    ("=cuStreamGetCtx", bind(get_context)),
    ("=cuStreamGetCtx_v2", bind(get_context_v2)),
    ("cuStreamQuery", bind(wait)),
    ("cuStreamSynchronize", bind(wait)),
    ("cuStreamWaitEvent", bind(wait_event)),
    ("cuStreamAttachMemAsync", bind(attach)),
    ("cuStreamCopyAttributes", bind(copy_attributes)),
    ("cuStreamGetAttribute", bind(get_attribute)),
    ("cuStreamSetAttribute", bind(set_attribute)),
    (
        "=cuStreamWriteValue32",
        bind(|s: Stream, address: u64, value: u32, flags: u32| {
            write(s, address, &value.to_le_bytes(), flags)
        }),
    ),
    (
        "=cuStreamWriteValue32_v2",
        bind(|s: Stream, address: u64, value: u32, flags: u32| {
            write(s, address, &value.to_le_bytes(), flags)
        }),
    ),
    (
        "=cuStreamWriteValue64",
        bind(|s: Stream, address: u64, value: u64, flags: u32| {
            write(s, address, &value.to_le_bytes(), flags)
        }),
    ),
    (
        "=cuStreamWriteValue64_v2",
        bind(|s: Stream, address: u64, value: u64, flags: u32| {
            write(s, address, &value.to_le_bytes(), flags)
        }),
    ),
    (
        "=cuStreamWaitValue32",
        bind(|s: Stream, a: u64, value: u32, flags: u32| wait_value(s, a, value.into(), flags, 4)),
    ),
    (
        "=cuStreamWaitValue32_v2",
        bind(|s: Stream, a: u64, value: u32, flags: u32| wait_value(s, a, value.into(), flags, 4)),
    ),
    (
        "=cuStreamWaitValue64",
        bind(|s: Stream, a: u64, value: u64, flags: u32| wait_value(s, a, value, flags, 8)),
    ),
    (
        "=cuStreamWaitValue64_v2",
        bind(|s: Stream, a: u64, value: u64, flags: u32| wait_value(s, a, value, flags, 8)),
    ),
];

/// A wait for a value in memory: nothing but the call itself can change it before the stream goes on, because all work
/// is done when it is enqueued. So a wait that is not fulfilled cannot be carried out here.
pub(crate) fn wait_value(
    stream: Stream,
    address: u64,
    wanted: u64,
    flags: u32,
    width: usize,
) -> Answer {
    let state = lock();
    state.check_stream(stream)?;
    if !address.is_multiple_of(width as u64) || flags & !3 != 0 {
        return Err(INVALID_VALUE);
    }
    let mut value = 0_u64;
    let here = Segment {
        bytes: &raw mut value as u64,
        size: width as u64,
    };
    move_bytes(&[here], &state.device_range(address, width as u64)?);
    let mask = if width == 4 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    let sign = (mask >> 1) + 1;
    let fulfilled = match flags {
        0 => value.wrapping_sub(wanted) & mask & sign == 0, // GEQ, cyclic
        1 => value == wanted & mask,
        2 => value & wanted & mask != 0,
        _ => !(value | wanted) & mask != 0, // NOR
    };
    if fulfilled {
        Ok(())
    } else {
        Err(NOT_SUPPORTED)
    }
}

/// A stream that the program made.
pub(crate) struct StreamState {
    pub(crate) context: u64,
    flags: u32,
    priority: i32,
    id: u64,
    attributes: HashMap<u32, CUstreamAttrValue>,
}

impl StreamState {
    /// Whether it waits for the legacy stream and the other way round.
    pub(crate) fn is_blocking(&self) -> bool {
        const NON_BLOCKING: u32 = 1;
        self.flags & NON_BLOCKING == 0
    }
}

impl std::fmt::Debug for StreamState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamState")
            .field("context", &self.context)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl State {
    /// The context of a stream. A destroyed stream crashes as in the real driver.
    pub(crate) fn stream_context(&self, stream: Stream) -> Answer<u64> {
        match stream.0 {
            LEGACY | PER_THREAD => self.current(),
            handle => match self.streams.get(&handle) {
                Some(stream) => Ok(stream.context),
                None => crash::segmentation_fault(),
            },
        }
    }

    /// That work which cannot be captured may be put on a stream now.
    pub(crate) fn check_stream(&self, stream: Stream) -> Answer {
        self.stream_is_there(stream)?;
        self.refuse_capture(stream)
    }

    /// That a stream may be used from the calling thread now.
    pub(crate) fn stream_is_there(&self, stream: Stream) -> Answer {
        let context = self.stream_context(stream)?;
        if self.contexts.contains_key(&context) {
            Ok(())
        } else {
            Err(CONTEXT_IS_DESTROYED)
        }
    }

    /// As `check_stream`, and that the stream belongs to the current context (measured for launches: INVALID_HANDLE).
    pub(crate) fn check_stream_of_current(&self, stream: Stream) -> Answer<u64> {
        let current = self.current()?;
        if self.stream_context(stream)? == current {
            Ok(current)
        } else {
            Err(INVALID_HANDLE)
        }
    }
}

fn create(stream: Out<u64>, flags: u32, priority: i32) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    stream.check()?;
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    stream.set(make_stream(&mut state, context, flags, priority)?)
}

/// Makes a stream in a context.
pub(crate) fn make_stream(
    state: &mut State,
    context: u64,
    flags: u32,
    priority: i32,
) -> Answer<u64> {
    let handle = state.make(Kind::Stream)?;
    let id = state.new_id();
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    state.streams.insert(
        handle,
        StreamState {
            context,
            flags,
            priority,
            id,
            attributes: HashMap::new(),
        },
    );
    Ok(handle)
}

fn destroy(stream: u64) -> Answer {
    let mut state = lock();
    if stream <= PER_THREAD {
        return Err(INVALID_HANDLE);
    }
    if state.streams.remove(&stream).is_none() {
        crash::segmentation_fault();
    }
    state.stream_ended(stream);
    state.release(Kind::Stream, stream);
    Ok(())
}

fn get_priority(stream: Stream, priority: Out<i32>) -> Answer {
    let state = lock();
    state.stream_is_there(stream)?;
    priority.set(
        state
            .streams
            .get(&stream.0)
            .map_or(0, |object| object.priority),
    )
}

fn get_flags(stream: Stream, flags: Out<u32>) -> Answer {
    let state = lock();
    state.stream_is_there(stream)?;
    flags.set(
        state
            .streams
            .get(&stream.0)
            .map_or(0, |object| object.flags),
    )
}

fn get_id(stream: Stream, id: Out<u64>) -> Answer {
    let state = lock();
    let context = state.stream_context(stream)?;
    let object = state.contexts.get(&context).ok_or(CONTEXT_IS_DESTROYED)?;
    // Each thread has a per-thread stream in each context.
    let thread = capture::this_thread();
    id.set(match stream.0 {
        LEGACY => object.stream_id,
        PER_THREAD => thread << 32 | object.stream_id,
        handle => state.streams[&handle].id,
    })
}

fn get_device(stream: Stream, device: Out<i32>) -> Answer {
    let state = lock();
    let context = state.stream_context(stream)?;
    device.set(
        state
            .contexts
            .get(&context)
            .ok_or(CONTEXT_IS_DESTROYED)?
            .device,
    )
}

fn get_context(stream: Stream, context: Out<u64>) -> Answer {
    let state = lock();
    context.set(state.stream_context(stream)?)
}

fn get_context_v2(stream: Stream, context: Out<u64>, green: Out<u64>) -> Answer {
    let state = lock();
    context.check()?;
    green.check()?;
    context.set_if(state.stream_context(stream)?);
    green.set(0)
}

fn wait(stream: Stream) -> Answer {
    lock().check_stream(stream)
}

fn wait_event(stream: Stream, event: u64, flags: u32) -> Answer {
    let mut state = lock();
    state.stream_is_there(stream)?;
    state.event(event)?;
    match flags {
        0 => state.wait_captured(stream, event).map(|_| ()),
        // An external wait is a node of its own; outside of captures there is none.
        1 => {
            let site = state.capture_of(stream)?.ok_or(ILLEGAL_STATE)?;
            state.add_captured(site, Work::Wait(event)).map(|_| ())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn attach(stream: Stream, address: u64, length: u64, flags: u32) -> Answer {
    let state = lock();
    state.check_stream(stream)?;
    let (base, allocation) = state.allocation_at(address).ok_or(INVALID_VALUE)?;
    let whole = address == base && (length == 0 || length == allocation.size);
    let managed = allocation.purpose == Purpose::Managed;
    if managed && whole && matches!(flags, 1 | 2 | 4) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

/// Whether a launch attribute exists for streams.
fn check_attribute(attribute: u32) -> Answer {
    // ACCESS_POLICY_WINDOW, SYNCHRONIZATION_POLICY, PRIORITY, MEM_SYNC_DOMAIN_MAP, MEM_SYNC_DOMAIN.
    if matches!(attribute, 1 | 3 | 8 | 9 | 10) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn copy_attributes(to: Stream, from: Stream) -> Answer {
    let mut state = lock();
    state.stream_is_there(to)?;
    state.stream_is_there(from)?;
    let attributes = state
        .streams
        .get(&from.0)
        .map(|object| object.attributes.clone());
    if let (Some(attributes), Some(target)) = (attributes, state.streams.get_mut(&to.0)) {
        target.attributes = attributes;
    }
    Ok(())
}

fn get_attribute(stream: Stream, attribute: u32, value: Out<CUstreamAttrValue>) -> Answer {
    let state = lock();
    state.stream_is_there(stream)?;
    value.check()?;
    check_attribute(attribute)?;
    let object = state.streams.get(&stream.0);
    // SAFETY: the union consists of integers, floats and pointers, for which all-zero bytes are valid.
    let mut answer: CUstreamAttrValue = unsafe { std::mem::zeroed() };
    match object.and_then(|object| object.attributes.get(&attribute)) {
        Some(stored) => answer = *stored,
        None if attribute == 8 => answer.priority = object.map_or(0, |object| object.priority),
        None if attribute == 3 => answer.syncPolicy.0 = 1, // CU_SYNC_POLICY_AUTO
        None => {}
    }
    value.set(answer)
}

fn set_attribute(stream: Stream, attribute: u32, value: In<CUstreamAttrValue>) -> Answer {
    let mut state = lock();
    state.stream_is_there(stream)?;
    let mut value = value.get()?;
    check_attribute(attribute)?;
    // SAFETY: every field of the union is made of numbers and pointers, so any bytes are a value of each.
    unsafe {
        match attribute {
            // Only a hit may be persisting (measured INVALID_VALUE for a persisting miss).
            1 if value.accessPolicyWindow.missProp.0 == 2 => return Err(INVALID_VALUE),
            1 if !(0.0..=1.0).contains(&value.accessPolicyWindow.hitRatio) => {
                return Err(INVALID_VALUE);
            }
            3 if !(1..=4).contains(&value.syncPolicy.0) => return Err(INVALID_VALUE),
            8 => value.priority = value.priority.clamp(PRIORITIES.1, PRIORITIES.0),
            10 if value.memSyncDomain.0 > 1 => return Err(INVALID_VALUE),
            _ => {}
        }
    }
    if let Some(object) = state.streams.get_mut(&stream.0) {
        object.attributes.insert(attribute, value);
        if attribute == 8 {
            // SAFETY: written just above as a number.
            object.priority = unsafe { value.priority };
        }
    }
    Ok(())
}

pub(crate) fn write(stream: Stream, address: u64, value: &[u8], flags: u32) -> Answer {
    let state = lock();
    state.check_stream(stream)?;
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    write_value(&state, address, value)
}

/// Writes a value to device memory.
pub(crate) fn write_value(state: &State, address: u64, value: &[u8]) -> Answer {
    if !address.is_multiple_of(value.len() as u64) {
        return Err(INVALID_VALUE);
    }
    let managed = |one: &Allocation| one.purpose == Purpose::Managed;
    if state
        .allocation_at(address)
        .is_some_and(|(_, one)| managed(one))
    {
        // Managed memory cannot be an operand (measured).
        return Err(INVALID_VALUE);
    }
    let size = value.len() as u64;
    let target = state.device_range(address, size)?;
    move_bytes(
        &target,
        &[Segment {
            bytes: value.as_ptr() as u64,
            size,
        }],
    );
    Ok(())
}
