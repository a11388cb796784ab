//! Which frames are the program's own.
//!
//! A frame is a library's if
//!
//! - its source or module is below a folder `site-packages` or `dist-packages`;
//! - it is Python's: its source or module is below `lib/pythonX.Y`, or its source in no file
//!   (`<frozen runpy>`), or its module is an executable `pythonX.Y` or `libpythonX.Y`;
//! - its module is below a system's folder for libraries (`/lib`, `/usr/lib`, `/usr/local/cuda*`,
//!   `/opt/nvidia`), or has the name of one that programs ship with them (libcuda, libcudart and
//!   further ones of NVIDIA, libc, libstdc++, the launchers that Triton compiles), or is cutape's;
//! - it is a function of a runtime that is linked into the program, or the host's stub of a kernel;
//! - it is an inlined function or an instance of a template whose source is a system's header.
//!
//! Every other frame is the program's own.

use cutape_analyzer::Frame;

/// Folders of systems.
const FOLDERS: [&str; 9] = [
    "/lib/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/libexec/",
    "/usr/include/",
    "/usr/local/cuda",
    "/usr/local/include/",
    "/opt/nvidia/",
];

/// Beginnings of names of libraries.
const LIBRARIES: [&str; 28] = [
    "__triton_launcher",
    "cuda_utils",
    "ld-linux",
    "libaccinj",
    "libc.so",
    "libcu",
    "libcutape_",
    "libcutlass",
    "libdl.so",
    "libffi",
    "libgcc_s",
    "libm.so",
    "libmlx5",
    "libnccl",
    "libnpp",
    "libnvJitLink",
    "libnvToolsExt",
    "libnvblas",
    "libnvinfer",
    "libnvjpeg",
    "libnvrtc",
    "libnvshmem",
    "libpthread",
    "libpython",
    "librt.so",
    "libstdc++",
    "libtorch",
    "linux-vdso",
];

/// Whether a function is of CUDA's runtime, linked statically, or what nvcc puts in the place of a
/// kernel on the host.
fn is_of_runtime(Frame { function, file, .. }: &Frame) -> bool {
    let is_api = function.strip_prefix("cuda").is_some_and(|name| {
        file.is_empty() && name.starts_with(|first: char| first.is_ascii_uppercase())
    });
    is_api || function.starts_with("libcudart_static_") || function.starts_with(STUB)
}

/// The stub that nvcc writes for a kernel.
const STUB: &str = "__device_stub__";

/// Marks the frames of a stack, the innermost first, that are the program's own.
pub(crate) fn mark(frames: &mut [Frame]) {
    let mut calls_stub = false;
    for frame in frames {
        // A stub is called by a function with the kernel's name, at the line of the kernel.
        frame.is_own = is_own(frame) && !calls_stub;
        calls_stub = frame.function.starts_with(STUB);
    }
}

/// Whether a frame is the program's own.
fn is_own(frame: &Frame) -> bool {
    let is_packaged =
        |path: &str| path.contains("/site-packages/") || path.contains("/dist-packages/");
    let is_system = |path: &str| FOLDERS.iter().any(|folder| path.starts_with(folder));
    let Frame {
        file,
        module,
        is_python,
        ..
    } = frame;
    let is_library = |path: &str| is_packaged(path) || is_standard(path);
    if is_library(file) || is_library(module) {
        return false;
    }
    if *is_python {
        return !file.starts_with('<') && !file.is_empty();
    }
    if is_of_runtime(frame) {
        return false;
    }
    let name = module.rsplit('/').next().unwrap_or_default();
    let is_library = LIBRARIES.iter().any(|library| name.starts_with(library));
    !name.is_empty()
        && !is_library
        && !is_interpreter(name)
        && !is_system(module)
        && !is_system(file)
}

/// Whether a source is of Python's standard library: `/usr/lib/python3.11/threading.py`.
fn is_standard(file: &str) -> bool {
    let mut folders = file.split('/');
    let mut before = "";
    folders.any(|folder| {
        let is_versioned = folder.strip_prefix("python3.").is_some_and(is_number);
        let is_there = matches!(before, "lib" | "lib64") && is_versioned;
        before = folder;
        is_there
    })
}

/// Whether an executable is Python's: `python3.11`.
fn is_interpreter(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|version| {
        let version = version.trim_end_matches('t');
        version
            .split('.')
            .all(|part| part.is_empty() || is_number(part))
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty()
        && text
            .trim_end_matches('t')
            .bytes()
            .all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_where_its_kernel_is_called() {
        let frame = |function: &str, file: &str| Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            module: "/home/u/app".to_owned(),
            ..Frame::default()
        };
        let mut frames = [
            frame("libcudart_static_4d8b33a1", ""),
            frame("cudaLaunchKernel", ""),
            frame("__device_stub__Z5scalePf(float*)", "app.cu"),
            frame("scale(float*)", "app.cu"),
            frame("main", "app.cu"),
            frame("cudaSteps", "app.cu"),
        ];
        mark(&mut frames);
        let own = frames.map(|frame| frame.is_own);
        assert_eq!(own, [false, false, false, false, true, true]);
    }

    #[test]
    fn a_program_is_told_from_its_libraries() {
        let native = |file: &str, module: &str| Frame {
            file: file.to_owned(),
            module: module.to_owned(),
            ..Frame::default()
        };
        let python = |file: &str| Frame {
            is_python: true,
            ..native(file, "")
        };
        for (frame, expected) in [
            (python("/home/u/train.py"), true),
            (python("train.py"), true),
            (python("<string>"), false),
            (python("<frozen runpy>"), false),
            (python("/usr/lib/python3.11/threading.py"), false),
            (
                python("/opt/conda/lib/python3.13t/ctypes/__init__.py"),
                false,
            ),
            (python("/home/u/python3.11/train.py"), true),
            (
                python("/v/lib/python3.12/site-packages/torch/cuda.py"),
                false,
            ),
            (native("", "/home/u/app"), true),
            (native("main.c", "/home/u/app"), true),
            (native("", "/home/u/libkernels.so"), true),
            (
                native("/usr/include/c++/12/bits/std_function.h", "/home/u/app"),
                false,
            ),
            (native("", "/usr/lib/x86_64-linux-gnu/libm.so.6"), false),
            (native("", "/home/u/cuda/libcudart.so.12"), false),
            (
                native("", "/usr/local/cuda-12.4/lib64/libcublas.so.12"),
                false,
            ),
            (
                native("", "/v/lib/python3.12/site-packages/torch/lib/libc10.so"),
                false,
            ),
            (
                native("", "/v/lib/python3.12/lib-dynload/_ctypes.so"),
                false,
            ),
            (native("", "/usr/bin/python3.11"), false),
            (
                native(
                    "",
                    "/home/u/.triton/cache/A/__triton_launcher.cpython-312-x86_64-linux-gnu.so",
                ),
                false,
            ),
            (native("", "/home/u/bin/python"), false),
            (native("", "/home/u/pythonic"), true),
            (native("", ""), false),
        ] {
            assert_eq!(is_own(&frame), expected, "{frame:?}");
        }
    }
}
