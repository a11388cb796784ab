//! The shape of a kernel launch: grid, block, shared memory and stream.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{Family, Function, LaunchOp, layout};

const GRID: usize = layout::offset_of("CUlaunchConfig", "gridDimX");
const BLOCK: usize = layout::offset_of("CUlaunchConfig", "blockDimX");
const SHARED: usize = layout::offset_of("CUlaunchConfig", "sharedMemBytes");
const STREAM: usize = layout::offset_of("CUlaunchConfig", "hStream");
/// The struct in the list of a launch on several devices.
const ENTRY: &str = "CUDA_LAUNCH_PARAMS";

/// What a launch launches and in which shape, as far as the call has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchShape {
    /// The function's or kernel's handle.
    pub kernel: Option<u64>,
    /// Blocks.
    pub grid: Option<[u64; 3]>,
    /// Threads of a block.
    pub block: Option<[u64; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared: Option<u64>,
    /// The stream's handle.
    pub stream: Option<u64>,
}

impl LaunchShape {
    /// The launches of a call: one, or one for each device.
    #[inline]
    pub fn each(function: &Function, call: &Call<'_>, each: &mut dyn FnMut(Self)) {
        let Family::Launch(LaunchOp::MultiDevice { list, .. }) = function.family else {
            return each(Self::of(function, call));
        };
        let snapshot = call.snapshot(usize::from(list), field::POINTEE);
        let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
        let entries = bytes.unwrap_or_default();
        for entry in entries.chunks_exact(layout::size_of(ENTRY)) {
            each(Self::of_entry(entry));
        }
    }

    fn of_entry(entry: &[u8]) -> Self {
        let offset = |member| layout::offset_of(ENTRY, member);
        let word = |member| {
            let bytes = entry.get(offset(member)..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let number = |at: usize| {
            let bytes = entry.get(at..)?.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*bytes)))
        };
        let three = |at: usize| Some([number(at)?, number(at + 4)?, number(at + 8)?]);
        Self {
            kernel: word("function"),
            grid: three(offset("gridDimX")),
            block: three(offset("blockDimX")),
            shared: number(offset("sharedMemBytes")),
            stream: word("hStream"),
        }
    }

    /// Reads the arguments or the `CUlaunchConfig` of a launch on one device.
    #[inline]
    pub fn of(function: &Function, call: &Call<'_>) -> Self {
        let Family::Launch(op) = function.family else {
            return Self::default();
        };
        let argument = |position: u8| call.argument(usize::from(position));
        let kernel = op.function().map(argument);
        match op {
            LaunchOp::Arguments(at) => {
                let three = |at: u8| Some([argument(at), argument(at + 1), argument(at + 2)]);
                Self {
                    kernel,
                    grid: three(at.grid),
                    block: three(at.grid + 3),
                    shared: Some(argument(at.shared)),
                    stream: Some(argument(at.stream)),
                }
            }
            LaunchOp::Config(at) => {
                let snapshot = call.snapshot(usize::from(at.config), field::POINTEE);
                let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
                let shape = bytes.map(Self::of_config).unwrap_or_default();
                Self { kernel, ..shape }
            }
            LaunchOp::MultiDevice { .. } | LaunchOp::Legacy { .. } => Self {
                kernel,
                stream: function.stream.map(argument),
                ..Self::default()
            },
        }
    }

    fn of_config(bytes: &[u8]) -> Self {
        let word = |offset: usize| {
            let word = bytes.get(offset..)?.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*word)))
        };
        let three = |offset| Some([word(offset)?, word(offset + 4)?, word(offset + 8)?]);
        let stream = bytes.get(STREAM..).and_then(|bytes| bytes.first_chunk());
        Self {
            grid: three(GRID),
            block: three(BLOCK),
            shared: word(SHARED),
            stream: stream.map(|word| u64::from_le_bytes(*word)),
            ..Self::default()
        }
    }
}
