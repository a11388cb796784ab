//! The private tables of `cuGetExportTable`, called as the CUDA runtime does.

mod driver;

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

use driver::{PTX, at, call, code, make, ok, out, text};

const CUDART: u128 = 0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9;
const STORAGE: u128 = 0xc693336e_1121_df11_a8c3_68f355d89593;
const INTEGRITY: u128 = 0xd4082055_bde6_704b_8d34_ba123c66e1f2;
const CHECKS: u128 = 0x263e8860_7cd2_6143_92f6_bbd5006dfa7e;
const THREAD_STORAGE: u128 = 0x42d85a81_23f6_cb47_8298_f6e78a3aecdc;
const LARGE: u128 = 0x21318c60_9714_3248_8ca6_41ff7324c8f2;
const HOOKS: u128 = 0xa094798c_2e74_2e74_93f2_0800200c0a66;

/// Calls a slot of a table.
fn slot(uuid: u128, slot: usize, arguments: &[u64]) -> u32 {
    let table = make("cuGetExportTable", &[at(&uuid.to_be_bytes())]) as *const usize;
    let mut w = [0_u64; 4];
    w[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the table has that slot, which is a C function of at most four words.
    unsafe {
        let entry: extern "C" fn(u64, u64, u64, u64) -> u32 = std::mem::transmute(*table.add(slot));
        entry(w[0], w[1], w[2], w[3])
    }
}

/// The value of a key in a context, or the code.
fn stored(context: u64, key: u64) -> Result<u64, u32> {
    let mut value = 0_u64;
    match slot(STORAGE, 2, &[out(&mut value), context, key]) {
        code::SUCCESS => Ok(value),
        code => Err(code),
    }
}

/// Contexts, keys and values that destructors were called with.
static ENDED: Mutex<Vec<(u64, u64, u64)>> = Mutex::new(Vec::new());

extern "C" fn destructor(context: u64, key: u64, value: u64) {
    // It may call the driver.
    let mut current = 0_u64;
    ok("cuCtxGetCurrent", &[out(&mut current)]);
    ENDED
        .lock()
        .expect("not poisoned")
        .push((context, key, value));
}

fn ended() -> Vec<(u64, u64, u64)> {
    std::mem::take(&mut ENDED.lock().expect("not poisoned"))
}

/// One test, because the state is that of the process.
#[test]
fn the_runtime_finds_what_it_calls() {
    assert_eq!(slot(CUDART, 2, &[at(&0_u64), 0]), code::NOT_INITIALIZED);
    ok("cuInit", &[0]);
    managed_variables_need_no_context();
    primary_contexts_are_current_before_they_exist();
    contexts_have_numbers();
    values_are_stored_by_context();
    wrappers_become_modules();
    unknown_slots_are_named();
    codes_of_integrity_depend_on_the_time();
    buffers_of_hooks_hold_zeros();
}

/// As cuBLASLt asks before each matrix product.
fn contexts_have_numbers() {
    let context = make("cuCtxCreate_v4", &[0, 0, 0]);
    let [mut current, mut number, mut expected] = [0_u64; 3];
    assert_eq!(slot(THREAD_STORAGE, 2, &[out(&mut current)]), code::SUCCESS);
    assert_eq!(current, context);
    assert_eq!(slot(LARGE, 4, &[context, out(&mut number)]), code::SUCCESS);
    ok("cuCtxGetId", &[context, out(&mut expected)]);
    assert_eq!(number, expected);
    ok("cuCtxDestroy_v2", &[context]);
}

/// Not through a table, but before the runtime has a context.
fn managed_variables_need_no_context() {
    let image = text(
        ".version 7.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 total = 5;
.visible .global .align 4 .u32 own;
",
    );
    let library = make("cuLibraryLoadData", &[image, 0, 0, 0, 0, 0, 0]);
    let address_of = |function, owner, name| {
        let mut address = 0_u64;
        let code = call(function, &[out(&mut address), 0, owner, text(name)]);
        (code == code::SUCCESS).then_some(address).ok_or(code)
    };
    let total = address_of("cuLibraryGetManaged", library, "total").expect("without a context");
    // SAFETY: managed memory of four bytes, which the CPU can read.
    assert_eq!(unsafe { (total as *const u32).read() }, 5);
    for (function, name, expected) in [
        ("cuLibraryGetGlobal", "own", code::INVALID_CONTEXT),
        ("cuLibraryGetManaged", "own", code::NOT_FOUND),
    ] {
        assert_eq!(address_of(function, library, name), Err(expected), "{name}");
    }
    let context = make("cuCtxCreate_v4", &[0, 0, 0]);
    let module = make("cuLibraryGetModule", &[library]);
    for (function, owner) in [
        ("cuLibraryGetManaged", library),
        ("cuLibraryGetGlobal", library),
        ("cuModuleGetGlobal_v2", module),
    ] {
        assert_eq!(
            address_of(function, owner, "total"),
            Ok(total),
            "{function}"
        );
    }
    ok("cuCtxDestroy_v2", &[context]);
    assert_eq!(
        address_of("cuLibraryGetManaged", library, "total"),
        Ok(total)
    );
    ok("cuLibraryUnload", &[library]);
}

fn primary_contexts_are_current_before_they_exist() {
    let mut handle = 0_u64;
    assert_eq!(slot(CUDART, 2, &[0, 0]), code::INVALID_VALUE);
    assert_eq!(
        slot(CUDART, 2, &[out(&mut handle), 99]),
        code::INVALID_DEVICE
    );
    assert_eq!(slot(CUDART, 2, &[out(&mut handle), 0]), code::SUCCESS);
    ok("cuCtxSetCurrent", &[handle]);
    let mut active = 7_i32;
    ok(
        "cuDevicePrimaryCtxGetState",
        &[0, out(&mut 0_u32), out(&mut active)],
    );
    assert_eq!(active, 0, "the table retains nothing");
    let mut memory = 0_u64;
    assert_eq!(
        call("cuMemAlloc_v2", &[out(&mut memory), 64]),
        code::CONTEXT_IS_DESTROYED
    );
    assert_eq!(make("cuDevicePrimaryCtxRetain", &[0]), handle);
    ok("cuMemAlloc_v2", &[out(&mut memory), 64]);
}

fn values_are_stored_by_context() {
    let primary = make("cuDevicePrimaryCtxRetain", &[0]);
    let other = make("cuCtxCreate_v4", &[0, 0, 0]);
    let run = destructor as *const c_void as u64;
    for (context, key, value, with) in [
        (primary, 1, 10, run),
        (other, 1, 20, run),
        (0, 2, 30, 0),
        (0, 3, 40, run),
    ] {
        assert_eq!(
            slot(STORAGE, 0, &[context, key, value, with]),
            code::SUCCESS
        );
    }
    assert_eq!(slot(STORAGE, 0, &[primary, 1, 11, run]), code::SUCCESS);
    assert_eq!(slot(STORAGE, 1, &[0, 3]), code::SUCCESS);
    for (context, key, expected) in [
        (primary, 1, Ok(11)),
        (other, 1, Ok(20)),
        (0, 2, Ok(30)),
        (primary, 2, Err(code::INVALID_HANDLE)),
        (other, 3, Err(code::INVALID_HANDLE)),
        (u64::MAX, 2, Ok(30)),
        (12, 1, Err(code::INVALID_HANDLE)),
    ] {
        assert_eq!(stored(context, key), expected, "{context:x} {key}");
    }
    assert_eq!(ended(), []);
    ok("cuCtxDestroy_v2", &[other]);
    assert_eq!(ended(), [(other, 1, 20)]);
    ok("cuDevicePrimaryCtxReset_v2", &[0]);
    assert_eq!(ended(), [(primary, 1, 11)]);
    // The context that was reset is still current, and usable when it is retained again.
    let version = |context| call("cuCtxGetApiVersion", &[context, out(&mut 0_u32)]);
    assert_eq!(stored(primary, 1), Err(code::INVALID_HANDLE));
    assert_eq!(version(primary), code::CONTEXT_IS_DESTROYED);
    let mut memory = 0_u64;
    let allocate = |memory: &mut u64| call("cuMemAlloc_v2", &[out(memory), 64]);
    assert_eq!(allocate(&mut memory), code::CONTEXT_IS_DESTROYED);
    make("cuDevicePrimaryCtxRetain", &[0]);
    assert_eq!(stored(primary, 1), Err(code::INVALID_HANDLE));
    assert_eq!((version(primary), allocate(&mut memory)), (0, 0));
}

fn wrappers_become_modules() {
    ok("cuCtxSetCurrent", &[make("cuDevicePrimaryCtxRetain", &[0])]);
    let mut module = 0_u64;
    let image = text(PTX);
    for (index, words) in [
        (1, [out(&mut module), image]),
        (6, [out(&mut module), image]),
        (8, [image, out(&mut module)]),
    ] {
        module = 0;
        assert_eq!(slot(CUDART, index, &words), code::SUCCESS, "slot {index}");
        make("cuModuleGetFunction", &[module, text("k")]);
    }
}

/// Lines of the driver's error log.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn note(_data: u64, _level: u32, line: *const c_char, _length: usize) {
    // SAFETY: the driver passes a string.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    LOG.lock().expect("not poisoned").push(line.into_owned());
}

fn unknown_slots_are_named() {
    let handle = {
        let mut handle = 0_u64;
        let callback = note as *const c_void as u64;
        ok("cuLogsRegisterCallback", &[callback, 0, out(&mut handle)]);
        handle
    };
    for (uuid, index) in [
        (CUDART, 7),
        (STORAGE, 3),
        (0x21318c60_9714_3248_8ca6_41ff7324c8f2, 94),
    ] {
        assert_eq!(slot(uuid, index, &[]), code::NOT_SUPPORTED);
    }
    let mut table = 0_u64;
    assert_eq!(
        call("cuGetExportTable", &[out(&mut table), at(&[7_u8; 16])]),
        code::INVALID_VALUE
    );
    ok("cuLogsUnregisterCallback", &[handle]);
    assert_eq!(
        LOG.lock().expect("not poisoned")[..4],
        [
            "slot 7 of the private table 6bd5fb6c is not known",
            "slot 3 of the private table c693336e is not known",
            "slot 94 of the private table 21318c60 is not known",
            "there is no private table 07070707070707070707070707070707",
        ]
    );
}

fn codes_of_integrity_depend_on_the_time() {
    let code_of = |version: u64, seconds: u64| {
        let mut code = [0_u64; 2];
        assert_eq!(
            slot(INTEGRITY, 1, &[version, seconds, out(&mut code)]),
            code::SUCCESS
        );
        code
    };
    assert_eq!(code_of(13_000, 1), code_of(12_090, 2));
    assert_ne!(code_of(13_000, 1), code_of(13_001, 1));
    assert_eq!(code_of(13_002, 1), code_of(13_002, 1));
    assert_ne!(code_of(13_002, 1), code_of(13_002, 2));
    let of_another_thread =
        std::thread::scope(|scope| scope.spawn(|| code_of(13_002, 1)).join().expect("no panic"));
    assert_ne!(code_of(13_002, 1), of_another_thread);
}

fn buffers_of_hooks_hold_zeros() {
    let mut bits = 7_u32;
    assert_eq!(slot(CHECKS, 2, &[0, out(&mut bits), 0]), code::SUCCESS);
    assert_eq!((bits, slot(CHECKS, 3, &[])), (0, 0));
    for (index, words) in [(2, 1024), (6, 14)] {
        let (mut buffer, mut size) = (0_u64, 0_usize);
        slot(HOOKS, index, &[out(&mut buffer), out(&mut size)]);
        assert_eq!(size, words);
        // SAFETY: the buffer has that many words.
        let buffer = unsafe { std::slice::from_raw_parts(buffer as *const u32, size) };
        assert!(buffer.iter().all(|&word| word == 0));
    }
}
