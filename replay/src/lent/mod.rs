//! Host memory of the replay that the driver uses beyond one call.

pub(crate) mod host_signals;
pub(crate) mod in_flight;
pub(crate) mod late_writes;
pub(crate) mod launch_marks;
pub(crate) mod shared_memory;

use std::collections::HashMap;
use std::ops::Range;

use crate::api::buffer::Buffer;
use crate::lent::host_signals::HostSignals;
use crate::lent::in_flight::InFlight;
use crate::lent::late_writes::LateWrites;
use crate::lent::launch_marks::LaunchMarks;
use crate::lent::shared_memory::SharedMemory;
use crate::objects::kernels::PARAMETER_BYTES;
use crate::process::pages::Pages;

/// Most kernel parameters that the stub array points at.
const PARAMETERS: usize = 1024;
/// Bytes of the driver's structs that a value may be taken for.
const NOTHING: usize = 4096;

/// Memory that the driver may use after the call that it was lent for.
#[derive(Debug, Default)]
pub(crate) struct LentMemory {
    /// As long as the replay runs.
    pub kept: Vec<Buffer>,
    /// By recorded handle: the image of a library that lives, which the driver uses in place.
    pub images: HashMap<u64, Vec<Buffer>>,
    /// By recorded start: the memory in the place of what a registration that lives registered.
    pub registered: HashMap<u64, Pages>,
    /// Of asynchronous calls, until the device has been waited for.
    pub in_flight: InFlight,
    /// What the notes of the trace say of host memory that the device reads without a copy. By
    /// recorded start: index of the call that made the allocation, and its bytes.
    pub shadows: HashMap<u64, (u64, Buffer)>,
    /// What calls that waited have found there, and when the recorder had looked: newer than what it
    /// found before calls that were entered earlier than that.
    pub found: Vec<(Range<u64>, u64)>,
    /// What the program may have written there during a wait.
    pub late_writes: LateWrites,
    /// Launches that may wait for it.
    pub launch_marks: LaunchMarks,
    /// Work whose end the program may have learned without a call.
    pub host_signals: HostSignals,
    /// Which of it ranks share.
    pub shared_memory: SharedMemory,
    /// Zeros.
    nothing: Option<Buffer>,
    /// Pointers to zeros.
    stub: Option<Buffer>,
}

impl LentMemory {
    /// Nothing yet; it is known which launches an earlier replay has seen waiting.
    pub(crate) fn new(waiting_launches: &[u64]) -> Self {
        Self {
            launch_marks: LaunchMarks::knowing(waiting_launches),
            ..Self::default()
        }
    }

    /// Zeros, for a handle without an object.
    pub(crate) fn nothing(&mut self) -> u64 {
        let nothing = self.nothing.get_or_insert_with(|| Buffer::zeroed(NOTHING));
        nothing.address()
    }

    /// An array of pointers to zeros, for launches whose parameters the driver does not read.
    pub(crate) fn stub(&mut self) -> u64 {
        let stub = self.stub.get_or_insert_with(|| {
            let zeros = Buffer::zeroed(PARAMETER_BYTES);
            let array = Buffer::of_words(&[zeros.address(); PARAMETERS]);
            self.kept.push(zeros);
            array
        });
        stub.address()
    }
}
