//! What this crate is told of a call, and what it asks the recorder for.

use cutape_format::write::Record;
use cutape_registry::{Arguments, Extent, Function, Length};

/// Writes the body of a note; `None` if the record has no room, then it runs again with more.
pub type Put<'a> = &'a mut dyn FnMut(&mut Record<'_>) -> Option<()>;

/// The recorder, at a call of the program on the calling thread.
pub trait Recorder {
    /// Calls a function of the driver, unrecorded; `None` if the driver does not have it.
    ///
    /// # Safety
    /// The function takes at most four parameters, all integers and pointers, and these are right
    /// for it.
    unsafe fn call(&self, function: u16, arguments: [u64; 4]) -> Option<i32>;

    /// Calls `cuLaunchKernel`, unrecorded; `None` if the driver does not have it.
    ///
    /// # Safety
    /// The arguments are right for it.
    unsafe fn launch(&self, arguments: [u64; 11]) -> Option<i32>;

    /// The current context; 0 if there is none.
    fn context(&self) -> u64;

    /// The device of the current context.
    fn device(&self) -> Option<u64>;

    /// The primary context of a device, if a call has retained it.
    fn primary(&self, device: u64) -> Option<u64>;

    /// The same if it has ended, after a call that has released or reset it.
    fn ended_primary(&self, device: u64) -> Option<u64>;

    /// Whether a stream of the call is being captured, or may be.
    fn is_capturing(&self, stream: u64) -> bool;

    /// A number of the calling thread.
    fn thread_key(&self) -> u64;

    /// Whether any stream may be being captured.
    fn is_any_captured(&self) -> bool;

    /// How many pauses of the recording have begun; `None` while it is paused.
    fn pauses(&self) -> Option<u32>;

    /// Bytes of the trace so far.
    fn trace_length(&self) -> u64;

    /// Now, in nanoseconds of a clock that only goes forward.
    fn nanoseconds(&self) -> u64;

    /// Now, in ticks of the trace.
    fn ticks(&self) -> u64;

    /// The eight bytes at an address of the program; `None` if they cannot be read.
    fn word(&self, address: u64) -> Option<u64>;

    /// Gives the bytes at an address of the program, as many of `length` as can be read; none if
    /// the system has no memory for them.
    fn read(&self, address: u64, length: usize, take: &mut dyn FnMut(&[u8]));

    /// The words of the parameters of all kernels that the call launches; `None` if some are not
    /// known, or it launches none.
    fn kernel_words(&self) -> Option<Vec<u64>>;

    /// The words of host memory that the call's work can reach and that have changed since earlier
    /// work. They are given once.
    fn take_host_changes(&self) -> Vec<u64>;

    /// Writes a note into the thread's part of the trace.
    fn note(&self, kind: u16, put: Put<'_>);

    /// Writes a note that ends with bytes of the recorder's own.
    fn note_bytes(&self, kind: u16, put: Put<'_>, bytes: &[u8]);

    /// Has [`crate::DeviceMemory::exit`] run when the process exits, before the driver's own
    /// handlers.
    fn run_at_exit(&self);
}

/// A call of the program.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The recorder.
    pub recorder: &'a dyn Recorder,
    /// The function.
    pub function: &'static Function,
    /// The arguments in the order of the prototype.
    pub words: &'a [u64],
    /// Ticks of its entry, as in the trace.
    pub start: u64,
    /// The driver has returned `CUDA_SUCCESS`; false before it returns.
    pub has_succeeded: bool,
    /// What the driver has returned; `None` before it returns.
    pub result: Option<i32>,
    /// The ordinal of the thread that makes it.
    pub thread: u32,
    /// Its position among the calls of its thread.
    pub number: u64,
}

impl Call<'_> {
    /// The argument at a position; 0 past the last.
    pub(crate) fn word(&self, position: u8) -> u64 {
        let word = self.words.get(usize::from(position));
        word.copied().unwrap_or(0)
    }

    /// What the argument at a position points at, if that is a word that can be read.
    pub(crate) fn pointee(&self, position: u8) -> Option<u64> {
        self.recorder.word(self.word(position))
    }

    /// The bytes of a length in this call; 0 if they are not known.
    pub(crate) fn bytes_of(&self, length: Length) -> u64 {
        let extent = length.evaluate(self.function, self);
        extent.map_or(0, Extent::content)
    }
}

impl Arguments for Call<'_> {
    fn word(&self, position: u8) -> u64 {
        Call::word(self, position)
    }

    fn pointee(&self, position: u8, bytes: usize) -> Option<u64> {
        let word = Call::pointee(self, position)?;
        Some(if bytes == 4 {
            u64::from(word as u32)
        } else {
            word
        })
    }
}

/// Makes a call of a function with at most one parameter as the program would, so that it is
/// recorded.
pub type RecordedCall<'a> = &'a dyn Fn(u16, u64) -> i32;
