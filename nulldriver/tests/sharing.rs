//! What the null driver refuses of memory and events that processes share. That processes do share
//! them is tested from end to end, since it needs several.

mod driver;

use driver::{at, call, code, make, ok, out, setup};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, `CU_EVENT_DISABLE_TIMING | INTERPROCESS`.
const DESCRIPTOR: u64 = 1;
const SHARED_EVENT: u64 = 6;

/// Words of a call with a 64-byte struct by value, which is on the stack.
fn with_handle(registers: &[u64], handle: &[u64; 8]) -> Vec<u64> {
    let mut words = registers.to_vec();
    words.resize(6, 0);
    words.extend(handle);
    words
}

#[test]
fn handles_are_given_out_for_what_can_be_shared() {
    let s = setup();
    let mut handle = [0_u64; 8];
    let mut again = [0_u64; 8];
    ok("cuIpcGetMemHandle", &[out(&mut handle), s.memory]);
    ok("cuIpcGetMemHandle", &[out(&mut again), s.memory]);
    assert_eq!(handle, again, "one handle for one memory");
    assert_ne!(handle, [0; 8]);
    let mut opened = 0_u64;
    // In the exporting process; then with wrong flags and a wrong handle.
    let rows = [
        (handle, 1, code::INVALID_CONTEXT),
        (handle, 0, code::INVALID_VALUE),
        ([7; 8], 1, code::INVALID_VALUE),
    ];
    for (handle, flags, expected) in rows {
        let words = with_handle(&[out(&mut opened), flags], &handle);
        assert_eq!(call("cuIpcOpenMemHandle_v2", &words), expected);
    }
    assert_eq!(
        call("cuIpcCloseMemHandle", &[s.memory]),
        code::INVALID_VALUE
    );
    // The bytes are what they were, and stay with the memory.
    ok("cuMemcpyHtoD_v2", &[s.memory, at(&[5_u64; 4]), 32]);
    let mut back = [0_u64; 4];
    ok("cuMemcpyDtoH_v2", &[out(&mut back), s.memory, 32]);
    assert_eq!(back, [5; 4]);
    let pinned = make("cuMemHostAlloc", &[4096, 2]);
    for address in [pinned, s.memory + 512, 0x1000] {
        let result = call("cuIpcGetMemHandle", &[out(&mut handle), address]);
        assert_eq!(result, code::INVALID_VALUE, "{address:#x}");
    }
    let plain = make("cuEventCreate", &[2]);
    let shared = make("cuEventCreate", &[SHARED_EVENT]);
    let result = call("cuIpcGetEventHandle", &[out(&mut handle), plain]);
    assert_eq!(
        result,
        code::INVALID_VALUE,
        "not created for other processes"
    );
    ok("cuIpcGetEventHandle", &[out(&mut handle), shared]);
    let words = with_handle(&[out(&mut opened)], &handle);
    assert_eq!(call("cuIpcOpenEventHandle", &words), code::INVALID_CONTEXT);
    ok("cuEventDestroy_v2", &[shared]);
    // The event is gone, and its handle with it.
    assert_eq!(call("cuIpcOpenEventHandle", &words), code::INVALID_HANDLE);
}

#[test]
fn descriptors_are_given_out_for_what_was_created_so() {
    use cutape_driver::types::{CUmemAllocationProp, CUmemPoolProps};
    let s = setup();
    let mut descriptor = -1_i32;
    for (types, expected) in [(0, code::INVALID_VALUE), (1, code::SUCCESS)] {
        // SAFETY: both structs consist of numbers and pointers, for which zeros are valid.
        let (mut properties, mut of_pool): (CUmemAllocationProp, CUmemPoolProps) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        (properties.type_.0, of_pool.allocType.0) = (1, 1);
        (properties.location.type_.0, of_pool.location.type_.0) = (1, 1);
        (properties.requestedHandleTypes.0, of_pool.handleTypes.0) = (types, types);
        let allocation = make("cuMemCreate", &[2 << 20, at(&properties), 0]);
        let words = [out(&mut descriptor), allocation, DESCRIPTOR, 0];
        assert_eq!(call("cuMemExportToShareableHandle", &words), expected);
        if expected == code::SUCCESS {
            let imported = make("cuMemImportFromShareableHandle", &[descriptor as u64, 1]);
            assert_ne!(imported, allocation);
        }
        let pool = make("cuMemPoolCreate", &[at(&of_pool)]);
        let words = [out(&mut descriptor), pool, DESCRIPTOR, 0];
        assert_eq!(call("cuMemPoolExportToShareableHandle", &words), expected);
        let memory = make("cuMemAllocFromPoolAsync", &[4096, pool, s.stream]);
        let mut data = [0_u64; 8];
        let words = [out(&mut data), memory];
        assert_eq!(call("cuMemPoolExportPointer", &words), expected);
        // What it names is no memory of an imported pool.
        let mut imported = 0_u64;
        let words = [out(&mut imported), pool, at(&data)];
        assert_eq!(call("cuMemPoolImportPointer", &words), code::INVALID_VALUE);
    }
    let mut handle = 0_u64;
    for wrong in [0, u64::from(u32::MAX)] {
        let words = [out(&mut handle), wrong, DESCRIPTOR];
        let result = call("cuMemImportFromShareableHandle", &words);
        assert_eq!(result, code::INVALID_VALUE, "descriptor {wrong}");
    }
}
