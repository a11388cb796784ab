//! Execution Control: launches. Everything is checked, the parameters are read, and no code runs
//! (`work::kernel` has the exceptions).

use cutape_driver::types::{CUDA_KERNEL_NODE_PARAMS, CUlaunchConfig};

use crate::call::answer::{Answer, INVALID_VALUE};
use crate::call::argument::{In, IsPerThread, Stream};
use crate::call::entry::entries;
use crate::object::function::Launchable;
use crate::object::queue::Ticket;
use crate::object::work::{KernelNode, Work};
use crate::state::{Current, State, lock};
use crate::work::launch::{Parameters, Shape, find_target};
use crate::work::{kernel, launch_attribute};

entries! {
    cuLaunchKernel: |function: u64, shape: Shape, stream: Stream, parameters: Parameters|
        launch(function, shape, stream, parameters, false);
    cuLaunchCooperativeKernel: |function: u64, shape: Shape, stream: Stream, pointers: u64|
        launch(function, shape, stream, Parameters { pointers, extra: 0 }, true);
    cuLaunchKernelEx: launch_config;
    // Refused by the real driver on one device, whatever the arguments (measured).
    cuLaunchCooperativeKernelMultiDevice: || Err(INVALID_VALUE);
}

fn launch(
    function: u64,
    shape: Shape,
    stream: Stream,
    parameters: Parameters,
    is_cooperative: bool,
) -> Answer {
    let mut state = lock();
    let target = find_target(&state, function, stream)?;
    shape.check(&target)?;
    // A function may require a cluster without an attribute.
    launch_attribute::check(&state, &[], shape.grid, &target)?;
    if is_cooperative {
        shape.check_cooperative(&target)?;
    }
    enqueue(
        &mut state,
        function,
        &target,
        shape,
        (stream, false),
        parameters,
    )?;
    Ok(())
}

fn launch_config(
    mut state: Current,
    config: In<CUlaunchConfig>,
    function: u64,
    parameters: Parameters,
    variant: IsPerThread,
) -> Answer {
    let config = config.get()?;
    let stream = Stream::from_raw(config.hStream as u64, variant.0);
    let target = find_target(&state, function, stream)?;
    let shape = Shape::from(&config);
    shape.check(&target)?;
    let attributes = launch_attribute::read(&config)?;
    let requests = launch_attribute::check(&state, &attributes, shape.grid, &target)?;
    if requests.is_cooperative {
        shape.check_cooperative(&target)?;
    }
    let stream = (stream, requests.is_programmatic);
    let launched = enqueue(&mut state, function, &target, shape, stream, parameters)?;
    if let Some(ticket) = launched {
        for event in requests.events {
            state.record(event, ticket);
        }
    }
    Ok(())
}

/// Reads the parameters and enqueues the launch; on a stream that captures, adds a node. `None` if
/// the launch was captured.
fn enqueue(
    state: &mut State,
    function: u64,
    target: &Launchable,
    shape: Shape,
    (stream, is_programmatic): (Stream, bool),
    parameters: Parameters,
) -> Answer<Option<Ticket>> {
    let ticket = match state.capture_of(stream)? {
        None => {
            let values = match kernel::has_effect(&target.spec) {
                true => parameters.values(&target.spec)?,
                false => parameters.read_all(&target.spec).map(|()| Vec::new())?,
            };
            let work = kernel::action(state, &target.spec, &values);
            let uses = &target.spec.image().uses;
            let ticket = match is_programmatic && !uses.dependency_wait {
                true => state.enqueue_early(stream, work)?,
                false => state.enqueue(stream, work)?,
            };
            if uses.early_trigger {
                state.queue.let_next_start(ticket);
            }
            Some(ticket)
        }
        Some(site) => {
            let values = parameters.values(&target.spec)?;
            let [grid_x, grid_y, grid_z] = shape.grid;
            let [block_x, block_y, block_z] = shape.block;
            let params = CUDA_KERNEL_NODE_PARAMS {
                func: function as *mut _,
                gridDimX: grid_x,
                gridDimY: grid_y,
                gridDimZ: grid_z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: shape.shared,
                kernelParams: std::ptr::null_mut(),
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: state.current()? as *mut _,
            };
            let work = Work::Kernel(Box::new(KernelNode::new(params, values)));
            state.add_captured(site, work)?;
            None
        }
    };
    state.mark_loaded(function);
    Ok(ticket)
}
