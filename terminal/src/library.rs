//! Finds the interposer, the auditing library, the null driver, the program of the demo and the
//! driver to call.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use cutape_analyzer::suggestion::did_you_mean;
use cutape_driver::LocateError;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::failure::Failure;

const INTERPOSER: &str = "libcutape_interposer.so";
const AUDIT: &str = "libcutape_audit.so";
const NULL_DRIVER: &str = "libcutape_null.so";
const DEMO_PROGRAM: &str = "link_demo";

/// The interposer, which replaces libcuda in the program.
///
/// # Errors
/// If it is not installed.
pub fn interposer() -> Result<PathBuf, Failure> {
    find(INTERPOSER, "CUTAPE_INTERPOSER")
}

/// The auditing library, which makes the loader find the interposer as libcuda.
///
/// # Errors
/// If it is not installed.
pub fn audit() -> Result<PathBuf, Failure> {
    find(AUDIT, "CUTAPE_AUDIT")
}

/// The software driver.
///
/// # Errors
/// If it is not installed.
pub fn null_driver() -> Result<PathBuf, Failure> {
    find(NULL_DRIVER, "CUTAPE_NULL_DRIVER")
}

/// The program that `demo` records.
///
/// # Errors
/// If it is not installed.
pub fn demo_program() -> Result<PathBuf, Failure> {
    find(DEMO_PROGRAM, "CUTAPE_DEMO_PROGRAM")
}

/// The path of this program.
///
/// # Errors
/// If the system does not tell.
pub fn own_path() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| {
        Failure::unusable(format!(
            "cannot read the path of cutape's own executable: {error}"
        ))
    })
}

/// Looks where `variable` points, else beside this program and in `../lib/cutape`.
fn find(name: &str, variable: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os(variable).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(path);
        return path.canonicalize().map_err(|error| {
            Failure::unusable(format!("{variable} is {}: {error}", path.display()))
        });
    }
    let program = own_path()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    [folder.join(name), folder.join("../lib/cutape").join(name)]
        .into_iter()
        .find_map(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Failure::unusable(format!(
                "{name} not found: looked in {} and in ../lib/cutape beside it; `cargo install` \
                 installs the program alone: run `cargo xtask install` in cutape's sources, or set \
                 {variable}",
                folder.display()
            ))
        })
}

/// Selects the driver: the given path, `null`, or this machine's; without one the null driver.
///
/// # Errors
/// If the path is no driver's, or this machine's is unusable.
pub fn driver(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(path) if path == Path::new("null") => null_driver(),
        Some(path) => {
            let path = path.canonicalize().map_err(|error| {
                let suggestion = did_you_mean(&path.to_string_lossy(), ["null"]);
                Failure::unusable(format!("--driver {}: {error}{suggestion}", path.display()))
            })?;
            let refused = |why: &str| {
                let path = path.display();
                Err(Failure::unusable(format!("--driver {path}: {why}")))
            };
            if !path.is_file() {
                refused("not a file; give the path of a libcuda.so.1")
            } else if !is_library(&path) {
                refused("not a shared library for x86-64; give the path of a libcuda.so.1")
            } else if cutape_driver::is_interposer(&path) {
                refused("this is cutape's interposer; give the path of the real libcuda.so.1")
            } else if exports(&path, "cuInit") == Some(false) {
                refused(
                    "not a CUDA driver: it does not export cuInit; give the path of a libcuda.so.1",
                )
            } else {
                Ok(path)
            }
        }
        None => match cutape_driver::locate() {
            Ok(path) => path
                .canonicalize()
                .map_err(|error| Failure::unusable(format!("{}: {error}", path.display()))),
            Err(LocateError::NotFound) => {
                let path = null_driver()?;
                message!(
                    "no CUDA driver found; using the null driver, which does not run \
                     kernels (--driver null silences this message)"
                );
                Ok(path)
            }
            Err(error) => Err(Failure::unusable(error)),
        },
    }
}

/// Whether a file starts like a shared library for x86-64.
fn is_library(path: &Path) -> bool {
    let mut head = [0; 20];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    // Class 64 bits, type ET_DYN, machine EM_X86_64.
    read.is_ok() && head.starts_with(b"\x7fELF\x02") && head[16..] == [3, 0, 62, 0]
}

/// Whether a library exports a symbol; `None` if the library cannot be read.
pub fn exports(path: &Path, symbol: &str) -> Option<bool> {
    exported(path, |name, _| name == symbol)
        .ok()
        .map(|names| !names.is_empty())
}

/// Whether a driver is the null driver, which runs no kernels.
pub fn is_null_driver(path: &Path) -> bool {
    exports(path, "cutape_null_driver_marker") == Some(true)
}

/// The selected names among those that a library exports.
///
/// # Errors
/// If the file cannot be read.
pub fn exported(
    path: &Path,
    select: impl Fn(&str, SymbolKind) -> bool,
) -> Result<Vec<String>, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    // Drivers are large: the cache reads only what the symbol table needs.
    let cache = object::ReadCache::new(file);
    let library = object::File::parse(&cache).map_err(|error| error.to_string())?;
    Ok(library
        .dynamic_symbols()
        .filter(ObjectSymbol::is_definition)
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.kind())))
        .filter(|&(name, kind)| select(name, kind))
        .map(|(name, _)| name.to_owned())
        .collect())
}
