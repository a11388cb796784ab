//! Initialization, Version Management and Device Management.

use cutape_driver::types::{CUdevprop, CUuuid};

use crate::call::answer::{
    Answer, INVALID_DEVICE, NO_DEVICE, NOT_INITIALIZED, invalid_if, reject_if,
};
use crate::call::argument::{Out, OutRef, Text, positive};
use crate::call::entry::entries;
use crate::object::device::{
    self, MAX_PITCH, MULTIPROCESSORS, PCI_DEVICE, PCI_DOMAIN, PITCH_ALIGNMENT, SHARED,
    SHARED_DEFAULT, SHARED_OPT_IN, SHARED_RESERVED, TEXTURE_ALIGNMENT, check_device, pci_bus,
};
use crate::settings;
use crate::state;

entries! {
    cuInit: init;
    cuDriverGetVersion: |version: Out<i32>| version.set(settings::get().version);
    cuDeviceGet: |device: OutRef<i32>, ordinal: i32|
        device.set(check_device(ordinal).map(|()| ordinal)?);
    cuDeviceGetCount: |count: Out<i32>| count.set(settings::get().devices);
    cuDeviceGetName: get_name;
    cuDeviceGetUuid: get_uuid;
    cuDeviceTotalMem: |bytes: OutRef<usize>, device: i32|
        bytes.set(check_device(device).map(|()| settings::get().memory as usize)?);
    cuDeviceGetAttribute: get_attribute;
    cuDeviceGetProperties: get_properties;
    cuDeviceComputeCapability: compute_capability;
    cuDeviceGetPCIBusId: get_bus_id;
    cuDeviceGetByPCIBusId: by_bus_id;
    // A device is not its own peer.
    cuDeviceCanAccessPeer: |answer: OutRef<i32>, device: i32, peer: i32| {
        check_device(device)?;
        check_device(peer)?;
        answer.set(i32::from(settings::get().are_peers(device, peer)))
    };
    cuDeviceGetExecAffinitySupport: |answer: OutRef<i32>, kind: u32, device: i32| {
        check_device(device)?;
        invalid_if(kind > 0)?;
        answer.set(0)
    };
}

const NAME: &str = "cutape null device";

/// Attributes that are not 0, by number of `CUdevice_attribute`; an H200's where they describe the
/// hardware.
const ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024),                      // MAX_THREADS_PER_BLOCK
    (2, 1024),                      // MAX_BLOCK_DIM_X
    (3, 1024),                      // MAX_BLOCK_DIM_Y
    (4, 64),                        // MAX_BLOCK_DIM_Z
    (5, i32::MAX),                  // MAX_GRID_DIM_X
    (6, 65_535),                    // MAX_GRID_DIM_Y
    (7, 65_535),                    // MAX_GRID_DIM_Z
    (8, SHARED_DEFAULT as i32),     // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65_536),                    // TOTAL_CONSTANT_MEMORY
    (10, 32),                       // WARP_SIZE
    (11, MAX_PITCH as i32),         // MAX_PITCH
    (12, 65_536),                   // MAX_REGISTERS_PER_BLOCK
    (13, 1_980_000),                // CLOCK_RATE
    (14, TEXTURE_ALIGNMENT as i32), // TEXTURE_ALIGNMENT
    (15, 1),                        // GPU_OVERLAP
    (16, MULTIPROCESSORS as i32),   // MULTIPROCESSOR_COUNT
    (19, 1),                        // CAN_MAP_HOST_MEMORY
    (21, 131_072),                  // MAXIMUM_TEXTURE1D_WIDTH
    (22, 131_072),                  // MAXIMUM_TEXTURE2D_WIDTH
    (23, 65_536),                   // MAXIMUM_TEXTURE2D_HEIGHT
    (24, 16_384),                   // MAXIMUM_TEXTURE3D_WIDTH
    (25, 16_384),                   // MAXIMUM_TEXTURE3D_HEIGHT
    (26, 16_384),                   // MAXIMUM_TEXTURE3D_DEPTH
    (27, 32_768),                   // MAXIMUM_TEXTURE2D_LAYERED_WIDTH
    (28, 32_768),                   // MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
    (29, 2_048),                    // MAXIMUM_TEXTURE2D_LAYERED_LAYERS
    (30, 512),                      // SURFACE_ALIGNMENT
    (31, 1),                        // CONCURRENT_KERNELS
    (32, 1),                        // ECC_ENABLED
    (36, 3_201_000),                // MEMORY_CLOCK_RATE
    (37, 6_144),                    // GLOBAL_MEMORY_BUS_WIDTH
    (38, 62_914_560),               // L2_CACHE_SIZE
    (39, 2_048),                    // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 3),                        // ASYNC_ENGINE_COUNT
    (41, 1),                        // UNIFIED_ADDRESSING
    (42, 32_768),                   // MAXIMUM_TEXTURE1D_LAYERED_WIDTH
    (43, 2_048),                    // MAXIMUM_TEXTURE1D_LAYERED_LAYERS
    (45, 32_768),                   // MAXIMUM_TEXTURE2D_GATHER_WIDTH
    (46, 32_768),                   // MAXIMUM_TEXTURE2D_GATHER_HEIGHT
    (47, 8_192),                    // MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
    (48, 8_192),                    // MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE
    (49, 32_768),                   // MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE
    (51, PITCH_ALIGNMENT as i32),   // TEXTURE_PITCH_ALIGNMENT
    (52, 32_768),                   // MAXIMUM_TEXTURECUBEMAP_WIDTH
    (53, 32_768),                   // MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
    (54, 2_046),                    // MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
    (55, 32_768),                   // MAXIMUM_SURFACE1D_WIDTH
    (56, 131_072),                  // MAXIMUM_SURFACE2D_WIDTH
    (57, 65_536),                   // MAXIMUM_SURFACE2D_HEIGHT
    (58, 16_384),                   // MAXIMUM_SURFACE3D_WIDTH
    (59, 16_384),                   // MAXIMUM_SURFACE3D_HEIGHT
    (60, 16_384),                   // MAXIMUM_SURFACE3D_DEPTH
    (61, 32_768),                   // MAXIMUM_SURFACE1D_LAYERED_WIDTH
    (62, 2_048),                    // MAXIMUM_SURFACE1D_LAYERED_LAYERS
    (63, 32_768),                   // MAXIMUM_SURFACE2D_LAYERED_WIDTH
    (64, 32_768),                   // MAXIMUM_SURFACE2D_LAYERED_HEIGHT
    (65, 2_048),                    // MAXIMUM_SURFACE2D_LAYERED_LAYERS
    (66, 32_768),                   // MAXIMUM_SURFACECUBEMAP_WIDTH
    (67, 32_768),                   // MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
    (68, 2_046),                    // MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS
    (69, 268_435_456),              // MAXIMUM_TEXTURE1D_LINEAR_WIDTH
    (70, 131_072),                  // MAXIMUM_TEXTURE2D_LINEAR_WIDTH
    (71, 65_000),                   // MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
    (72, 2_097_120),                // MAXIMUM_TEXTURE2D_LINEAR_PITCH
    (73, 32_768),                   // MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
    (74, 32_768),                   // MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
    (77, 32_768),                   // MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
    (78, 1),                        // STREAM_PRIORITIES_SUPPORTED
    (79, 1),                        // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),                        // LOCAL_L1_CACHE_SUPPORTED
    (81, SHARED as i32),            // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, 65_536),                   // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),                        // MANAGED_MEMORY
    (87, 2),                        // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (89, 1),                        // CONCURRENT_MANAGED_ACCESS
    (90, 1),                        // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),                        // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (95, 1),                        // COOPERATIVE_LAUNCH
    (97, SHARED_OPT_IN as i32),     // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (99, 1),                        // HOST_REGISTER_SUPPORTED
    (102, 1),                       // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 1),                       // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (106, 32),                      // MAX_BLOCKS_PER_MULTIPROCESSOR
    (108, 39_321_600),              // MAX_PERSISTING_L2_CACHE_SIZE
    (109, 134_213_632),             // MAX_ACCESS_POLICY_WINDOW_SIZE
    (111, SHARED_RESERVED as i32),  // RESERVED_SHARED_MEMORY_PER_BLOCK
    (113, 1),                       // READ_ONLY_HOST_REGISTER_SUPPORTED
    (115, 1),                       // MEMORY_POOLS_SUPPORTED
    (119, 1),                       // MEMPOOL_SUPPORTED_HANDLE_TYPES: descriptors
    (120, 1),                       // CLUSTER_LAUNCH
    (122, 1),                       // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 1),                       // CAN_USE_STREAM_WAIT_VALUE_NOR
    (125, 1),                       // IPC_EVENT_SUPPORTED
    (126, 4),                       // MEM_SYNC_DOMAIN_COUNT
    (131, -1),                      // NUMA_ID
    (134, 0),                       // HOST_NUMA_ID
    (141, 1),                       // HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (145, 1),                       // HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
];

fn attribute(number: u32) -> i32 {
    let entry = ATTRIBUTES.iter().find(|entry| entry.0 == number);
    entry.map_or(0, |entry| entry.1)
}

fn init(flags: u32) -> Answer {
    invalid_if(flags != 0)?;
    // A driver inherited through fork stays unusable (measured for the calls that follow).
    reject_if(state::is_forked_child(), NOT_INITIALIZED)?;
    reject_if(settings::get().devices == 0, NO_DEVICE)?;
    state::register_teardown();
    state::initialise();
    Ok(())
}

/// Writes text into a buffer of `length` bytes, cut to fit, always with a NUL.
fn write_text(target: Out<u8>, length: i32, text: &str) -> Answer {
    target.check()?;
    let length = positive(length)? as usize;
    let bytes = &text.as_bytes()[..text.len().min(length - 1)];
    for (index, &byte) in bytes.iter().chain(&[0]).enumerate() {
        target.set_at(index, byte);
    }
    Ok(())
}

fn get_name(name: Out<u8>, length: i32, device: i32) -> Answer {
    check_device(device)?;
    write_text(name, length, NAME)
}

fn get_uuid(uuid: OutRef<CUuuid>, device: i32) -> Answer {
    check_device(device)?;
    uuid.set(device::uuid(device))
}

fn get_attribute(value: OutRef<i32>, number: u32, device: i32) -> Answer {
    let list = cutape_registry::enumeration("CUdevice_attribute");
    let name = list.and_then(|list| list.name_of(i64::from(number)));
    invalid_if(name.is_none_or(|name| name == "CU_DEVICE_ATTRIBUTE_MAX"))?;
    check_device(device)?;
    let (major, minor) = settings::get().capability(device);
    value.set(match number {
        33 => pci_bus(device),
        34 => PCI_DEVICE,
        50 => PCI_DOMAIN,
        75 => i32::from(major),
        76 => i32::from(minor),
        _ => attribute(number),
    })
}

fn get_properties(properties: OutRef<CUdevprop>, device: i32) -> Answer {
    check_device(device)?;
    properties.set(CUdevprop {
        maxThreadsPerBlock: attribute(1),
        maxThreadsDim: [attribute(2), attribute(3), attribute(4)],
        maxGridSize: [attribute(5), attribute(6), attribute(7)],
        sharedMemPerBlock: attribute(8),
        totalConstantMemory: attribute(9),
        SIMDWidth: attribute(10),
        memPitch: attribute(11),
        regsPerBlock: attribute(12),
        clockRate: attribute(13),
        textureAlign: attribute(14),
    })
}

fn compute_capability(major: OutRef<i32>, minor: OutRef<i32>, device: i32) -> Answer {
    check_device(device)?;
    let capability = settings::get().capability(device);
    major.set_if(i32::from(capability.0));
    minor.set(i32::from(capability.1))
}

fn bus_id(device: i32) -> String {
    format!(
        "{PCI_DOMAIN:04X}:{:02X}:{PCI_DEVICE:02X}.0",
        pci_bus(device)
    )
}

fn get_bus_id(text: Out<u8>, length: i32, device: i32) -> Answer {
    check_device(device)?;
    write_text(text, length, &bus_id(device))
}

fn by_bus_id(device: OutRef<i32>, text: Text) -> Answer {
    let wanted = text.get()?;
    // The domain and the function may be left out.
    let matches = |ordinal: &i32| {
        let full = bus_id(*ordinal);
        wanted.eq_ignore_ascii_case(&full)
            || wanted.eq_ignore_ascii_case(&full[5..])
            || full[5..10].eq_ignore_ascii_case(&wanted)
    };
    let found = (0..settings::get().devices).find(matches);
    device.set(found.ok_or(INVALID_DEVICE)?)
}
