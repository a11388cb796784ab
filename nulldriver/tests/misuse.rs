//! What misuse does, each row in its own process: the answers measured on a real driver (580,
//! H200).

mod driver;

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use driver::{Setup, at, call, code, launch, make, ok, out, setup, text};

/// How a row ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The last call answers this code.
    Code(u32),
    /// The process dies of this signal.
    Signal(i32),
}

use End::{Code, Signal};

const SEGMENTATION_FAULT: End = Signal(libc::SIGSEGV);
const ABORT: End = Signal(libc::SIGABRT);

/// A misuse: creates what it needs from the setup, and returns the answer to the misusing call.
type Row = (&'static str, End, fn(Setup) -> u32);

const ROWS: &[Row] = &[
    (
        "launch after cuModuleUnload",
        Code(code::INVALID_HANDLE),
        |s| {
            ok("cuModuleUnload", &[s.module]);
            launch(s.kernel, s.stream)
        },
    ),
    ("double cuModuleUnload", Code(code::INVALID_HANDLE), |s| {
        ok("cuModuleUnload", &[s.module]);
        call("cuModuleUnload", &[s.module])
    }),
    // 580.159.04, H100.
    ("cuModuleUnload of NULL", Code(code::INVALID_HANDLE), |_| {
        call("cuModuleUnload", &[0])
    }),
    ("cuModuleUnload of no handle", SEGMENTATION_FAULT, |_| {
        call("cuModuleUnload", &[0x5a5a_5a5a_5a5a_5a50])
    }),
    (
        "cuModuleGetFunction on an unloaded module",
        Code(code::INVALID_HANDLE),
        |s| {
            ok("cuModuleUnload", &[s.module]);
            call(
                "cuModuleGetFunction",
                &[out(&mut 0_u64), s.module, text("k")],
            )
        },
    ),
    (
        "copy to a global after unload",
        Code(code::INVALID_VALUE),
        |s| {
            let global = make("cuModuleGetGlobal_v2", &[0, s.module, text("counter")]);
            ok("cuMemcpyHtoD_v2", &[global, at(&[0_u8; 16]), 16]);
            ok("cuModuleUnload", &[s.module]);
            call("cuMemcpyHtoD_v2", &[global, at(&[0_u8; 16]), 16])
        },
    ),
    (
        "load of the cubin after cuLinkDestroy",
        Code(code::SUCCESS),
        |_| {
            let (link, image) = linked();
            ok("cuLinkDestroy", &[link]);
            call("cuModuleLoadData", &[out(&mut 0_u64), image])
        },
    ),
    ("double cuLinkDestroy", ABORT, |_| {
        let (link, _) = linked();
        ok("cuLinkDestroy", &[link]);
        call("cuLinkDestroy", &[link])
    }),
    ("link used after cuLinkDestroy", SEGMENTATION_FAULT, |_| {
        let (link, _) = linked();
        ok("cuLinkDestroy", &[link]);
        call("cuLinkComplete", &[link, out(&mut 0_u64), out(&mut 0_u64)])
    }),
    (
        "stream used after cuStreamDestroy",
        SEGMENTATION_FAULT,
        |s| {
            ok("cuStreamDestroy_v2", &[s.stream]);
            launch(s.kernel, s.stream)
        },
    ),
    ("event used after cuEventDestroy", SEGMENTATION_FAULT, |s| {
        let event = make("cuEventCreate", &[0]);
        ok("cuEventDestroy_v2", &[event]);
        call("cuEventRecord", &[event, s.stream])
    }),
    (
        "cuLinkAddData with CU_JIT_WALL_TIME",
        Code(code::INVALID_VALUE),
        |_| add_with_option(1, 2),
    ),
    (
        "cuLinkAddData with CU_JIT_TARGET",
        Code(code::INVALID_VALUE),
        |_| add_with_option(1, 9),
    ),
    (
        "cuLinkAddData with CU_JIT_MAX_REGISTERS",
        Code(code::SUCCESS),
        |_| add_with_option(1, 0),
    ),
    (
        "cuLinkAddData without the final NUL",
        Code(code::SUCCESS),
        |_| {
            let link = make_link();
            add(link, driver::PTX.as_bytes())
        },
    ),
    (
        "the same entry added twice",
        Code(code::INVALID_SOURCE),
        |_| {
            let link = make_link();
            assert_eq!(add(link, driver::PTX.as_bytes()), code::SUCCESS);
            assert_eq!(add(link, driver::PTX.as_bytes()), code::INVALID_SOURCE);
            call("cuLinkComplete", &[link, out(&mut 0_u64), out(&mut 0_u64)])
        },
    ),
    ("PTX added as a cubin", Code(code::INVALID_IMAGE), |_| {
        let link = make_link();
        let ptx = driver::PTX;
        let added = call(
            "cuLinkAddData_v2",
            &[link, 0, at(ptx), ptx.len() as u64, 0, 0, 0, 0],
        );
        assert_eq!(added, code::INVALID_IMAGE);
        call("cuLinkComplete", &[link, out(&mut 0_u64), out(&mut 0_u64)])
    }),
    (
        "an input added after cuLinkComplete",
        Code(code::INVALID_VALUE),
        |_| add(linked().0, driver::PTX.as_bytes()),
    ),
    (
        "cuModuleGetGlobal with both outputs NULL",
        Code(code::INVALID_VALUE),
        |s| call("cuModuleGetGlobal_v2", &[0, 0, s.module, text("counter")]),
    ),
    (
        "kernelParams and extra both set",
        Code(code::INVALID_VALUE),
        |s| {
            let parameters = [at(&0_u64)];
            let extra = [0_u64];
            call(
                "cuLaunchKernel",
                &[
                    s.kernel,
                    1,
                    1,
                    1,
                    32,
                    1,
                    1,
                    0,
                    s.stream,
                    at(&parameters),
                    at(&extra),
                ],
            )
        },
    ),
    ("2,048 threads a block", Code(code::INVALID_VALUE), |s| {
        launch_shape(s, 2048, 0)
    }),
    (
        "100 KiB dynamic shared memory without opt-in",
        Code(code::INVALID_VALUE),
        |s| launch_shape(s, 32, 100 << 10),
    ),
    (
        "100 KiB dynamic shared memory with opt-in",
        Code(code::SUCCESS),
        |s| {
            ok("cuFuncSetAttribute", &[s.kernel, 8, 100 << 10]);
            launch_shape(s, 32, 100 << 10)
        },
    ),
    (
        "setting a read-only attribute",
        Code(code::INVALID_VALUE),
        |s| call("cuFuncSetAttribute", &[s.kernel, 4, 32]),
    ),
    (
        "memory used after cuMemFree",
        Code(code::INVALID_VALUE),
        |s| {
            ok("cuMemFree_v2", &[s.memory]);
            call("cuMemsetD8_v2", &[s.memory, 0, 16])
        },
    ),
    ("memory freed twice", Code(code::INVALID_VALUE), |s| {
        ok("cuMemFree_v2", &[s.memory]);
        call("cuMemFree_v2", &[s.memory])
    }),
    (
        "memory freed in its middle",
        Code(code::INVALID_VALUE),
        |s| call("cuMemFree_v2", &[s.memory + 256]),
    ),
    (
        "pinned memory freed as device memory",
        Code(code::INVALID_VALUE),
        |_| {
            let host = make("cuMemAllocHost_v2", &[4096]);
            call("cuMemFree_v2", &[host])
        },
    ),
    ("a copy beyond the end", Code(code::INVALID_VALUE), |s| {
        let bytes = [0_u8; 64];
        call(
            "cuMemcpyHtoD_v2",
            &[s.memory + (64 << 10) - 32, at(&bytes), 64],
        )
    }),
    (
        "a device address read by the CPU",
        SEGMENTATION_FAULT,
        |s| {
            // SAFETY: it is not sound to read device memory; that it faults is what is tested, in a
            // process of its own.
            u32::from(unsafe { std::ptr::read_volatile(s.memory as *const u8) })
        },
    ),
    (
        "cuModuleUnload of a library's module",
        Code(code::NOT_PERMITTED),
        |_| {
            let library = load_library();
            let module = make("cuLibraryGetModule", &[library]);
            call("cuModuleUnload", &[module])
        },
    ),
    (
        "launch of a CUkernel after cuLibraryUnload",
        Code(code::INVALID_HANDLE),
        |s| {
            let library = load_library();
            let kernel = make("cuLibraryGetKernel", &[library, text("k")]);
            assert_eq!(launch(kernel, s.stream), code::SUCCESS);
            ok("cuLibraryUnload", &[library]);
            launch(kernel, s.stream)
        },
    ),
    (
        "cuFuncSetAttribute of a CUkernel",
        Code(code::INVALID_HANDLE),
        |_| {
            let kernel = make("cuLibraryGetKernel", &[load_library(), text("k")]);
            call("cuFuncSetAttribute", &[kernel, 8, 65536])
        },
    ),
    (
        "cuEventElapsedTime with an unrecorded event",
        Code(code::INVALID_HANDLE),
        |s| elapsed(s, 0, false),
    ),
    (
        "cuEventElapsedTime with a timing-less event",
        Code(code::INVALID_HANDLE),
        |s| elapsed(s, 2, true),
    ),
    (
        "cuEventElapsedTime with recorded events",
        Code(code::SUCCESS),
        |s| elapsed(s, 0, true),
    ),
    (
        "cuMemFree after cuCtxDestroy",
        Code(code::INVALID_VALUE),
        |s| {
            ok("cuCtxDestroy_v2", &[s.context]);
            call("cuMemFree_v2", &[s.memory])
        },
    ),
    (
        "cuModuleUnload after cuCtxDestroy",
        Code(code::INVALID_HANDLE),
        |s| {
            ok("cuCtxDestroy_v2", &[s.context]);
            call("cuModuleUnload", &[s.module])
        },
    ),
    (
        "cuStreamDestroy after cuCtxDestroy",
        SEGMENTATION_FAULT,
        |s| {
            ok("cuCtxDestroy_v2", &[s.context]);
            call("cuStreamDestroy_v2", &[s.stream])
        },
    ),
    (
        "function name read after unload",
        Code(code::SUCCESS),
        |s| {
            let name = make("cuFuncGetName", &[s.kernel]);
            ok("cuModuleUnload", &[s.module]);
            // SAFETY: names are kept for the whole life of the process.
            let name = unsafe { std::ffi::CStr::from_ptr(name as *const std::ffi::c_char) };
            u32::from(name != c"k")
        },
    ),
    (
        "a launch of a name that was not found",
        Code(code::INVALID_HANDLE),
        |s| {
            let mut function = s.kernel;
            let found = call(
                "cuModuleGetFunction",
                &[out(&mut function), s.module, text("no such kernel")],
            );
            assert_eq!(found, code::NOT_FOUND);
            launch(function, s.stream)
        },
    ),
    (
        "a JIT log buffer without its size",
        Code(code::INVALID_VALUE),
        |_| {
            let (names, values) = ([5_u32], [at(&[0_u8; 64])]);
            let ptx = text(driver::PTX);
            call(
                "cuModuleLoadDataEx",
                &[out(&mut 0_u64), ptx, 1, at(&names), at(&values)],
            )
        },
    ),
    ("a context pushed after its end", Code(code::SUCCESS), |s| {
        ok("cuCtxDestroy_v2", &[s.context]);
        call("cuCtxPushCurrent_v2", &[s.context])
    }),
    (
        "a context pushed after its end, and popped",
        SEGMENTATION_FAULT,
        |s| {
            ok("cuCtxDestroy_v2", &[s.context]);
            ok("cuCtxPushCurrent_v2", &[s.context]);
            call("cuCtxPopCurrent_v2", &[0])
        },
    ),
    // Correct calls, measured like the rest.
    ("cuMemFree of nothing", Code(code::SUCCESS), |_| {
        call("cuMemFree_v2", &[0])
    }),
    ("the empty name", Code(code::SUCCESS), |_| {
        let mut address = 1_u64;
        let arguments = [text(""), out(&mut address), 0, 0, 0];
        let answer = call("cuGetProcAddress_v2", &arguments);
        assert_eq!(address, 0);
        answer
    }),
    ("CU_LIMIT_CIG_ENABLED", Code(code::SUCCESS), |_| {
        call("cuCtxGetLimit", &[out(&mut 0_u64), 8])
    }),
    ("no context", Code(code::INVALID_CONTEXT), |_| {
        ok("cuCtxPopCurrent_v2", &[0]);
        call("cuMemAlloc_v2", &[out(&mut 0_u64), 16])
    }),
    (
        "a context destroyed by another thread",
        Code(code::CONTEXT_IS_DESTROYED),
        |s| {
            let destroy = move || call("cuCtxDestroy_v2", &[s.context]);
            assert_eq!(
                std::thread::spawn(destroy).join().expect("no panic"),
                code::SUCCESS
            );
            call("cuMemAlloc_v2", &[out(&mut 0_u64), 16])
        },
    ),
    (
        "a call of the API from a destructor, in the thread that releases its object",
        Code(code::NOT_PERMITTED),
        |_| {
            thread_local!(static ANSWER: Cell<u32> = const { Cell::new(0) });
            extern "C" fn allocate(_: u64) {
                ANSWER.set(call("cuMemAlloc_v2", &[out(&mut 0_u64), 16]));
            }
            let entry = allocate as extern "C" fn(u64) as usize as u64;
            let object = make("cuUserObjectCreate", &[0, entry, 1, 1]);
            ok("cuUserObjectRelease", &[object, 1]);
            ANSWER.get()
        },
    ),
    (
        "a call of the API from a host function",
        Code(code::NOT_PERMITTED),
        |s| {
            extern "C" fn allocate(answer: u64) {
                let got = call("cuMemAlloc_v2", &[out(&mut 0_u64), 16]);
                // SAFETY: the enqueuing call waits for this function, so its variable lives.
                unsafe { *(answer as *mut u32) = got };
            }
            let mut answer = 0_u32;
            let entry = allocate as extern "C" fn(u64) as usize as u64;
            ok("cuLaunchHostFunc", &[s.stream, entry, out(&mut answer)]);
            answer
        },
    ),
    (
        "a surplus cuDevicePrimaryCtxRelease",
        Code(code::INVALID_CONTEXT),
        |_| {
            make("cuDevicePrimaryCtxRetain", &[0]);
            ok("cuDevicePrimaryCtxRelease_v2", &[0]);
            call("cuDevicePrimaryCtxRelease_v2", &[0])
        },
    ),
    (
        "a cuDevicePrimaryCtxRelease too many after a reset",
        Code(code::INVALID_CONTEXT),
        |_| {
            make("cuDevicePrimaryCtxRetain", &[0]);
            make("cuDevicePrimaryCtxRetain", &[0]);
            ok("cuDevicePrimaryCtxReset_v2", &[0]);
            ok("cuDevicePrimaryCtxRelease_v2", &[0]);
            ok("cuDevicePrimaryCtxRelease_v2", &[0]);
            call("cuDevicePrimaryCtxRelease_v2", &[0])
        },
    ),
    (
        "too large a cooperative grid",
        Code(code::COOPERATIVE_LAUNCH_TOO_LARGE),
        |s| {
            let parameters = [at(&0_u64)];
            call(
                "cuLaunchCooperativeKernel",
                &[
                    s.kernel,
                    1 << 20,
                    1,
                    1,
                    32,
                    1,
                    1,
                    0,
                    s.stream,
                    at(&parameters),
                ],
            )
        },
    ),
    ("wild kernel parameters", SEGMENTATION_FAULT, |s| {
        let parameters = [16_u64];
        call(
            "cuLaunchKernel",
            &[s.kernel, 1, 1, 1, 32, 1, 1, 0, s.stream, at(&parameters), 0],
        )
    }),
];

fn make_link() -> u64 {
    let mut link = 0_u64;
    ok("cuLinkCreate_v2", &[0, 0, 0, out(&mut link)]);
    link
}

fn add(link: u64, ptx: &[u8]) -> u32 {
    call(
        "cuLinkAddData_v2",
        &[link, 1, at(ptx), ptx.len() as u64, text("input"), 0, 0, 0],
    )
}

/// A completed link and its image.
fn linked() -> (u64, u64) {
    let link = make_link();
    assert_eq!(add(link, driver::PTX.as_bytes()), code::SUCCESS);
    let (mut image, mut size) = (0_u64, 0_u64);
    ok("cuLinkComplete", &[link, out(&mut image), out(&mut size)]);
    assert!(image != 0 && size > 64);
    (link, image)
}

fn add_with_option(input: u64, option: u32) -> u32 {
    let link = make_link();
    let (names, values) = ([option], [90_u64]);
    let ptx = driver::PTX;
    call(
        "cuLinkAddData_v2",
        &[
            link,
            input,
            at(ptx),
            ptx.len() as u64,
            0,
            1,
            at(&names),
            at(&values),
        ],
    )
}

fn load_library() -> u64 {
    make("cuLibraryLoadData", &[text(driver::PTX), 0, 0, 0, 0, 0, 0])
}

fn launch_shape(s: Setup, threads: u64, shared: u64) -> u32 {
    let parameters = [at(&0_u64)];
    call(
        "cuLaunchKernel",
        &[
            s.kernel,
            1,
            1,
            1,
            threads,
            1,
            1,
            shared,
            s.stream,
            at(&parameters),
            0,
        ],
    )
}

fn elapsed(s: Setup, flags: u64, record_both: bool) -> u32 {
    let start = make("cuEventCreate", &[flags]);
    let end = make("cuEventCreate", &[flags]);
    ok("cuEventRecord", &[start, s.stream]);
    if record_both {
        ok("cuEventRecord", &[end, s.stream]);
    }
    call("cuEventElapsedTime_v2", &[out(&mut 0_f32), start, end])
}

/// What a child prints before the code that its row answered.
const MARK: &str = "answered ";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, verb, index] = &arguments[..]
        && verb == "row"
    {
        let row = ROWS[index.parse::<usize>().expect("a number")];
        println!("{MARK}{}", row.2(setup()));
        return;
    }
    let program = std::env::current_exe().expect("the test's own path");
    let mut failures = 0;
    for (index, (name, expected, _)) in ROWS.iter().enumerate() {
        let output = Command::new(&program)
            .args(["row", &index.to_string()])
            .output()
            .expect("the child starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        let answered = printed
            .lines()
            .find_map(|line| line.strip_prefix(MARK)?.parse().ok());
        let end = output.status.signal().map(Signal).or(answered.map(Code));
        if end != Some(*expected) {
            failures += 1;
            println!(
                "{name}: expected {expected:?}, got {end:?}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    println!("{} rows, {failures} failed", ROWS.len());
    assert_eq!(failures, 0);
}

#[test]
fn a_library_option_without_a_value_needs_no_values() {
    setup();
    const HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: u32 = 0;
    const BINARY_IS_PRESERVED: u32 = 1;
    let mut library = 0_u64;
    for (option, expected) in [
        (BINARY_IS_PRESERVED, code::SUCCESS),
        (HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE, code::INVALID_VALUE),
    ] {
        let words = [
            out(&mut library),
            text(driver::PTX),
            0,
            0,
            0,
            at(&option),
            0,
            1,
        ];
        assert_eq!(call("cuLibraryLoadData", &words), expected, "{option}");
    }
}
