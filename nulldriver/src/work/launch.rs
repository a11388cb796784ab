//! Kernel launches: shapes and parameters.

use cutape_driver::types::{CUDA_KERNEL_NODE_PARAMS, CUlaunchConfig};

use crate::call::answer::{
    Answer, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES,
    invalid_if, reject_if,
};
use crate::call::argument::{In, Stream, arguments};
use crate::call::error_log;
use crate::crash;
use crate::object::device::MULTIPROCESSORS;
use crate::object::function::{Launchable, Spec};
use crate::state::State;

// CU_LAUNCH_PARAM_*.
const END: u64 = 0;
const BUFFER_POINTER: u64 = 1;
const BUFFER_SIZE: u64 = 2;

arguments! {
    /// The shape of a launch: grid, block, bytes of dynamic shared memory.
    pub(crate) struct Shape {
        pub(crate) grid: [u32; 3],
        pub(crate) block: [u32; 3],
        pub(crate) shared: u32,
    }
}

macro_rules! shape_from {
    ($($config:ty),*) => {$(
        impl From<&$config> for Shape {
            fn from(config: &$config) -> Self {
                Shape {
                    grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
                    block: [config.blockDimX, config.blockDimY, config.blockDimZ],
                    shared: config.sharedMemBytes,
                }
            }
        }
    )*};
}

shape_from!(CUlaunchConfig, CUDA_KERNEL_NODE_PARAMS);

impl Shape {
    /// Checks the shape against the limits of the device and of the function.
    pub(crate) fn check(&self, target: &Launchable) -> Answer {
        let fits = |sides: [u32; 3], limits: [u32; 3]| {
            let mut pairs = sides.into_iter().zip(limits);
            pairs.all(|(side, limit)| (1..=limit).contains(&side))
        };
        let grid_fits = fits(self.grid, [i32::MAX as u32, 65_535, 65_535]);
        invalid_if(!grid_fits || !fits(self.block, [1024, 1024, 64]))?;
        let threads = self.threads();
        let required = target.spec.image().required_threads;
        let most = target.dynamic_shared;
        if self.shared > most {
            // The words of the real driver (580).
            error_log::say(|| {
                format!(
                    "Requested dynamic shared memory size of {} bytes exceeds maximum dynamic \
                     shared memory size of {most} bytes",
                    self.shared
                )
            });
        }
        let is_refused = threads > target.spec.declared_threads()
            || required.is_some_and(|required| required != self.block)
            || self.shared > most;
        invalid_if(is_refused)?;
        // There are not enough registers.
        reject_if(threads > target.spec.max_threads(), LAUNCH_OUT_OF_RESOURCES)
    }

    /// Checks that all blocks of a cooperative launch fit onto the device at once.
    pub(crate) fn check_cooperative(&self, target: &Launchable) -> Answer {
        let active = target
            .spec
            .active_blocks(self.threads(), u64::from(self.shared));
        let blocks: u64 = self.grid.iter().map(|&size| u64::from(size)).product();
        reject_if(
            blocks > u64::from(active * MULTIPROCESSORS),
            COOPERATIVE_LAUNCH_TOO_LARGE,
        )
    }

    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

arguments! {
    /// Where the parameters of a launch are: `kernelParams` and `extra`.
    pub(crate) struct Parameters {
        pub(crate) pointers: u64,
        pub(crate) extra: u64,
    }
}

impl Parameters {
    /// Reads the parameters as the real driver does, so that a wild pointer faults here too.
    pub(crate) fn read_all(self, spec: &Spec) -> Answer {
        let expected = &spec.image().parameters;
        match (self.pointers, self.extra) {
            (0, 0) => invalid_if(!expected.is_empty()),
            (pointers, 0) => {
                for (index, parameter) in expected.iter().enumerate() {
                    let pointer = In::<u64>::at(pointers).get_at(index)?;
                    touch(pointer, u64::from(parameter.size));
                }
                Ok(())
            }
            (0, _) => {
                let (buffer, size) = self.buffer()?;
                touch(buffer, size);
                let ends = expected.iter();
                let ends =
                    ends.map(|parameter| u64::from(parameter.offset) + u64::from(parameter.size));
                // Longer than the parameters, if only by padding: 16 bytes for 10 (driver 580.159, H100,
                // 2026-11-26). That all longer ones and nodes of graphs are refused so is assumed.
                reject_if(
                    ends.max().is_some_and(|end| size > end),
                    LAUNCH_OUT_OF_RESOURCES,
                )
            }
            // Both forms at once (measured).
            _ => Err(INVALID_VALUE),
        }
    }

    /// The values of the parameters, copied.
    pub(crate) fn values(self, spec: &Spec) -> Answer<Vec<Box<[u8]>>> {
        self.read_all(spec)?;
        let copy = |address: u64, size: u32| -> Answer<Box<[u8]>> {
            Ok(In::<u8>::at(address).list(size as usize)?.into())
        };
        let expected = spec.image().parameters.iter();
        if self.extra == 0 {
            let pointers = In::<u64>::at(self.pointers);
            let values = expected.enumerate();
            return values
                .map(|(index, parameter)| copy(pointers.get_at(index)?, parameter.size))
                .collect();
        }
        let (buffer, size) = self.buffer()?;
        let values = expected.map(|parameter| {
            let end = u64::from(parameter.offset) + u64::from(parameter.size);
            invalid_if(end > size)?;
            copy(buffer + u64::from(parameter.offset), parameter.size)
        });
        values.collect()
    }

    /// Address and size of the buffer that `extra` names.
    fn buffer(self) -> Answer<(u64, u64)> {
        // The real driver does not always notice a list without an end either.
        const MAX_PAIRS: usize = 8;
        let words = In::<u64>::at(self.extra);
        let (mut buffer, mut size) = (0, 0);
        for pair in 0..MAX_PAIRS {
            match words.get_at(2 * pair)? {
                END => break,
                BUFFER_POINTER => buffer = words.get_at(2 * pair + 1)?,
                BUFFER_SIZE => {
                    let pointer = words.get_at(2 * pair + 1)?;
                    touch(pointer, 8);
                    size = In::<u64>::at(pointer).get()?;
                }
                _ => return Err(INVALID_VALUE),
            }
            if buffer != 0 && size != 0 {
                break;
            }
        }
        Ok((buffer, size))
    }
}

/// Reads every byte; a wild pointer faults, NULL included.
fn touch(address: u64, size: u64) {
    if size > 0 && address == 0 {
        crash::segmentation_fault();
    }
    for offset in 0..size {
        // SAFETY: by the C prototype the program points at that many readable bytes; if not, the
        // fault is the purpose.
        unsafe { std::ptr::read_volatile(address.wrapping_add(offset) as *const u8) };
    }
}

/// A function that may be launched on a stream now.
pub(crate) fn find_target(state: &State, function: u64, stream: Stream) -> Answer<Launchable> {
    let current = state.current()?;
    let target = state.launchable(function)?;
    state.check_stream_of_current(stream)?;
    // A function of another context (measured).
    reject_if(
        target.context != 0 && target.context != current,
        INVALID_HANDLE,
    )?;
    Ok(target)
}
