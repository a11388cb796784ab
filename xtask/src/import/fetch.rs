//! Downloads the headers in NVIDIA's wheels with pip, which checks the digests, and writes stubs
//! for the graphics headers that they include.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Toolkit;
use crate::step::run;
use crate::{Failure, files};

/// Version, requirement, digest, and the folder of the headers in the wheel; oldest first.
const WHEELS: [(&str, &str, &str, &str); 2] = [
    (
        "12.9",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
        "nvidia/cuda_runtime/include",
    ),
    (
        "13.0",
        "nvidia-cuda-runtime==13.0.96",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        "nvidia/cu13/include",
    ),
];

/// The types that cudaGL.h, cudaEGL.h and cudaVDPAU.h use from graphics headers.
const STUBS: [(&str, &str); 4] = [
    (
        "GL/gl.h",
        "typedef unsigned int GLuint;\ntypedef unsigned int GLenum;\n",
    ),
    ("EGL/egl.h", "typedef int EGLint;\n"),
    (
        "EGL/eglext.h",
        "typedef void *EGLImageKHR;\ntypedef void *EGLStreamKHR;\ntypedef void *EGLSyncKHR;\n",
    ),
    (
        "vdpau/vdpau.h",
        "#include <stdint.h>\ntypedef uint32_t VdpDevice;\ntypedef uint32_t VdpVideoSurface;\n\
         typedef uint32_t VdpOutputSurface;\n\
         typedef int VdpGetProcAddress(VdpDevice, uint32_t, void **);\n",
    ),
];

/// The profiler's header is in neither wheel; cudaProfilerTypedefs.h has its prototypes.
const PROFILER: &str = "#include <cuda.h>\n\
    typedef enum CUoutput_mode_enum { CU_OUT_KEY_VALUE_PAIR = 0, CU_OUT_CSV = 1 } CUoutput_mode;\n\
    CUresult cuProfilerInitialize(const char *configFile, const char *outputFile,\n\
        CUoutput_mode outputMode);\n\
    CUresult cuProfilerStart(void);\n\
    CUresult cuProfilerStop(void);\n";

/// Downloads the wheels once, and unpacks them.
pub(super) fn toolkits(work: &Path) -> Result<Vec<Toolkit>, Failure> {
    let mut toolkits = Vec::new();
    for (version, requirement, digest, inside) in WHEELS {
        let folder = work.join(version);
        let include = folder.join(inside);
        if !include.join("cuda.h").is_file() {
            let pinned = folder.join("requirements.txt");
            files::write(&pinned, &format!("{requirement} --hash=sha256:{digest}\n"))?;
            let download = "-m pip download --quiet --no-deps --require-hashes";
            python(
                Command::new("python3")
                    .args(download.split(' '))
                    .arg("-d")
                    .arg(&folder)
                    .arg("-r")
                    .arg(&pinned),
            )?;
            python(
                Command::new("python3")
                    .args(["-m", "zipfile", "-e"])
                    .arg(wheel(&folder)?)
                    .arg(&folder),
            )?;
        }
        toolkits.push(Toolkit { version, include });
    }
    Ok(toolkits)
}

/// Writes the stubs and a file that includes all headers; returns their folder.
pub(super) fn write_stubs(work: &Path) -> Result<PathBuf, Failure> {
    let folder = work.join("stubs");
    let all = "#include <vdpau/vdpau.h>\n#include <cuda.h>\n#include <cudaGL.h>\n\
               #include <cudaEGL.h>\n\
               #include <cudaVDPAU.h>\n#include <cudaProfiler.h>\n";
    let own = [("cudaProfiler.h", PROFILER), ("cuda_everything.h", all)];
    for (name, text) in STUBS.into_iter().chain(own) {
        files::write(&folder.join(name), text)?;
    }
    Ok(folder)
}

fn wheel(folder: &Path) -> Result<PathBuf, Failure> {
    let mut files = files::list(folder).into_iter();
    let wheel = files.find(|path| files::has_extension(path, "whl"));
    wheel.ok_or_else(|| files::failed(folder, "pip downloaded no wheel"))
}

fn python(command: &mut Command) -> Result<(), Failure> {
    run(command).map_err(|failure| failure!("{failure}; import needs python3 with pip"))
}
