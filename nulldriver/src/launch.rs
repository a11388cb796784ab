//! Execution Control: launches. Everything is checked, the parameters are read, and no code runs.

use cutape_driver::types::{CUDA_KERNEL_NODE_PARAMS, CUlaunchConfig};

use crate::answer::{
    Answer, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES,
};
use crate::argument::Argument as _;
use crate::argument::{Call, In, IsPerThread, Stream};
use crate::device::MULTIPROCESSORS;
use crate::dispatch::{Entry, bind};
use crate::function::{Launchable, Spec};
use crate::graph_work::{Kernel, Work};
use crate::launch_attribute::{self, Wishes};
use crate::occupancy::active_blocks;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuLaunchKernel", launch_kernel),
    ("cuLaunchCooperativeKernel", launch_cooperative),
    ("cuLaunchKernelEx", launch_with),
    // Refused by the real driver on one device, whatever the arguments (measured).
    (
        "cuLaunchCooperativeKernelMultiDevice",
        bind(|| Err(INVALID_VALUE)),
    ),
];

/// `CU_LAUNCH_PARAM_END`, `BUFFER_POINTER`, `BUFFER_SIZE`.
const END: u64 = 0;
const BUFFER: u64 = 1;
const BUFFER_SIZE: u64 = 2;

/// The shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// Checks a shape against the limits of the device and of the function.
pub(crate) fn check_shape(target: &Launchable, shape: &Shape) -> Answer {
    let [x, y, z] = shape.grid;
    let grid_fits =
        x >= 1 && y >= 1 && z >= 1 && x <= i32::MAX as u32 && y <= 65_535 && z <= 65_535;
    let [bx, by, bz] = shape.block;
    let block_fits = bx >= 1 && by >= 1 && bz >= 1 && bx <= 1024 && by <= 1024 && bz <= 64;
    if !grid_fits || !block_fits {
        return Err(INVALID_VALUE);
    }
    let threads = bx * by * bz;
    let image = target.spec.image();
    let shape_is_required = image
        .required_threads
        .is_some_and(|required| required != shape.block);
    if threads > image.max_threads.unwrap_or(1024).min(1024) || shape_is_required {
        return Err(INVALID_VALUE);
    }
    if shape.shared > target.dynamic_shared {
        return Err(INVALID_VALUE);
    }
    if threads > target.spec.max_threads() {
        // The registers do not suffice.
        return Err(LAUNCH_OUT_OF_RESOURCES);
    }
    Ok(())
}

/// Reads the parameters as the real driver does, so that a bad pointer faults here too.
fn read_parameters(spec: &Spec, parameters: u64, extra: u64) -> Answer {
    let expected = &spec.image().parameters;
    match (parameters, extra) {
        (0, 0) if expected.is_empty() => Ok(()),
        (0, 0) => Err(INVALID_VALUE),
        (_, 0) => {
            for (index, parameter) in expected.iter().enumerate() {
                let pointer = In::<u64>::at(parameters).get_at(index)?;
                touch(pointer, u64::from(parameter.size));
            }
            Ok(())
        }
        (0, _) => read_extra(extra),
        // Both forms at once (measured).
        _ => Err(INVALID_VALUE),
    }
}

/// The values of a kernel's parameters, copied.
pub(crate) fn parameter_values(spec: &Spec, parameters: u64, extra: u64) -> Answer<Vec<Box<[u8]>>> {
    read_parameters(spec, parameters, extra)?;
    let copy = |address: u64, size: u32| -> Answer<Box<[u8]>> {
        (0..size as usize)
            .map(|at| In::<u8>::at(address).get_at(at))
            .collect()
    };
    let expected = spec.image().parameters.iter();
    if extra == 0 {
        let values = expected.enumerate().map(|(index, parameter)| {
            copy(In::<u64>::at(parameters).get_at(index)?, parameter.size)
        });
        return values.collect();
    }
    let (buffer, size) = extra_buffer(extra)?;
    let values = expected.map(|parameter| {
        let end = u64::from(parameter.offset) + u64::from(parameter.size);
        match end <= size {
            true => copy(buffer + u64::from(parameter.offset), parameter.size),
            false => Err(INVALID_VALUE),
        }
    });
    values.collect()
}

fn read_extra(extra: u64) -> Answer {
    let (buffer, size) = extra_buffer(extra)?;
    touch(buffer, size);
    Ok(())
}

/// Address and size of the buffer that `extra` names.
fn extra_buffer(extra: u64) -> Answer<(u64, u64)> {
    let words = In::<u64>::at(extra);
    let (mut buffer, mut size) = (0, 0);
    // As many pairs as anybody needs; a list without an end is not always noticed by the real driver either.
    for pair in 0..8 {
        match words.get_at(2 * pair)? {
            END => break,
            BUFFER => buffer = words.get_at(2 * pair + 1)?,
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

/// Reads every byte; a wild pointer faults, NULL included.
fn touch(address: u64, size: u64) {
    if size > 0 && address == 0 {
        crate::crash::segmentation_fault();
    }
    for offset in 0..size {
        // SAFETY: by the C prototype the program points at so many readable bytes; if not, the fault is the purpose.
        unsafe { std::ptr::read_volatile(address.wrapping_add(offset) as *const u8) };
    }
}

impl State {
    /// Finds a function that may be launched on a stream now.
    pub(crate) fn prepare(&self, function: u64, stream: Stream) -> Answer<Launchable> {
        let current = self.current()?;
        let target = self.launchable(function)?;
        self.check_stream_of_current(stream)?;
        if target.context != 0 && target.context != current {
            // A function of another context (measured).
            return Err(INVALID_HANDLE);
        }
        Ok(target)
    }

    /// Notes that a function's code is on the device now.
    pub(crate) fn mark_loaded(&mut self, function: u64) {
        if let Some(object) = self.functions.get_mut(&function) {
            object.is_loaded = true;
        }
    }
}

fn check_cooperative(target: &Launchable, shape: &Shape) -> Answer {
    let threads = shape.block.iter().product();
    let fit =
        u64::from(active_blocks(&target.spec, threads, u64::from(shape.shared)) * MULTIPROCESSORS);
    let blocks: u64 = shape.grid.iter().map(|&size| u64::from(size)).product();
    if blocks > fit {
        Err(COOPERATIVE_LAUNCH_TOO_LARGE)
    } else {
        Ok(())
    }
}

/// The arguments that two launching calls have in common: function, grid, block, shared memory, stream, parameters.
fn launch(call: &Call, is_cooperative: bool) -> Answer {
    let word = |index| u32::read(call, index);
    let function = u64::read(call, 0);
    let shape = Shape {
        grid: [word(1), word(2), word(3)],
        block: [word(4), word(5), word(6)],
        shared: word(7),
    };
    let stream = Stream::read(call, 8);
    let parameters = u64::read(call, 9);
    let extra = if is_cooperative {
        0
    } else {
        u64::read(call, 10)
    };
    let mut state = lock();
    let target = state.prepare(function, stream)?;
    check_shape(&target, &shape)?;
    if target.cluster.iter().any(|&size| size > 0) {
        // The function asks for clusters; the grid must divide as with an attribute.
        let config = config_of(&shape);
        launch_attribute::check(&state, &config, &target)?;
    }
    if is_cooperative {
        check_cooperative(&target, &shape)?;
    }
    put(
        &mut state,
        stream,
        &target,
        function,
        &shape,
        (parameters, extra),
    )?;
    state.mark_loaded(function);
    Ok(())
}

/// Reads the parameters; on a stream that captures, makes a node of the launch. Whether it was captured.
fn put(
    state: &mut State,
    stream: Stream,
    target: &Launchable,
    function: u64,
    shape: &Shape,
    (parameters, extra): (u64, u64),
) -> Answer<bool> {
    let Some(site) = state.capture_of(stream)? else {
        read_parameters(&target.spec, parameters, extra)?;
        return Ok(false);
    };
    let values = parameter_values(&target.spec, parameters, extra)?;
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: function as *mut _,
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared,
        kernelParams: std::ptr::null_mut(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: state.current()? as *mut _,
    };
    let work = Work::Kernel(Box::new(Kernel::new(params, values)));
    state.add_captured(site, work)?;
    Ok(true)
}

fn config_of(shape: &Shape) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared,
        hStream: std::ptr::null_mut(),
        attrs: std::ptr::null_mut(),
        numAttrs: 0,
    }
}

fn answer(result: Answer) -> crate::answer::CUresult {
    result.err().unwrap_or(crate::answer::SUCCESS)
}

fn launch_kernel(call: &Call) -> crate::answer::CUresult {
    answer(launch(call, false))
}

fn launch_cooperative(call: &Call) -> crate::answer::CUresult {
    answer(launch(call, true))
}

fn launch_with(call: &Call) -> crate::answer::CUresult {
    answer(launch_config(
        In::read(call, 0),
        u64::read(call, 1),
        u64::read(call, 2),
        u64::read(call, 3),
        IsPerThread::read(call, 0),
    ))
}

fn launch_config(
    config: In<CUlaunchConfig>,
    function: u64,
    parameters: u64,
    extra: u64,
    variant: IsPerThread,
) -> Answer {
    let mut state = lock();
    state.current()?;
    let config = config.get()?;
    let stream = Stream::from_raw(config.hStream as u64, variant.0);
    let target = state.prepare(function, stream)?;
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
    };
    check_shape(&target, &shape)?;
    let Wishes {
        cooperative,
        events,
    } = launch_attribute::check(&state, &config, &target)?;
    if cooperative {
        check_cooperative(&target, &shape)?;
    }
    let given = (parameters, extra);
    if !put(&mut state, stream, &target, function, &shape, given)? {
        for event in events {
            state.record(event);
        }
    }
    state.mark_loaded(function);
    Ok(())
}
