//! The Python wheel: the package of `python/`, with the built files inside.

use std::path::{Path, PathBuf};

use super::glibc::{Glibc, TARGET, VERSION};
use super::{Dist, elf, python};
use crate::parts::{self, Binaries, LICENCES};
use crate::python::{MODULE, MODULE_BUILT, MODULE_PACKAGE};
use crate::step::{self, output, run};
use crate::{Failure, files};

/// What is built is here in the package.
const FOLDER: &str = "cutape/bin";

/// The versions of Python that load the module: 3.9 and later, by their stable ABI.
const PYTHON: &str = "cp39-abi3";

pub(super) fn make(dist: &Dist<'_>, binaries: &Binaries) -> Result<PathBuf, Failure> {
    let source = dist.root.join("python");
    let stage = dist.stage("wheel")?;
    copy_sources(&source, &stage)?;
    let stated = project_version(&stage)?;
    if stated != dist.version {
        return Err(failure!(
            "python/pyproject.toml: version {stated}; Cargo.toml has {}: make them equal",
            dist.version
        ));
    }
    for licence in LICENCES {
        files::copy(&dist.root.join(licence), &stage.join(licence))?;
    }
    let folder = stage.join(FOLDER);
    files::make_folder(&folder)?;
    for file in binaries.files() {
        files::copy(&file, &folder.join(files::name(&file)))?;
    }
    module(dist, &stage.join(MODULE))?;
    binaries.share(&stage)?;
    let tag = format!("manylinux_{}_{}_x86_64", VERSION.0, VERSION.1);
    // The name that this version had before versions were part of the tag: older pips know it.
    let tag = match (VERSION.0, VERSION.1) {
        (2, 17) => format!("{PYTHON}-{tag}.manylinux2014_x86_64"),
        _ => format!("{PYTHON}-{tag}"),
    };
    let mut build = python::command(dist.root)?;
    build
        .current_dir(&stage)
        .args("-m hatchling build --target wheel --directory".split(' '))
        .arg(&dist.folder)
        .env("CUTAPE_WHEEL_TAG", &tag);
    let done = output(dist.with_epoch(&mut build))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        return Err(failure!("hatchling: {}\n{why}", done.status));
    }
    let package = dist.folder.join(format!("cutape-{stated}-{tag}.whl"));
    if package.is_file() {
        return Ok(package);
    }
    Err(files::failed(&package, "hatchling wrote another file"))
}

/// Builds the module for the glibc of the packages; a quick build of the parts has done that.
fn module(dist: &Dist<'_>, to: &Path) -> Result<(), Failure> {
    let target = step::target(dist.root);
    let built = if dist.is_quick {
        target.join("debug")
    } else {
        let glibc = Glibc::new(dist.root)?;
        run(&mut glibc.cargo(dist.root, MODULE_PACKAGE, "release"))?;
        target.join(TARGET).join("release")
    };
    files::copy(&built.join(MODULE_BUILT), to)?;
    parts::strip(to, "--strip-all")?;
    parts::set_mode(to, 0o644)?;
    elf::check_module(to)
}

/// Copies the sources of the package; what Python compiled is left out.
fn copy_sources(from: &Path, to: &Path) -> Result<(), Failure> {
    files::make_folder(to)?;
    for path in files::list(from) {
        let name = files::name(&path);
        if path.is_file() {
            files::copy(&path, &to.join(&name))?;
        } else if name != "__pycache__" {
            copy_sources(&path, &to.join(&name))?;
        }
    }
    Ok(())
}

fn project_version(stage: &Path) -> Result<String, Failure> {
    let path = stage.join("pyproject.toml");
    let manifest: toml::Table = files::read_toml(&path)?;
    let version = manifest
        .get("project")
        .and_then(|project| project.get("version")?.as_str());
    version
        .map(str::to_owned)
        .ok_or_else(|| files::failed(&path, "no version in project"))
}
