//! The compiler for programs of the CUDA runtime, and the runtimes of CUDA 13 and 12, from PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::link;
use crate::parts::replace_folder;
use crate::{Failure, files, python_packages, step};

/// Packages and versions. The packages of CUDA 12 have no `nvcc`: its runtime is compiled for with
/// that of CUDA 13, whose own headers in `crt` go with it.
const PACKAGES: [&str; 8] = [
    "nvidia-cuda-cccl-cu12==12.9.27",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-nvtx==13.0.85",
    "nvidia-nvvm==13.0.88",
];

/// A runtime, and how programs are compiled and run with it.
#[derive(Debug)]
pub(crate) struct Toolkit {
    pub(crate) name: &'static str,
    /// The version of the driver that came with it, for `CUTAPE_NULL_VERSION`.
    pub(crate) driver_version: &'static str,
    nvcc: PathBuf,
    /// Libraries to link and to run with: the runtime, and the null driver.
    pub(crate) libraries: PathBuf,
}

impl Toolkit {
    /// A compiler for the toolkit; the caller adds options.
    pub(crate) fn compiler(&self) -> Command {
        let mut command = Command::new(&self.nvcc);
        command.args(["-arch=sm_90", "-L"]).arg(&self.libraries);
        command
    }
}

/// Installs the packages if they are missing; the folder that they are in.
pub(crate) fn install(root: &Path) -> Result<PathBuf, Failure> {
    let folder = step::target(root).join("runtime/packages");
    python_packages::python(&folder, &PACKAGES)?;
    let versions = files::list(&folder.join("lib"));
    let version = versions
        .iter()
        .find(|path| files::name(path).starts_with("python"));
    let Some(version) = version else {
        return Err(files::failed(&folder, "no lib/python*"));
    };
    Ok(version.join("site-packages/nvidia"))
}

/// Arranges the packages as toolkits. `driver` is the null driver.
pub(crate) fn toolkits(root: &Path, driver: &Path) -> Result<[Toolkit; 2], Failure> {
    let packages = install(root)?;
    let target = step::target(root).join("runtime");
    let newer = packages.join("cu13");
    let older = target.join("toolkit-12");
    replace_folder(&older)?;
    for folder in ["bin", "include"] {
        files::make_folder(&older.join(folder))?;
    }
    link(&newer.join("nvvm"), &older.join("nvvm"))?;
    // nvcc finds everything else from its own path, which is that of a link's target.
    for file in files::list(&newer.join("bin")) {
        let copy = older.join("bin").join(files::name(&file));
        match files::name(&file) == "nvcc" {
            true => fs::hard_link(&file, &copy).map_err(|error| files::failed(&copy, error))?,
            false => link(&file, &copy)?,
        }
    }
    for name in ["crt", "fatbinary_section.h", "nvtx3"] {
        link(
            &newer.join("include").join(name),
            &older.join("include").join(name),
        )?;
    }
    for package in ["cuda_runtime", "cuda_cccl"] {
        for file in files::list(&packages.join(package).join("include")) {
            let name = files::name(&file);
            if !name.starts_with("__") && name != "crt" {
                link(&file, &older.join("include").join(name))?;
            }
        }
    }
    let toolkit = |name, driver_version, folder: &Path, runtime: &Path| {
        let libraries = target.join(format!("libraries-{name}"));
        replace_folder(&libraries)?;
        for file in files::list(runtime) {
            let name = files::name(&file);
            link(&file, &libraries.join(&name))?;
            if let Some((plain, _)) = name.split_once(".so.") {
                link(&file, &libraries.join(format!("{plain}.so")))?;
            }
        }
        for name in ["libcuda.so", "libcuda.so.1"] {
            link(driver, &libraries.join(name))?;
        }
        Ok(Toolkit {
            name,
            driver_version,
            nvcc: folder.join("bin/nvcc"),
            libraries,
        })
    };
    Ok([
        toolkit("13.0", "13000", &newer, &newer.join("lib"))?,
        toolkit("12.9", "12090", &older, &packages.join("cuda_runtime/lib"))?,
    ])
}
