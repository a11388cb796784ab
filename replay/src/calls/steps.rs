//! Calls to repeat: arguments with live handles and addresses, and the memory that they point to.

use std::sync::Arc;
use std::time::Duration;

use cutape_format::Call;
use cutape_registry::{FUNCTIONS, Function, id};

use crate::api::Code;
use crate::api::buffer::Buffer;
use crate::objects::kernels::SharedParameters;

/// A call as it was issued to the driver.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub index: u64,
    pub function: &'static Function,
    pub args: Vec<u64>,
    /// The current context at the call.
    pub context: u64,
}

/// One step of an iteration.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes what the program had written to pinned or managed memory.
    Store { address: u64, bytes: Vec<u8> },
    /// Calls the driver.
    Call(Issued),
    /// Copies bytes that an exchange had changed, which is left out: a call of the replay itself.
    Put { issued: Issued, bytes: Arc<[u8]> },
    /// The time that the program took for itself before its next call.
    Pause(Duration),
}

/// Collects the steps of one call of the trace. The player has one while it plays a call to repeat.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) steps: Vec<Step>,
    pub(crate) buffers: Vec<Buffer>,
    /// What kernels are launched with, of all calls to repeat.
    pub(crate) parameters: SharedParameters,
    /// The first result other than success.
    pub(crate) failed: Option<Code>,
    /// Why the call was not issued.
    pub(crate) skipped: Option<String>,
}

impl Recorder {
    /// Adds a call of the driver.
    pub(crate) fn issued(
        &mut self,
        call: &Call,
        function: &'static Function,
        args: &[u64],
        context: u64,
        result: Code,
    ) {
        if result != 0 {
            self.failed.get_or_insert(result);
        }
        self.steps.push(Step::Call(Issued {
            index: call.index,
            function,
            args: args.to_vec(),
            context,
        }));
    }

    /// Adds bytes that were written to host memory of the program.
    pub(crate) fn stored(&mut self, address: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.steps.push(Step::Store { address, bytes });
    }

    /// Adds bytes of an exchange that were put back, on a stream of the current context.
    pub(crate) fn put(
        &mut self,
        call: &Call,
        (address, bytes): (u64, &[u8]),
        (stream, per_thread): (u64, bool),
        context: u64,
    ) {
        let id = match per_thread {
            true => id::cuMemcpyHtoDAsync_v2_ptsz,
            false => id::cuMemcpyHtoDAsync_v2,
        };
        let Some(function) = FUNCTIONS.get(usize::from(id)) else {
            return;
        };
        let bytes: Arc<[u8]> = bytes.into();
        let args = [address, bytes.as_ptr() as u64, bytes.len() as u64, stream];
        let issued = Issued {
            index: call.index,
            function,
            args: args.to_vec(),
            context,
        };
        self.steps.push(Step::Put { issued, bytes });
    }

    /// The call is not issued.
    pub(crate) fn skip(&mut self, why: &str) {
        self.skipped = Some(why.to_owned());
    }

    /// Keeps memory that arguments point to.
    pub(crate) fn keep(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        self.buffers.extend(buffers);
    }
}

/// The calls of the trace among the steps.
pub(crate) fn calls_of(steps: &[Step]) -> impl Iterator<Item = &Issued> {
    steps.iter().filter_map(|step| match step {
        Step::Call(issued) => Some(issued),
        Step::Store { .. } | Step::Put { .. } | Step::Pause(_) => None,
    })
}

/// All that the steps issue to the driver.
pub(crate) fn issued_by(steps: &[Step]) -> impl Iterator<Item = &Issued> {
    steps.iter().filter_map(|step| match step {
        Step::Call(issued) | Step::Put { issued, .. } => Some(issued),
        Step::Store { .. } | Step::Pause(_) => None,
    })
}
