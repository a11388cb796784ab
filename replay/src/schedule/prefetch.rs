//! Calls that are read ahead, in the form in which the thread that plays them needs them: of a usual launch one line of memory and
//! its parameters instead of its records, so that between two launches the driver's own memory stays in the caches.

use std::collections::HashMap;

use cutape_format::{Call, layout::field};
use cutape_registry::id;
use rustc_hash::FxBuildHasher;

use crate::issue::traits::Functions;

/// Positions of the parameters of cuLaunchKernel (CUDA Driver API, Execution Control).
const SHAPE: std::ops::Range<usize> = 1..8;
const STREAM: usize = 8;
const KERNEL_PARAMS: usize = 9;
const EXTRA: usize = 10;

/// A launch by cuLaunchKernel that succeeded and about which nothing else was recorded than its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The call's index.
    pub index: u64,
    /// The recorded thread.
    pub thread: u32,
    /// Recorded handles.
    pub function: u64,
    pub stream: u64,
    /// When it was entered and when it had returned, in ticks of the recording.
    pub entered: u64,
    pub returned: u64,
    /// Grid, block, and bytes of shared memory.
    pub shape: [u32; 7],
    /// Numbers of the two handles: the same for the same value.
    pub function_slot: u32,
    pub stream_slot: u32,
    /// Where its parameters are among those of the batch, and how many bytes.
    pub offset: u32,
    pub length: u16,
    /// Of the two symbols the one with per-thread default streams.
    pub per_thread: bool,
    /// Whether it is compared, or measured.
    pub compared: bool,
}

/// Whose a call is, and where it is among the launches.
#[derive(Clone, Copy, Debug)]
struct Step {
    thread: u32,
    launch: u32,
}

const NO_LAUNCH: u32 = u32::MAX;

/// Calls that are handed over together.
#[derive(Debug, Default)]
pub(crate) struct Batch<'t> {
    /// All of them, and whether each is compared.
    calls: Vec<(Call<'t>, bool)>,
    steps: Vec<Step>,
    launches: Vec<Launch>,
    parameters: Vec<u8>,
}

impl<'t> Batch<'t> {
    /// Empties it. The memory of calls is looked at, so that it is better done where they are read.
    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.steps.clear();
        self.launches.clear();
        self.parameters.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The recorded thread of a call.
    #[inline]
    pub(crate) fn thread(&self, at: usize) -> Option<u32> {
        self.steps.get(at).map(|step| step.thread)
    }

    /// The whole call, and whether it is compared.
    #[inline]
    pub(crate) fn call(&self, at: usize) -> Option<&(Call<'t>, bool)> {
        self.calls.get(at)
    }

    /// The call if it is a usual launch, with its parameters.
    #[inline]
    pub(crate) fn launch(&self, at: usize) -> Option<(&Launch, &[u8])> {
        let launch = self.launches.get(self.steps.get(at)?.launch as usize)?;
        let parameters = self.parameters.get(launch.offset as usize..)?;
        Some((launch, parameters.get(..usize::from(launch.length))?))
    }

    /// Lets the processor fetch what the next call will be played from, while the driver works on this one.
    #[inline]
    pub(crate) fn fetch_behind(&self, at: usize) {
        if let Some((launch, parameters)) = self.launch(at + 1) {
            fetch(launch);
            fetch(&raw const launch.returned);
            if let Some(first) = parameters.first() {
                fetch(first);
            }
        }
    }
}

/// Lets the processor fetch a line of memory.
#[inline]
fn fetch<T>(place: *const T) {
    // SAFETY: a prefetch reads nothing that a program could see, and never faults.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast()) }
}

/// Numbers handle values in the order in which they come.
#[derive(Debug, Default)]
struct Slots {
    by_value: HashMap<u64, u32, FxBuildHasher>,
    last: Option<(u64, u32)>,
}

impl Slots {
    fn of(&mut self, value: u64) -> u32 {
        if let Some((last, slot)) = self.last
            && last == value
        {
            return slot;
        }
        let next = self.by_value.len() as u32;
        let slot = *self.by_value.entry(value).or_insert(next);
        self.last = Some((value, slot));
        slot
    }
}

/// Puts batches together.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    functions: Functions,
    function_slots: Slots,
    stream_slots: Slots,
}

impl Reader {
    /// Adds a call to a batch.
    #[inline]
    pub(crate) fn add<'t>(&mut self, batch: &mut Batch<'t>, call: Call<'t>, compared: bool) {
        let thread = call.thread;
        batch.calls.push((call, compared));
        let launch = batch
            .calls
            .last()
            .and_then(|(call, compared)| self.launch(call, *compared, &mut batch.parameters));
        let launch = match launch {
            Some(launch) => {
                batch.launches.push(launch);
                batch.launches.len() as u32 - 1
            }
            None => NO_LAUNCH,
        };
        batch.steps.push(Step { thread, launch });
    }

    /// What is to be known of a usual launch; its parameters are put behind the others.
    fn launch(&mut self, call: &Call, compared: bool, parameters: &mut Vec<u8>) -> Option<Launch> {
        let per_thread = match self.functions.of(call)?.id {
            id::cuLaunchKernel => false,
            id::cuLaunchKernel_ptsz => true,
            _ => return None,
        };
        let returned = call.leave.filter(|leave| leave.result == 0)?.ticks;
        if call.notes().next().is_some() {
            return None;
        }
        let mut words = [0; EXTRA + 1];
        call.arguments(&mut words);
        if words[KERNEL_PARAMS] == 0 || words[EXTRA] != 0 {
            return None;
        }
        let packed = call.snapshot(KERNEL_PARAMS, field::KERNEL_PARAMETERS)?;
        let packed = packed.bytes.inline().filter(|bytes| !bytes.is_empty())?;
        let length = u16::try_from(packed.len()).ok()?;
        let offset = u32::try_from(parameters.len()).ok()?;
        parameters.extend_from_slice(packed);
        // Each begins at a word.
        parameters.resize(parameters.len().next_multiple_of(8), 0);
        let mut shape = [0; SHAPE.end - SHAPE.start];
        for (place, &word) in shape.iter_mut().zip(&words[SHAPE]) {
            *place = word as u32;
        }
        Some(Launch {
            index: call.index,
            thread: call.thread,
            function: words[0],
            stream: words[STREAM],
            entered: call.ticks,
            returned,
            shape,
            function_slot: self.function_slots.of(words[0]),
            stream_slot: self.stream_slots.of(words[STREAM]),
            offset,
            length,
            per_thread,
            compared,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

    fn event<'a>(name: &'a str, arguments: &'a [u64]) -> NewCall<'a> {
        NewCall {
            name,
            arguments,
            ..NewCall::default()
        }
    }

    #[test]
    fn usual_launches_are_told_from_others() {
        let launch = |function, stream, params, extra| {
            [function, 2, 3, 4, 5, 6, 7, 8, stream, params, extra]
        };
        let packed = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let given = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        let mut add = |name, words: &[u64], snapshots, result| {
            let captured = NewCall {
                snapshots,
                ..event(name, words)
            };
            builder.call(captured).leave(0, result, &[]);
        };
        let usual = launch(0x70, 0x90, 16, 0);
        add("cuLaunchKernel", &usual, &given, 0);
        add("cuLaunchKernel_ptsz", &launch(0x71, 0x90, 16, 0), &given, 0);
        add("cuLaunchKernel", &usual, &given, 0);
        // Refused; with `extra`; without parameters; another function.
        add("cuLaunchKernel", &usual, &given, 1);
        add("cuLaunchKernel", &launch(0x70, 0x90, 16, 8), &given, 0);
        add("cuLaunchKernel", &usual, &[], 0);
        add("cuLaunchCooperativeKernel", &usual[..10], &given, 0);
        let file = format!("cutape-ahead-{}.cutape", std::process::id());
        let path = std::env::temp_dir().join(file);
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (mut reader, mut batch) = (Reader::default(), Batch::default());
        for call in trace.calls() {
            reader.add(&mut batch, call, true);
        }
        assert_eq!(batch.len(), 7);
        let usual: Vec<_> = (0..7).filter_map(|at| batch.launch(at)).collect();
        let told = |at: usize| {
            let (launch, parameters) = usual[at];
            assert_eq!(parameters, packed);
            let slots = (launch.function_slot, launch.stream_slot);
            (launch.index, launch.function, slots, launch.per_thread)
        };
        assert_eq!(usual.len(), 3);
        assert_eq!(told(0), (0, 0x70, (0, 0), false));
        assert_eq!(told(1), (1, 0x71, (1, 0), true));
        assert_eq!(told(2), (2, 0x70, (0, 0), false));
        assert_eq!(usual[0].0.shape, [2, 3, 4, 5, 6, 7, 8]);
        batch.clear();
        assert!(batch.is_empty() && batch.launch(0).is_none());
    }
}
