//! Where our own libraries are: the interposer and the null driver.

use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};

use crate::failure::Failure;
use crate::forward;

const INTERPOSER: &str = "libcutape_interposer.so";
const AUDIT: &str = "libcutape_audit.so";
const NULL_DRIVER: &str = "libcutape_null.so";

/// The library that poses as libcuda.
pub(crate) fn interposer() -> Result<PathBuf, Failure> {
    find(INTERPOSER, "CUTAPE_INTERPOSER", "cutape-interposer")
}

/// The library that leads searches for libcuda to the interposer.
pub(crate) fn audit() -> Result<PathBuf, Failure> {
    find(AUDIT, "CUTAPE_AUDIT", "cutape-audit")
}

/// The software driver.
pub(crate) fn null_driver() -> Result<PathBuf, Failure> {
    find(NULL_DRIVER, "CUTAPE_NULL_DRIVER", "cutape-nulldriver")
}

/// Beside the program, in `../lib/cutape`, or where a variable says.
fn find(name: &str, variable: &str, package: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os(variable).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(path);
        return path.canonicalize().map_err(|error| {
            Failure::unusable(format!("{variable} is {}: {error}", path.display()))
        });
    }
    let program = env::current_exe()
        .map_err(|error| Failure::unusable(format!("cannot find out where cutape is: {error}")))?;
    let folder = program.parent().unwrap_or(Path::new("."));
    [folder.join(name), folder.join("../lib/cutape").join(name)]
        .into_iter()
        .find_map(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Failure::unusable(format!(
                "{name} is neither in {} nor in ../lib/cutape from there; build it with `cargo build -p {package}` or set {variable}",
                folder.display()
            ))
        })
}

/// Chooses the driver: the given path, `null`, or what the machine has; with the word for messages.
pub(crate) fn driver(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(path) if path == Path::new("null") => null_driver(),
        Some(path) => {
            let path = path.canonicalize().map_err(|error| {
                Failure::unusable(format!("--driver {}: {error}", path.display()))
            })?;
            if !path.is_file() {
                return Err(Failure::unusable(format!(
                    "--driver {}: not a file",
                    path.display()
                )));
            }
            if !is_library(&path) {
                return Err(Failure::unusable(format!(
                    "--driver {}: not a shared library of this machine (x86-64 ELF)",
                    path.display()
                )));
            }
            if cutape_replay::is_interposer(&path) {
                return Err(Failure::unusable(format!(
                    "--driver {}: that is cutape's own interposer, name the real libcuda.so.1",
                    path.display()
                )));
            }
            if !exports_init(&path) {
                return Err(Failure::unusable(format!(
                    "--driver {}: exports no cuInit, so it is no CUDA driver; name a libcuda.so.1",
                    path.display()
                )));
            }
            Ok(path)
        }
        None => match cutape_replay::locate() {
            Ok(path) => path
                .canonicalize()
                .map_err(|error| Failure::unusable(format!("{}: {error}", path.display()))),
            Err(cutape_replay::LocateError::NotFound) => {
                let path = null_driver()?;
                eprintln!(
                    "cutape: no CUDA driver on this machine: using the null driver, which runs no kernels (--driver null silences this)"
                );
                Ok(path)
            }
            Err(error) => Err(Failure::unusable(error)),
        },
    }
}

/// Whether a file begins as a shared library for x86-64 does.
fn is_library(path: &Path) -> bool {
    let mut head = [0; 20];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    // Class 64 bits, type ET_DYN, machine EM_X86_64.
    read.is_ok() && head.starts_with(b"\x7fELF\x02") && head[16..] == [3, 0, 62, 0]
}

/// Whether a library exports the function with which every use of the driver begins. One that cannot be read is not judged.
fn exports_init(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else {
        return true;
    };
    let cache = object::ReadCache::new(file);
    let Ok(library) = object::File::parse(&cache) else {
        return true;
    };
    library
        .dynamic_symbols()
        .any(|symbol| symbol.is_definition() && symbol.name() == Ok("cuInit"))
}

/// A folder in which one library has the names under which programs look for libcuda; gone when dropped.
pub(crate) struct LibraryFolder(PathBuf);

impl LibraryFolder {
    /// Makes the folder.
    pub(crate) fn new(library: &Path) -> Result<Self, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            Failure::unusable(format!(
                "cannot make {}: {error}; set TMPDIR to a writable folder",
                path.display()
            ))
        };
        // Absolute: the program may change its folder before it starts others.
        let base = std::path::absolute(env::temp_dir())
            .map_err(|error| failed(&env::temp_dir(), error))?;
        for attempt in 0..100u32 {
            let path = base.join(format!("cutape-{}-{attempt}", std::process::id()));
            match fs::DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => {
                    let folder = Self(path);
                    for name in ["libcuda.so.1", "libcuda.so"] {
                        let link = folder.0.join(name);
                        std::os::unix::fs::symlink(library, &link)
                            .map_err(|error| failed(&link, error))?;
                    }
                    return Ok(folder);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(Failure::unusable(format!(
            "{}: too many left-over cutape folders",
            base.display()
        )))
    }

    /// Has the functions that the driver exports and the registry does not know found as well.
    ///
    /// # Errors
    /// Why they are not found. The folder is as useful as before.
    pub(crate) fn forward(&self, interposer: &Path, driver: &Path) -> Result<(), String> {
        let mut names = forward::exported(driver)?;
        names.retain(|name| !forward::is_known(name));
        if names.is_empty() {
            return Ok(());
        }
        let failed = |error: std::io::Error| format!("{}: {error}", self.0.display());
        let why_not = forward::obstacle(&self.0);
        why_not.map_or(Ok(()), Err)?;
        let copy = self.0.join("copy");
        fs::write(self.0.join(forward::LIBRARY), forward::library(&names)?).map_err(failed)?;
        fs::write(&copy, forward::interposer(interposer)?).map_err(failed)?;
        // The link to the original stays if anything before this has failed.
        fs::rename(&copy, self.library()).map_err(failed)?;
        let other = self.0.join("libcuda.so");
        fs::remove_file(&other).map_err(failed)?;
        std::os::unix::fs::symlink("libcuda.so.1", &other).map_err(failed)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The library by the name that programs ask for.
    pub(crate) fn library(&self) -> PathBuf {
        self.0.join("libcuda.so.1")
    }
}

impl Drop for LibraryFolder {
    fn drop(&mut self) {
        // What cannot be removed is a folder with a few files; nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
