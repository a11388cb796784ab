//! What correct programs rely on: the values, bytes and objects that calls return.

mod driver;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use driver::{at, call, code, launch, make, ok, out, setup, text};

#[test]
fn copies_move_bytes() {
    let s = setup();
    let source: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let mut back = vec![0_u8; 4096];
    ok("cuMemcpyHtoD_v2", &[s.memory, at(&source[..]), 4096]);
    ok("cuMemcpyDtoD_v2", &[s.memory + 8192, s.memory, 4096]);
    ok(
        "cuMemcpyDtoHAsync_v2",
        &[out(&mut back[0]), s.memory + 8192, 4096, s.stream],
    );
    assert_eq!(back, source);
    // A unified copy between two pieces of host memory, and one to pinned memory.
    let pinned = make("cuMemHostAlloc", &[4096, 2]);
    ok("cuMemcpy", &[pinned, s.memory, 4096]);
    // SAFETY: pinned memory is the program's to read, 4096 bytes of it.
    let seen = unsafe { std::slice::from_raw_parts(pinned as *const u8, 4096) };
    assert_eq!(seen, &source[..]);
}

#[test]
fn memsets_fill_their_range() {
    let s = setup();
    type Row = (&'static str, &'static [u64], &'static [u8]);
    let rows: &[Row] = &[
        (
            "cuMemsetD8_v2",
            &[0x11, 3],
            &[0x11, 0x11, 0x11, 0, 0, 0, 0, 0],
        ),
        (
            "cuMemsetD16_v2",
            &[0x2211, 2],
            &[0x11, 0x22, 0x11, 0x22, 0, 0, 0, 0],
        ),
        (
            "cuMemsetD32_v2",
            &[0x4433_2211, 1],
            &[0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0],
        ),
        (
            "cuMemsetD2D8_v2",
            &[4, 0xaa, 2, 2],
            &[0xaa, 0xaa, 0, 0, 0xaa, 0xaa, 0, 0],
        ),
        (
            "cuMemsetD2D16_v2",
            &[4, 0xbbaa, 1, 2],
            &[0xaa, 0xbb, 0, 0, 0xaa, 0xbb, 0, 0],
        ),
        (
            "cuMemsetD8_v2_ptds",
            &[0x7f, 1],
            &[0x7f, 0, 0, 0, 0, 0, 0, 0],
        ),
    ];
    for (name, arguments, expected) in rows {
        let mut bytes = [0_u8; 8];
        ok("cuMemcpyHtoD_v2", &[s.memory, at(&bytes), 8]);
        let mut words = vec![s.memory];
        words.extend(*arguments);
        ok(name, &words);
        ok("cuMemcpyDtoH_v2", &[out(&mut bytes), s.memory, 8]);
        assert_eq!(bytes, *expected, "{name}");
    }
}

#[test]
fn a_pitched_copy_moves_a_rectangle() {
    use cutape_driver::types::{CUDA_MEMCPY2D, CUmemorytype};
    let s = setup();
    let source: Vec<u8> = (0..64).collect();
    let mut target = [0_u8; 64];
    ok("cuMemcpyHtoD_v2", &[s.memory, at(&source[..]), 64]);
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        srcMemoryType: CUmemorytype(2),
        srcHost: std::ptr::null(),
        srcDevice: s.memory,
        srcArray: std::ptr::null_mut(),
        srcPitch: 8,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype(1),
        dstHost: (&raw mut target).cast(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: 16,
        WidthInBytes: 3,
        Height: 2,
    };
    ok("cuMemcpy2D_v2", &[at(&copy)]);
    assert_eq!(target[..3], [10, 11, 12]);
    assert_eq!(target[16..19], [18, 19, 20]);
    assert_eq!(target[3..16], [0; 13]);
    let bad = CUDA_MEMCPY2D {
        srcPitch: 2,
        ..copy
    };
    assert_eq!(call("cuMemcpy2D_v2", &[at(&bad)]), code::INVALID_VALUE);
}

#[test]
fn a_module_has_its_functions_parameters_and_variables() {
    let s = setup();
    let many = make("cuModuleGetFunction", &[s.module, text("many")]);
    assert_eq!(make("cuModuleGetFunction", &[s.module, text("many")]), many);
    assert_eq!(make("cuModuleGetFunctionCount", &[s.module]), 3);
    let mut found = [0_u64; 3];
    ok(
        "cuModuleEnumerateFunctions",
        &[out(&mut found), 3, s.module],
    );
    assert!(found.contains(&many) && found.contains(&s.kernel));
    let mut layout = Vec::new();
    let (mut offset, mut size) = (0_usize, 0_usize);
    while call(
        "cuFuncGetParamInfo",
        &[many, layout.len() as u64, out(&mut offset), out(&mut size)],
    ) == code::SUCCESS
    {
        layout.push((offset, size));
    }
    assert_eq!(layout, [(0, 8), (8, 4), (12, 1), (16, 24)]);
    let (mut address, mut bytes) = (0_u64, 0_usize);
    ok(
        "cuModuleGetGlobal_v2",
        &[
            out(&mut address),
            out(&mut bytes),
            s.module,
            text("counter"),
        ],
    );
    let mut values = [0_u32; 4];
    ok("cuMemcpyDtoH_v2", &[out(&mut values), address, 16]);
    assert_eq!((bytes, values), (16, [1, 2, 3, 4]));
    let bounded = make("cuModuleGetFunction", &[s.module, text("bounded")]);
    let mut most = 0_i32;
    ok("cuFuncGetAttribute", &[out(&mut most), 0, bounded]);
    assert_eq!(most, 128);
    assert_eq!(
        call("cuLaunchKernel", &[bounded, 1, 1, 1, 256, 1, 1, 0, 0, 0, 0]),
        code::INVALID_VALUE
    );
    ok("cuLaunchKernel", &[bounded, 1, 1, 1, 128, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn images_are_refused_with_the_documented_codes() {
    setup();
    let host = {
        let mut elf = [0_u8; 128];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[18] = 62;
        elf
    };
    let ptx = |version: &str, target: &str, rest: &str| {
        format!(".version {version}\n.target {target}\n.address_size 64\n{rest}\n\0").into_bytes()
    };
    let old = cutape_image::build::cubin(
        &[],
        &[],
        cutape_image::Target::from_number(75, Default::default()),
    );
    let rows: &[(&str, Vec<u8>, u32)] = &[
        ("junk", vec![0xab; 64], code::INVALID_IMAGE),
        ("a host object", host.to_vec(), code::INVALID_IMAGE),
        (
            "text that is no PTX",
            b"hello, world\0\0\0\0".to_vec(),
            code::INVALID_IMAGE,
        ),
        (
            "PTX from the future",
            ptx("99.0", "sm_70", ""),
            code::UNSUPPORTED_PTX_VERSION,
        ),
        (
            "PTX for a newer device",
            ptx("8.8", "sm_120", ""),
            code::NO_BINARY_FOR_GPU,
        ),
        (
            "unbalanced PTX",
            ptx("7.0", "sm_70", ".visible .entry k() { ret;"),
            code::INVALID_PTX,
        ),
        (
            "machine code of another architecture",
            old,
            code::NO_BINARY_FOR_GPU,
        ),
        (
            "good PTX",
            ptx("7.0", "sm_70", ".visible .entry k() { ret; }"),
            code::SUCCESS,
        ),
    ];
    for (what, bytes, expected) in rows {
        let mut log = [0_u8; 256];
        let (names, mut values) = ([5_u32, 6], [out(&mut log), 256]);
        let arguments = [
            out(&mut 0_u64),
            at(&bytes[..]),
            2,
            at(&names),
            out(&mut values),
        ];
        assert_eq!(call("cuModuleLoadDataEx", &arguments), *expected, "{what}");
        assert_eq!(
            values[1] > 0,
            *expected != code::SUCCESS,
            "{what}: the log has {} bytes",
            values[1]
        );
    }
    assert_eq!(
        call("cuModuleLoad", &[out(&mut 0_u64), text("/no/such/file")]),
        code::FILE_NOT_FOUND
    );
    assert_eq!(
        call("cuModuleLoadData", &[out(&mut 0_u64), 0]),
        code::INVALID_VALUE
    );
}

#[test]
fn compressed_fatbins_and_wrappers_load() {
    use cutape_image::build::{FatbinEntry, Packing, fatbin};
    use cutape_image::{CodeKind, Target};
    setup();
    let target = Target::from_number(70, Default::default());
    for packing in [Packing::Stored, Packing::Lz4, Packing::Zstd] {
        let entry = FatbinEntry {
            code: CodeKind::Ptx,
            target,
            payload: driver::PTX.as_bytes(),
            packing,
        };
        let container = fatbin(&[entry]);
        let wrapper = [0x1_4662_43b1_u64, at(&container[..]), 0];
        for image in [at(&container[..]), at(&wrapper)] {
            let module = make("cuModuleLoadData", &[image]);
            make("cuModuleGetFunction", &[module, text("many")]);
            ok("cuModuleUnload", &[module]);
        }
    }
}

#[test]
fn a_link_makes_a_cubin_with_all_entries() {
    setup();
    let other = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry second(.param .u32 a) { ret; }\n";
    let mut link = 0_u64;
    ok("cuLinkCreate_v2", &[0, 0, 0, out(&mut link)]);
    for ptx in [driver::PTX, other] {
        ok(
            "cuLinkAddData_v2",
            &[link, 1, at(ptx), ptx.len() as u64, 0, 0, 0, 0],
        );
    }
    let (mut image, mut size) = (0_u64, 0_usize);
    ok("cuLinkComplete", &[link, out(&mut image), out(&mut size)]);
    let module = make("cuModuleLoadData", &[image]);
    for name in ["k", "many", "second"] {
        make("cuModuleGetFunction", &[module, text(name)]);
    }
    make("cuModuleGetGlobal_v2", &[0, module, text("counter")]);
    ok("cuLinkDestroy", &[link]);
    // An undefined function, which the log names.
    let open = ".version 7.0\n.target sm_70\n.address_size 64\n.extern .func missing();\n\
                .visible .entry k() { call missing; ret; }\n";
    let mut log = [0_u8; 256];
    let (names, mut values) = ([5_u32, 6], [out(&mut log), 256]);
    ok(
        "cuLinkCreate_v2",
        &[2, at(&names), out(&mut values), out(&mut link)],
    );
    ok(
        "cuLinkAddData_v2",
        &[link, 1, at(open), open.len() as u64, 0, 0, 0, 0],
    );
    assert_eq!(
        call("cuLinkComplete", &[link, out(&mut image), out(&mut size)]),
        code::INVALID_SOURCE
    );
    assert!(String::from_utf8_lossy(&log).contains("missing"));
    ok("cuLinkDestroy", &[link]);
}

#[test]
fn kernels_of_a_library_launch_and_share_attributes() {
    let s = setup();
    let library = make("cuLibraryLoadData", &[text(driver::PTX), 0, 0, 0, 0, 0, 0]);
    let kernel = make("cuLibraryGetKernel", &[library, text("k")]);
    assert_eq!(make("cuLibraryGetKernelCount", &[library]), 3);
    assert_eq!(launch(kernel, s.stream), code::SUCCESS);
    let function = make("cuKernelGetFunction", &[kernel]);
    assert_eq!(launch(function, s.stream), code::SUCCESS);
    ok("cuKernelSetAttribute", &[8, 65536, kernel, 0]);
    let mut value = 0_i32;
    ok("cuFuncGetAttribute", &[out(&mut value), 8, function]);
    assert_eq!(value, 65536);
    // From then on the function's own setting counts.
    ok("cuFuncSetAttribute", &[function, 8, 49152]);
    ok("cuKernelSetAttribute", &[8, 98304, kernel, 0]);
    let parameters = [at(&0_u64)];
    let words = [
        function,
        1,
        1,
        1,
        32,
        1,
        1,
        98304,
        s.stream,
        at(&parameters),
        0,
    ];
    assert_eq!(call("cuLaunchKernel", &words), code::INVALID_VALUE);
    assert_eq!(
        make("cuLibraryGetGlobal", &[0, library, text("counter")]) % 256,
        0
    );
    ok("cuLibraryUnload", &[library]);
}

#[test]
fn virtual_memory_maps_at_the_requested_address() {
    use cutape_driver::types::{CUmemAccessDesc, CUmemAllocationProp};
    setup();
    const SLOT: u64 = 32 << 20;
    const GRANULE: u64 = 2 << 20;
    let wanted = 0x6543_0000_0000_u64;
    assert_eq!(make("cuMemAddressReserve", &[SLOT, 0, wanted, 0]), wanted);
    // SAFETY: both structs are made of numbers and a pointer, for which zeros are valid.
    let (mut device, mut access): (CUmemAllocationProp, [CUmemAccessDesc; 2]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    device.type_.0 = 1;
    device.location.type_.0 = 1;
    access[0].location.type_.0 = 1;
    access[0].flags.0 = 3;
    access[1].location.type_.0 = 3;
    access[1].flags.0 = 3;
    let mut host = device;
    host.location.type_.0 = 3;
    let mut managed = device;
    managed.type_.0 = 2;
    assert_eq!(
        call("cuMemCreate", &[out(&mut 0_u64), GRANULE, at(&managed), 0]),
        code::INVALID_VALUE
    );
    let first = make("cuMemCreate", &[GRANULE, at(&device), 0]);
    let second = make("cuMemCreate", &[GRANULE, at(&host), 0]);
    ok("cuMemMap", &[wanted, GRANULE, 0, first, 0]);
    ok("cuMemMap", &[wanted + GRANULE, GRANULE, 0, second, 0]);
    assert_eq!(
        call("cuMemsetD8_v2", &[wanted, 1, 16]),
        code::INVALID_VALUE,
        "no access yet"
    );
    ok("cuMemSetAccess", &[wanted, GRANULE, at(&access), 1]);
    ok(
        "cuMemSetAccess",
        &[wanted + GRANULE, GRANULE, at(&access), 2],
    );
    // Across both granules; the CPU can access the second.
    ok("cuMemsetD8_v2", &[wanted + GRANULE - 8, 0x5a, 16]);
    // SAFETY: the host was given access to the second granule.
    let seen = unsafe { std::ptr::read_volatile((wanted + GRANULE) as *const u64) };
    assert_eq!(seen, 0x5a5a_5a5a_5a5a_5a5a);
    ok("cuMemRelease", &[first]);
    assert_eq!(
        call("cuMemAddressFree", &[wanted, SLOT]),
        code::INVALID_VALUE,
        "still mapped"
    );
    ok("cuMemUnmap", &[wanted, 2 * GRANULE]);
    ok("cuMemRelease", &[second]);
    assert_eq!(call("cuMemRelease", &[second]), code::INVALID_VALUE);
    ok("cuMemAddressFree", &[wanted, SLOT]);
}

#[test]
fn clusters_that_contradict_the_image_are_refused() {
    use cutape_driver::types::{
        CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
        CUlaunchAttributeValue_union__bindgen_ty_1 as Cluster, CUlaunchConfig,
    };
    const REQUIRED_CLUSTER_WIDTH: u64 = 11;
    let s = setup();
    let ptx = "
        .version 8.0
        .target sm_90
        .address_size 64
        .visible .entry any() { ret; }
        .visible .entry two() .reqnctapercluster 2 { ret; }
        .visible .entry explicit() .explicitcluster { ret; }";
    let module = make("cuModuleLoadData", &[text(ptx)]);
    let launch = |function: u64, cluster: Option<u32>| {
        let attribute = cluster.map(|x| CUlaunchAttribute {
            id: CUlaunchAttributeID(4),
            pad: [0; 4],
            value: CUlaunchAttributeValue {
                clusterDim: Cluster { x, y: 1, z: 1 },
            },
        });
        let config = CUlaunchConfig {
            gridDimX: 8,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: s.stream as _,
            attrs: attribute.as_slice().as_ptr().cast_mut(),
            numAttrs: attribute.is_some().into(),
        };
        call("cuLaunchKernelEx", &[at(&config), function, 0, 0])
    };
    let refused = code::INVALID_CLUSTER_SIZE;
    for (name, cluster, expected) in [
        ("any", None, code::SUCCESS),
        ("any", Some(4), code::SUCCESS),
        ("two", None, code::SUCCESS),
        ("two", Some(2), code::SUCCESS),
        ("two", Some(4), refused),
        ("two", Some(1), refused),
        ("explicit", None, refused),
        ("explicit", Some(4), code::SUCCESS),
    ] {
        let function = make("cuModuleGetFunction", &[module, text(name)]);
        assert_eq!(launch(function, cluster), expected, "{name} {cluster:?}");
        let width = make("cuFuncGetAttribute", &[REQUIRED_CLUSTER_WIDTH, function]);
        assert_eq!(width as u32, if name == "two" { 2 } else { 0 }, "{name}");
    }
    for (name, expected) in [("two", code::INVALID_VALUE), ("any", code::SUCCESS)] {
        let function = make("cuModuleGetFunction", &[module, text(name)]);
        let set = [function, REQUIRED_CLUSTER_WIDTH, 4];
        assert_eq!(call("cuFuncSetAttribute", &set), expected, "{name}");
    }
}

#[test]
fn contexts_stack_and_handles_recycle() {
    let s = setup();
    let second = make("cuCtxCreate_v4", &[0, 0, 0]);
    assert_eq!(make("cuCtxGetCurrent", &[]), second);
    assert_eq!(
        launch(s.kernel, 0),
        code::INVALID_HANDLE,
        "a function of another context"
    );
    ok("cuCtxPopCurrent_v2", &[0]);
    assert_eq!(make("cuCtxGetCurrent", &[]), s.context);
    ok("cuCtxDestroy_v2", &[second]);
    assert_eq!(make("cuCtxGetCurrent", &[]), s.context);
    // Other tests make contexts, too, which may get the handle.
    let is_refused = (0..100).any(|_| {
        let gone = make("cuCtxCreate_v4", &[0, 0, 0]);
        ok("cuCtxDestroy_v2", &[gone]);
        let code = call("cuCtxSetCurrent", &[gone]);
        ok("cuCtxSetCurrent", &[s.context]);
        code == code::INVALID_CONTEXT
    });
    assert!(is_refused);
    // Only this thread makes streams of this context, but other tests share the free list, so look
    // for a hit.
    let hit = (0..100).any(|_| {
        let stream = make("cuStreamCreate", &[0]);
        ok("cuStreamDestroy_v2", &[stream]);
        let again = make("cuStreamCreate", &[0]);
        ok("cuStreamDestroy_v2", &[again]);
        again == stream
    });
    assert!(hit, "stream handles are reused");
}

#[test]
fn pointer_attributes_describe_the_memory() {
    let s = setup();
    let pinned = make("cuMemHostAlloc", &[4096, 0]);
    let pool = make("cuMemAllocAsync", &[4096, s.stream]);
    for (address, kind) in [(s.memory, 2), (pinned, 1), (pool, 2)] {
        let mut found = 0_u32;
        ok("cuPointerGetAttribute", &[out(&mut found), 2, address + 8]);
        assert_eq!(found, kind);
        let (mut base, mut size) = (0_u64, 0_usize);
        ok(
            "cuMemGetAddressRange_v2",
            &[out(&mut base), out(&mut size), address + 8],
        );
        assert_eq!(base, address);
    }
    assert_eq!(
        call("cuPointerGetAttribute", &[out(&mut 0_u64), 2, at(&s)]),
        code::INVALID_VALUE
    );
    ok("cuMemFreeAsync", &[pool, s.stream]);
    assert_eq!(
        call("cuMemFreeAsync", &[pool, s.stream]),
        code::INVALID_VALUE
    );
    ok("cuMemFreeHost", &[pinned]);
}

#[test]
fn host_memory_registers_once() {
    setup();
    let buffer = vec![0_u8; 16384];
    let address = at(&buffer[..]);
    ok("cuMemHostRegister_v2", &[address, 16384, 0]);
    assert_eq!(make("cuMemHostGetDevicePointer_v2", &[address, 0]), address);
    let again = call("cuMemHostRegister_v2", &[address + 4096, 4096, 0]);
    assert_eq!(again, code::HOST_MEMORY_ALREADY_REGISTERED);
    ok("cuMemHostUnregister", &[address]);
    assert_eq!(
        call("cuMemHostUnregister", &[address]),
        code::HOST_MEMORY_NOT_REGISTERED
    );
}

#[test]
fn allocations_beyond_the_device_are_out_of_memory() {
    setup();
    let mut total = 0_usize;
    ok("cuMemGetInfo_v2", &[out(&mut 0_usize), out(&mut total)]);
    assert_eq!(total, 16 << 30);
    assert_eq!(
        call("cuMemAlloc_v2", &[out(&mut 0_u64), 17 << 30]),
        code::OUT_OF_MEMORY
    );
    assert_eq!(
        call("cuMemAlloc_v2", &[out(&mut 0_u64), u64::MAX]),
        code::OUT_OF_MEMORY
    );
    assert_eq!(
        call("cuMemAlloc_v2", &[out(&mut 0_u64), 0]),
        code::INVALID_VALUE
    );
    assert_eq!(
        call("cuMemHostAlloc", &[out(&mut 0_u64), u64::MAX, 0]),
        code::OUT_OF_MEMORY
    );
}

#[test]
fn entry_points_are_the_exported_symbols() {
    setup();
    for (name, version, flags, symbol) in [
        ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
        ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
    ] {
        let id = cutape_registry::function(symbol)
            .expect("in the registry")
            .id;
        let expected = cutape_null::address_of(id).expect("exported") as u64;
        let (mut address, mut status) = (0_u64, 9_u32);
        ok(
            "cuGetProcAddress_v2",
            &[
                text(name),
                out(&mut address),
                version,
                flags,
                out(&mut status),
            ],
        );
        assert_eq!((address, status), (expected, 0), "{name}");
    }
    let (mut address, mut status) = (1_u64, 0_u32);
    ok(
        "cuGetProcAddress_v2",
        &[
            text("cuNoSuchCall"),
            out(&mut address),
            13000,
            0,
            out(&mut status),
        ],
    );
    assert_eq!((address, status), (0, 1));
    assert_eq!(
        call(
            "cuGetProcAddress",
            &[text("cuNoSuchCall"), out(&mut address), 13000, 0]
        ),
        code::NOT_FOUND
    );
    assert_eq!(
        call("cuGetExportTable", &[out(&mut address), at(&[0_u8; 16])]),
        code::INVALID_VALUE
    );
}

#[test]
fn every_code_has_its_name() {
    let codes = cutape_registry::enumeration("CUresult").expect("in the registry");
    for &(_, value) in codes.values {
        let address = make_name(value as u64);
        // SAFETY: names live as long as the process.
        let name = unsafe { std::ffi::CStr::from_ptr(address as *const std::ffi::c_char) };
        assert_eq!(name.to_str().ok(), codes.name_of(value));
    }
    let mut name = 1_u64;
    assert_eq!(
        call("cuGetErrorName", &[123_456, out(&mut name)]),
        code::INVALID_VALUE
    );
    assert_eq!(name, 0);
}

fn make_name(value: u64) -> u64 {
    let mut name = 0_u64;
    ok("cuGetErrorName", &[value, out(&mut name)]);
    name
}

#[test]
fn unimplemented_functions_answer_not_supported() {
    setup();
    for name in [
        "cuLogsCurrent",
        "cuGraphicsUnregisterResource",
        "cuGLGetDevices_v2",
        "cuMulticastCreate",
    ] {
        assert_eq!(call(name, &[0, 0, 0, 0]), code::NOT_SUPPORTED, "{name}");
    }
}

#[test]
fn null_outputs_are_refused() {
    let s = setup();
    let rows: &[(&str, &[u64])] = &[
        ("cuMemAlloc_v2", &[0, 16]),
        ("cuStreamCreate", &[0, 0]),
        ("cuEventCreate", &[0, 0]),
        ("cuModuleGetFunction", &[0, s.module, 0]),
        ("cuDeviceGetAttribute", &[0, 1, 0]),
        ("cuCtxCreate_v4", &[0, 0, 0, 0]),
        ("cuMemcpy2D_v2", &[0]),
        ("cuLaunchKernelEx", &[0, s.kernel, 0, 0]),
        ("cuLibraryLoadData", &[0, 0, 0, 0, 0, 0, 0, 0]),
        ("cuFuncGetParamInfo", &[s.kernel, 0, 0, 0]),
    ];
    for (name, arguments) in rows {
        assert_eq!(call(name, arguments), code::INVALID_VALUE, "{name}");
    }
}

#[test]
fn arrays_keep_their_bytes() {
    use cutape_driver::types::{CUDA_ARRAY_DESCRIPTOR, CUarray_format};
    let s = setup();
    let shape = CUDA_ARRAY_DESCRIPTOR {
        Width: 16,
        Height: 0,
        Format: CUarray_format(0x20),
        NumChannels: 1,
    };
    let array = make("cuArrayCreate_v2", &[at(&shape)]);
    let source: Vec<u8> = (0..64).collect();
    let mut back = [0_u8; 32];
    ok("cuMemcpyHtoA_v2", &[array, 0, at(&source[..]), 64]);
    ok("cuMemcpyAtoD_v2", &[s.memory, array, 16, 32]);
    ok("cuMemcpyDtoH_v2", &[out(&mut back), s.memory, 32]);
    assert_eq!(back, source[16..48]);
    let beyond = call("cuMemcpyHtoA_v2", &[array, 32, at(&source[..]), 64]);
    assert_eq!(beyond, code::INVALID_VALUE);
    ok("cuArrayDestroy", &[array]);
    assert_eq!(call("cuArrayDestroy", &[array]), code::INVALID_HANDLE);
    let odd = CUDA_ARRAY_DESCRIPTOR {
        NumChannels: 3,
        ..shape
    };
    let refused = call("cuArrayCreate_v2", &[out(&mut 0_u64), at(&odd)]);
    assert_eq!(refused, code::INVALID_VALUE);
}

#[test]
fn threads_use_the_driver_concurrently() {
    let s = setup();
    let work = move |seed: u8| {
        ok("cuCtxSetCurrent", &[s.context]);
        for round in 0..50_u8 {
            let memory = make("cuMemAlloc_v2", &[4096]);
            let stream = make("cuStreamCreate", &[1]);
            let value = seed.wrapping_mul(50).wrapping_add(round);
            ok("cuMemsetD8Async", &[memory, value.into(), 4096, stream]);
            let mut back = [0_u8; 4096];
            ok(
                "cuMemcpyDtoHAsync_v2",
                &[out(&mut back), memory, 4096, stream],
            );
            assert!(back.iter().all(|&byte| byte == value));
            assert_eq!(launch(s.kernel, stream), code::SUCCESS);
            ok("cuStreamDestroy_v2", &[stream]);
            ok("cuMemFree_v2", &[memory]);
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || work(seed));
        }
    });
}

/// The destructor of a key that is made after `cuInit` runs after that of the driver's key.
#[test]
fn a_thread_has_no_context_behind_the_drivers_key() {
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn use_context(_value: *mut c_void) {
        let mut current = u64::MAX;
        ok("cuCtxGetCurrent", &[out(&mut current)]);
        let mut memory = 0_u64;
        let code = call("cuMemAlloc_v2", &[out(&mut memory), 4]);
        let is_refused = current == 0 && code == code::INVALID_CONTEXT;
        REFUSED.fetch_add(u64::from(is_refused), Ordering::Relaxed);
    }
    let s = setup();
    let mut key = 0;
    // SAFETY: the key is written before it is used, and its destructor is a plain function.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(use_context)) };
    assert_eq!(made, 0);
    let context = s.context;
    let thread = std::thread::spawn(move || {
        ok("cuCtxSetCurrent", &[context]);
        // SAFETY: the key exists; its destructor does not use the value.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
    });
    thread.join().expect("the thread ends");
    assert_eq!(REFUSED.load(Ordering::Relaxed), 1);
}

#[test]
fn absurd_sizes_get_an_error_code() {
    let s = setup();
    let huge = u64::MAX - 4095;
    // Calls that fail may write there.
    let mut outputs = [0_u64; 2];
    let place = out(&mut outputs);
    let rows: &[(&str, &[u64])] = &[
        ("cuMemcpyHtoD_v2", &[s.memory, s.memory, huge]),
        ("cuMemsetD32_v2", &[s.memory, 0, huge]),
        ("cuMemsetD2D8_v2", &[s.memory, huge, 0, 16, huge]),
        ("cuMemHostRegister_v2", &[4096, huge, 0]),
        ("cuMemAllocPitch_v2", &[place, place, huge, huge, 4]),
        (
            "cuMemAddressReserve",
            &[place, huge / (2 << 20) * (2 << 20), 0, 0, 0],
        ),
        ("cuMemAddressFree", &[huge, huge]),
        ("cuMemMap", &[huge, huge, huge, 0, 0]),
        ("cuMemUnmap", &[huge, huge]),
        ("cuMemAllocAsync", &[place, huge, s.stream]),
        ("cuMemAllocManaged", &[place, huge, 1]),
    ];
    for (name, arguments) in rows {
        let answer = call(name, arguments);
        let expected = [code::INVALID_VALUE, code::OUT_OF_MEMORY];
        assert!(expected.contains(&answer), "{name} answered {answer}");
    }
}
