//! Streams that wait for a value in host memory.
//!
//! All other work is done when it is enqueued, so a call that enqueues work behind such a wait, or
//! that waits for the stream, returns when the value is there. The real driver's call returns at
//! once while its queue has room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutape_registry::{Function, Waits};

use crate::call::answer::{Answer, CUresult, NOT_READY, invalid_if};
use crate::call::argument::WORDS;
use crate::object::memory::{Segment, move_bytes};
use crate::state::{State, lock};

/// Between two looks at a value.
const PAUSE: Duration = Duration::from_micros(50);

/// A number of 4 or 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) bits: u64,
    pub(crate) width: usize,
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value {
            bits: value.into(),
            width: 4,
        }
    }
}

impl From<u64> for Value {
    fn from(bits: u64) -> Self {
        Value { bits, width: 8 }
    }
}

/// A wait of a stream for a value in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) stream: u64,
    pub(crate) address: u64,
    pub(crate) wanted: Value,
    pub(crate) flags: u32,
}

impl Wait {
    /// Whether the memory holds the value.
    pub(crate) fn is_fulfilled(&self, state: &State) -> Answer<bool> {
        let width = self.wanted.width as u64;
        invalid_if(!self.address.is_multiple_of(width) || self.flags & !3 != 0)?;
        let mut bytes = [0; 8];
        let target = Segment {
            bytes: bytes.as_mut_ptr() as u64,
            size: width,
        };
        move_bytes(&[target], &state.device_range(self.address, width)?);
        let (value, wanted) = (u64::from_le_bytes(bytes), self.wanted.bits);
        let mask = u64::MAX >> (64 - 8 * width);
        let sign = (mask >> 1) + 1;
        Ok(match self.flags {
            0 => value.wrapping_sub(wanted) & mask & sign == 0, // GEQ, cyclic
            1 => value == wanted & mask,
            2 => value & wanted & mask != 0,
            _ => !(value | wanted) & mask != 0, // NOR
        })
    }
}

static WAITS: Mutex<Vec<Wait>> = Mutex::new(Vec::new());
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn waits() -> MutexGuard<'static, Vec<Wait>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream waits from here on.
pub(crate) fn add(wait: Wait) {
    let mut waits = waits();
    waits.push(wait);
    COUNT.store(waits.len(), Ordering::Release);
}

/// Whether a call has to do with a stream.
fn concerns(function: &Function, words: &[u64; WORDS], stream: u64) -> bool {
    let is_it = |at: u8| words.get(usize::from(at)) == Some(&stream);
    match function.waits {
        Waits::Context => true,
        Waits::Stream(at) => is_it(at),
        // An event of the stream was recorded when the value was there.
        Waits::Event(_) => false,
        Waits::No => function.stream.is_some_and(is_it) || is_query(function) && is_it(0),
    }
}

fn is_query(function: &Function) -> bool {
    function.base == "cuStreamQuery"
}

/// Forgets fulfilled waits, and those whose memory has ended; whether the call concerns one that is
/// left.
fn is_pending(function: &Function, words: &[u64; WORDS]) -> bool {
    let known = waits().clone();
    let state = lock();
    let is_over = |wait: &Wait| wait.is_fulfilled(&state).unwrap_or(true);
    let (over, left): (Vec<Wait>, Vec<Wait>) = known.into_iter().partition(is_over);
    // Whoever adds one has the state locked.
    drop(state);
    if !over.is_empty() {
        let mut waits = waits();
        waits.retain(|wait| !over.contains(wait));
        COUNT.store(waits.len(), Ordering::Release);
    }
    left.iter()
        .any(|wait| concerns(function, words, wait.stream))
}

/// Before a call: waits until the stream that it concerns has what it waits for. The answer of a
/// call that asks instead.
pub(crate) fn before(function: &Function, words: &[u64; WORDS]) -> Option<CUresult> {
    while COUNT.load(Ordering::Acquire) != 0 && is_pending(function, words) {
        if is_query(function) {
            return Some(NOT_READY);
        }
        std::thread::sleep(PAUSE);
    }
    None
}
