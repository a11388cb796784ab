//! Calls of the null driver by symbol name, for its tests.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::ffi::CString;

/// A 64-byte global with a value, a constant, and three kernels.
pub(crate) const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter[4] = {1, 2, 3, 4};
.visible .const .align 4 .u32 table[2];
.visible .entry k(.param .u64 p) { ret; }
.visible .entry many(.param .u64 a, .param .u32 b, .param .u8 c, .param .align 8 .b8 d[24]) { ret; }
.visible .entry bounded() .maxntid 128, 1, 1 { ret; }
";

/// `CUDA_SUCCESS` and the codes that the tests expect, by number of cuda.h.
pub(crate) mod code {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_INITIALIZED: u32 = 3;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const INVALID_SOURCE: u32 = 300;
    pub(crate) const FILE_NOT_FOUND: u32 = 301;
    pub(crate) const INVALID_HANDLE: u32 = 400;
    pub(crate) const ILLEGAL_STATE: u32 = 401;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const CONTEXT_IS_DESTROYED: u32 = 709;
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
    pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
    pub(crate) const NOT_PERMITTED: u32 = 800;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const INVALID_CLUSTER_SIZE: u32 = 912;
}

/// Calls an exported symbol with these argument words; the rest are zero.
pub(crate) fn call(name: &str, arguments: &[u64]) -> u32 {
    #[rustfmt::skip]
    type Entry = extern "C" fn(
        u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64,
    ) -> u32;
    let function = cutape_registry::function(name).unwrap_or_else(|| panic!("no function {name}"));
    let address = cutape_null::address_of(function.id).expect("every function has an entry point");
    // SAFETY: every entry point of the null driver is a C function of sixteen words that returns a
    // result code.
    let entry: Entry = unsafe { std::mem::transmute(address) };
    let mut w = [0_u64; 16];
    w[..arguments.len()].copy_from_slice(arguments);
    entry(
        w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13],
        w[14], w[15],
    )
}

/// A call that must succeed.
pub(crate) fn ok(name: &str, arguments: &[u64]) {
    assert_eq!(
        call(name, arguments),
        code::SUCCESS,
        "{name}({arguments:x?})"
    );
}

/// A call that must succeed and whose first argument is a pointer to a word; returns that word.
pub(crate) fn make(name: &str, arguments: &[u64]) -> u64 {
    let mut value = 0_u64;
    let mut words = vec![out(&mut value)];
    words.extend(arguments);
    ok(name, &words);
    value
}

/// The address of a variable that the driver writes.
pub(crate) fn out<T>(variable: &mut T) -> u64 {
    &raw mut *variable as u64
}

/// The address of something that the driver reads.
pub(crate) fn at<T: ?Sized>(variable: &T) -> u64 {
    (&raw const *variable).cast::<u8>() as u64
}

/// A C string for the rest of the process.
pub(crate) fn text(string: &str) -> u64 {
    CString::new(string).expect("no NUL inside").into_raw() as u64
}

/// What nearly every test begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) context: u64,
    pub(crate) module: u64,
    pub(crate) kernel: u64,
    pub(crate) stream: u64,
    /// 64 KiB of device memory.
    pub(crate) memory: u64,
}

/// Initialises, makes a context current, loads the module, makes a stream and memory.
pub(crate) fn setup() -> Setup {
    ok("cuInit", &[0]);
    let context = make("cuCtxCreate_v4", &[0, 0, 0]);
    let module = make("cuModuleLoadData", &[text(PTX)]);
    Setup {
        context,
        module,
        kernel: make("cuModuleGetFunction", &[module, text("k")]),
        stream: make("cuStreamCreate", &[1]),
        memory: make("cuMemAlloc_v2", &[64 << 10]),
    }
}

/// Launches a kernel of one pointer parameter with one block of 32 threads.
pub(crate) fn launch(function: u64, stream: u64) -> u32 {
    let parameter = 0_u64;
    let parameters = [at(&parameter)];
    call(
        "cuLaunchKernel",
        &[function, 1, 1, 1, 32, 1, 1, 0, stream, at(&parameters), 0],
    )
}
