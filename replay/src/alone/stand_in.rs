//! Stand-ins for what other ranks have exported: objects of the same kind and size, of this
//! process.

use cutape_format::layout::field;
use cutape_registry::{Kind, MulticastOp, Shared, SharedKind, SharingOp, id};

use crate::api::{Api, Code, Location, result_name};
use crate::objects::skip::{Skip, skip};
use crate::player::{Job, Played};
use crate::ranks::origins::Origin;

/// Unit of mappings.
const GRANULE: u64 = 2 << 20;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u64 = 2;
/// Offsets in `CUmemAllocationProp`.
const REQUESTED_HANDLES: usize =
    cutape_registry::layout::offset_of("CUmemAllocationProp", "requestedHandleTypes");
const LOCATION_TYPE: usize =
    cutape_registry::layout::offset_of("CUmemAllocationProp", "location.type");
const LOCATION_ID: usize = cutape_registry::layout::offset_of("CUmemAllocationProp", "location.id");
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: u32 = 1;
const MULTICAST_SIZE: usize = cutape_registry::layout::offset_of("CUmulticastObjectProp", "size");
const POOL_PROPERTIES: usize = cutape_registry::layout::size_of("CUmemPoolProps");

/// cuIpcOpenMemHandle, cuMemImportFromShareableHandle and their like.
pub(crate) fn share(job: &mut Job<'_, '_>, op: SharingOp) -> Played {
    match op {
        SharingOp::Export(_) => skip(job.function.reason),
        SharingOp::Import(shared) => import(job, shared),
        SharingOp::Close => close(job),
    }
}

fn import(job: &mut Job<'_, '_>, shared: Shared) -> Played {
    if !job.call.succeeded() {
        return skip("failed to import in the recording; what it was given is not known");
    }
    let alone = job.options.alone.clone();
    let origin = alone.and_then(|alone| alone.imports.get(&job.call.index).cloned());
    let origin = origin.unwrap_or_default();
    let positions = [shared.handle, shared.object].map(usize::from);
    let [_, position] = positions;
    let refused = |code| {
        Skip::because(format!(
            "imports from another process; the driver returned {} for what is to take its place",
            result_name(code)
        ))
    };
    let memory = match shared.kind {
        SharedKind::Event => {
            let event = job.api.get(id::cuEventCreate, &[DISABLE_TIMING]);
            return object(job, positions, event.map_err(refused)?);
        }
        SharedKind::Pool => {
            let pool = pool(&job.api).map_err(refused)?;
            return object(job, positions, pool);
        }
        SharedKind::Allocation => {
            let size = size_of(&origin)?;
            let allocation = allocation(&job.api, size, &origin).map_err(refused)?;
            job.report.exchanges.stand_in_bytes += size;
            return object(job, positions, allocation);
        }
        SharedKind::Memory => {
            let size = size_of(&origin)?;
            let recorded = job.call.out(position).unwrap_or(0);
            let (memory, live) = opened(&job.api, recorded, size).map_err(refused)?;
            job.player.stand_ins.insert(recorded, memory);
            (live, size)
        }
        SharedKind::PoolMemory => {
            let size = size_of(&origin)?;
            let params = job.function.params.iter();
            let pool = params
                .zip(0..)
                .find_map(|(param, position)| match param.role {
                    cutape_registry::Role::Use(Kind::MemoryPool) => {
                        Some(job.call.argument(position))
                    }
                    _ => None,
                });
            let pool = job.live_handle(Kind::MemoryPool, pool.unwrap_or(0))?;
            let stream = 0;
            let live = job
                .api
                .get(id::cuMemAllocFromPoolAsync, &[size, pool, stream]);
            (live.map_err(refused)?, size)
        }
    };
    place(job, position, memory)
}

/// cuMulticastCreate and its like: the object needs a device of each rank. Physical memory takes its
/// place, so that it can be mapped.
pub(crate) fn multicast(job: &mut Job<'_, '_>, op: MulticastOp) -> Played {
    if op != MulticastOp::Create || !job.call.succeeded() {
        return skip("a multicast object needs the devices of all ranks");
    }
    let properties = job.call.snapshot(1, field::POINTEE);
    let size = properties
        .and_then(|properties| properties.bytes.inline()?.get(MULTICAST_SIZE..))
        .and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)))
        .unwrap_or(0)
        .checked_next_multiple_of(GRANULE)
        .unwrap_or(0);
    let device = job.api.current_device();
    let memory = device.and_then(|device| job.api.create_memory(size, Location::Device(device)));
    match memory {
        Ok(live) => {
            let mut frame = job.marshal(&[])?;
            frame.answer(0, live);
            job.report.exchanges.stand_ins += 1;
            job.report.exchanges.stand_in_bytes += size;
            job.answer(frame, 0)
        }
        Err(code) => skip(format!(
            "a multicast object needs the devices of all ranks; the driver returned {} for what is \
             to take its place",
            result_name(code)
        )),
    }
}

fn size_of(origin: &Origin) -> Result<u64, Skip> {
    origin.size.filter(|&size| size > 0).ok_or_else(|| {
        Skip::because("imports from another process; no trace says how long the memory is")
    })
}

/// Answers with the handle of the stand-in.
fn object(job: &mut Job<'_, '_>, [handle, position]: [usize; 2], live: u64) -> Played {
    let mut frame = job.marshal(&[(handle, 0)])?;
    frame.answer(position, live);
    job.report.exchanges.stand_ins += 1;
    job.answer(frame, 0)
}

/// Answers with memory. Where it lies does not matter, since no work that is re-issued gets at it:
/// it does not count among the memory that is placed.
fn place(job: &mut Job<'_, '_>, position: usize, (live, length): (u64, u64)) -> Played {
    let mut frame = job.marshal(&[])?;
    frame.answer(position, live);
    frame.remove_place(position);
    let start = job.call.out(position).unwrap_or(0);
    let mut range = job.range(Kind::Memory, start, length, live);
    range.context = job.api.current_context().unwrap_or(0);
    job.ranges.insert(range);
    job.report.exchanges.stand_ins += 1;
    job.report.exchanges.stand_in_bytes += length;
    job.answer(frame, 0)
}

/// A pool on the current device.
fn pool(api: &Api) -> Result<u64, Code> {
    let device = api.current_device()?;
    // allocType pinned, no handles, location: the first words of CUmemPoolProps.
    let mut properties = [0_u32; POOL_PROPERTIES.div_ceil(4)];
    for (word, value) in properties.iter_mut().zip([1, 0, DEVICE, device as u32]) {
        *word = value;
    }
    api.get(id::cuMemPoolCreate, &[properties.as_ptr() as u64])
}

/// Physical memory with the properties of the exporter's, on the current device.
fn allocation(api: &Api, size: u64, origin: &Origin) -> Result<u64, Code> {
    let location = Location::Device(api.current_device()?);
    let Some(properties) = &origin.properties else {
        return api.create_memory(size, location);
    };
    let mut words: Vec<u32> = properties
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let is_device = words.get(LOCATION_TYPE / 4) == Some(&DEVICE);
    let Location::Device(device) = location else {
        return api.create_memory(size, location);
    };
    if let Some(ordinal) = words.get_mut(LOCATION_ID / 4)
        && is_device
    {
        *ordinal = device as u32;
    }
    let create = |words: &[u32]| api.get(id::cuMemCreate, &[size, words.as_ptr() as u64, 0]);
    create(&words).or_else(|_| {
        // This machine may not have that kind of handle (fabric).
        if let Some(handles) = words.get_mut(REQUESTED_HANDLES / 4) {
            *handles = 0;
        }
        create(&words)
    })
}

/// Memory for the granules around the recorded bytes, and where those are. Opened memory is mapped
/// in granules, so what the driver allocates afterwards comes to lie where it was.
fn opened(api: &Api, recorded: u64, size: u64) -> Result<(u64, u64), Code> {
    let first = recorded / GRANULE * GRANULE;
    let end = recorded.saturating_add(size);
    let length = end.saturating_sub(first).div_ceil(GRANULE) * GRANULE;
    let memory = api.get(id::cuMemAlloc_v2, &[length])?;
    Ok((memory, memory + (recorded - first)))
}

/// cuIpcCloseMemHandle.
fn close(job: &mut Job<'_, '_>) -> Played {
    let Some(memory) = job.player.stand_ins.remove(&job.call.argument(0)) else {
        return skip(job.function.reason);
    };
    let frame = job.marshal(&[])?;
    if let Err(code) = job.api.own(id::cuMemFree_v2, &[memory]) {
        tracing::debug!("memory at {memory:#x} could not be freed: result {code}");
    }
    job.answer(frame, 0)
}
