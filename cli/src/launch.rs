//! The shape of a kernel launch: grid, block, shared memory and stream.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{Family, Function, LaunchOp, layout};

const GRID: usize = layout::offset_of("CUlaunchConfig", "gridDimX");
const BLOCK: usize = layout::offset_of("CUlaunchConfig", "blockDimX");
const SHARED: usize = layout::offset_of("CUlaunchConfig", "sharedMemBytes");
const STREAM: usize = layout::offset_of("CUlaunchConfig", "hStream");

/// What a launch launches and in which shape, as far as the call has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchShape {
    /// The function's or kernel's handle.
    pub(crate) kernel: Option<u64>,
    /// Blocks.
    pub(crate) grid: Option<[u64; 3]>,
    /// Threads of a block.
    pub(crate) block: Option<[u64; 3]>,
    /// Bytes of dynamic shared memory.
    pub(crate) shared: Option<u64>,
    pub(crate) stream: Option<u64>,
}

impl LaunchShape {
    /// Reads the arguments or the `CUlaunchConfig` of a launch.
    #[inline]
    pub(crate) fn of(function: &Function, call: &Call<'_>) -> Self {
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
