//! Work that the recorder enqueues, the objects that it needs, and waits for it. All calls here are
//! unrecorded.

use cutape_driver::digest;
use cutape_registry::id;

use crate::recorder::Recorder;

/// CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING; CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP, which
/// are CU_MEMHOSTREGISTER_PORTABLE and _DEVICEMAP too.
const NON_BLOCKING: u64 = 1;
const NO_TIMING: u64 = 2;
const PORTABLE_MAPPED: u64 = 3;
/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.
const DEVICE_ORDINAL: u64 = 9;
/// CU_STREAM_CAPTURE_MODE_RELAXED.
const RELAXED: i32 = 2;
/// CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
const ALREADY_REGISTERED: i32 = 712;
/// The answer of our own for a function that the driver does not have: CUDA_ERROR_NOT_SUPPORTED.
const NOT_SUPPORTED: i32 = 801;

/// A result of the driver unless it is success.
pub(crate) type Outcome<T = ()> = Result<T, i32>;

fn outcome(result: Option<i32>) -> Outcome {
    match result {
        Some(0) => Ok(()),
        Some(result) => Err(result),
        None => Err(NOT_SUPPORTED),
    }
}

/// Asks and orders.
impl dyn Recorder + '_ {
    /// Calls the driver with what its function takes: handles of the driver's, and addresses of
    /// memory of ours.
    fn drive(&self, function: u16, arguments: [u64; 4]) -> Outcome {
        // SAFETY: private to this file, whose functions give what the driver's functions take.
        outcome(unsafe { self.call(function, arguments) })
    }

    /// The number that the driver writes through the first argument.
    fn made(&self, function: u16, [first, second, third]: [u64; 3]) -> Outcome<u64> {
        let mut made = 0_u64;
        self.drive(function, [(&raw mut made) as u64, first, second, third])?;
        Ok(made)
    }

    /// Does something while a context is current.
    pub(crate) fn in_context(&self, context: u64, act: impl FnOnce()) {
        if self.context() == context {
            return act();
        }
        if self
            .drive(id::cuCtxPushCurrent_v2, [context, 0, 0, 0])
            .is_ok()
        {
            act();
            let _ = self.made(id::cuCtxPopCurrent_v2, [0; 3]);
        }
    }

    /// Makes a call that would invalidate a capture in progress, of this thread or another.
    fn beside_captures<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED;
        let mut exchange = || {
            let arguments = [(&raw mut mode) as u64, 0, 0, 0];
            self.drive(id::cuThreadExchangeStreamCaptureMode, arguments)
        };
        let is_changed = exchange().is_ok();
        let result = act();
        if is_changed {
            let _ = exchange();
        }
        result
    }

    /// Start and length of the device memory that an address lies in.
    pub(crate) fn range_of(&self, address: u64) -> Outcome<[u64; 2]> {
        let mut range = [0; 2];
        let [start, length] = range
            .each_mut()
            .map(|word: &mut u64| (&raw mut *word) as u64);
        self.drive(id::cuMemGetAddressRange_v2, [start, length, address, 0])?;
        Ok(range)
    }

    /// The device that memory of a pool lies on.
    pub(crate) fn device_of(&self, address: u64) -> Outcome<u64> {
        self.made(id::cuPointerGetAttribute, [DEVICE_ORDINAL, address, 0])
    }
}

/// Objects in the current context.
impl dyn Recorder + '_ {
    /// The kernel that digests memory.
    pub(crate) fn load_digest_kernel(&self) -> Outcome<u64> {
        let module = self.made(id::cuModuleLoadData, [digest::PTX.as_ptr() as u64, 0, 0])?;
        let name = digest::NAME.as_ptr() as u64;
        self.made(id::cuModuleGetFunction, [module, name, 0])
    }

    /// A stream that the legacy default stream does not wait for.
    pub(crate) fn create_stream(&self) -> Outcome<u64> {
        self.made(id::cuStreamCreate, [NON_BLOCKING, 0, 0])
    }

    pub(crate) fn destroy_stream(&self, stream: u64) {
        let _ = self.drive(id::cuStreamDestroy_v2, [stream, 0, 0, 0]);
    }

    pub(crate) fn create_event(&self) -> Outcome<u64> {
        self.made(id::cuEventCreate, [NO_TIMING, 0, 0])
    }

    /// Page-locked memory that all devices can write.
    pub(crate) fn allocate_on_host(&self, length: u64) -> Outcome<u64> {
        self.beside_captures(|| self.made(id::cuMemHostAlloc, [length, PORTABLE_MAPPED, 0]))
    }

    /// Page-locks memory of ours for all contexts; the address by which devices write there.
    pub(crate) fn register(&self, start: u64, length: u64) -> Outcome<u64> {
        let arguments = [start, length, PORTABLE_MAPPED, 0];
        match self.beside_captures(|| self.drive(id::cuMemHostRegister_v2, arguments)) {
            // By a context that has ended.
            Ok(()) | Err(ALREADY_REGISTERED) => {}
            Err(refused) => return Err(refused),
        }
        self.made(id::cuMemHostGetDevicePointer_v2, [start, 0, 0])
    }

    /// Ends that, in the same context, and waits for its work.
    pub(crate) fn unregister(&self, start: u64) {
        // A failure means that it has ended already.
        let arguments = [start, 0, 0, 0];
        let _ = self.beside_captures(|| self.drive(id::cuMemHostUnregister, arguments));
    }
}

/// Work, in the order of a stream.
impl dyn Recorder + '_ {
    /// Copies device memory to memory of ours, page-locked where it can be.
    pub(crate) fn copy(&self, target: u64, source: u64, length: u64, stream: u64) -> Outcome {
        self.drive(id::cuMemcpyDtoHAsync_v2, [target, source, length, stream])
    }

    /// Writes a value to an address by which devices write page-locked memory of ours.
    pub(crate) fn write_value(&self, address: u64, value: u32, stream: u64) -> Outcome {
        let arguments = [stream, address, value.into(), 0];
        self.drive(id::cuStreamWriteValue32_v2, arguments)
    }

    /// Sets device memory to zeros.
    pub(crate) fn set_to_zeros(&self, address: u64, length: u64, stream: u64) -> Outcome {
        self.drive(id::cuMemsetD8Async, [address, 0, length, stream])
    }

    /// Launches the kernel that digests memory: of an address and a length, to a slot, then a mark.
    pub(crate) fn launch_digest(
        &self,
        kernel: u64,
        (address, length): (u64, u64),
        slot: u64,
        mark: u64,
        stream: u64,
    ) -> Outcome {
        let parameters = [address, length, slot, mark];
        let pointers = parameters
            .each_ref()
            .map(|parameter| &raw const *parameter as u64);
        let pointers = pointers.as_ptr() as u64;
        let blocks = u64::from(digest::blocks(length));
        let threads = u64::from(digest::THREADS);
        let arguments = [kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, 0];
        // SAFETY: the arguments of cuLaunchKernel; the kernel has four parameters of 8 bytes. The
        // memory is alive: calls that free it wait for `Prepared::done` first.
        outcome(unsafe { self.launch(arguments) })
    }

    /// Copies device memory to memory of ours; returns when it is there. In a stream of its own it
    /// waits for no work of the program's.
    pub(crate) fn copy_now(&self, target: u64, source: u64, length: u64, stream: u64) -> Outcome {
        self.beside_captures(|| {
            self.copy(target, source, length, stream)?;
            self.drive(id::cuStreamSynchronize, [stream, 0, 0, 0])
        })
    }

    /// Records an event after all work of a context.
    pub(crate) fn record_context(&self, event: u64, context: u64) -> Outcome {
        self.drive(id::cuCtxRecordEvent, [context, event, 0, 0])
    }

    /// Whether the work before an event is complete.
    pub(crate) fn ask_event(&self, event: u64) -> Outcome {
        self.beside_captures(|| self.drive(id::cuEventQuery, [event, 0, 0, 0]))
    }

    pub(crate) fn destroy_event(&self, event: u64) {
        let _ = self.drive(id::cuEventDestroy_v2, [event, 0, 0, 0]);
    }

    pub(crate) fn record(&self, event: u64, stream: u64) -> Outcome {
        self.drive(id::cuEventRecord, [event, stream, 0, 0])
    }

    /// Lets a stream wait for an event.
    pub(crate) fn order_after(&self, stream: u64, event: u64) -> Outcome {
        self.drive(id::cuStreamWaitEvent, [stream, event, 0, 0])
    }
}

/// Waits of the calling thread. No lock is held during those for work of the program.
impl dyn Recorder + '_ {
    pub(crate) fn wait_for_event(&self, event: u64) -> Outcome {
        self.beside_captures(|| self.drive(id::cuEventSynchronize, [event, 0, 0, 0]))
    }

    pub(crate) fn wait_for_stream(&self, stream: u64) -> Outcome {
        self.beside_captures(|| self.drive(id::cuStreamSynchronize, [stream, 0, 0, 0]))
    }

    pub(crate) fn wait_for_context(&self) -> Outcome {
        self.drive(id::cuCtxSynchronize, [0; 4])
    }
}
