//! Which versions of other libraries a file needs, as auditwheel checks it.

use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, SHT_DYNAMIC, SHT_DYNSYM};
use object::read::elf::{Dyn, FileHeader, SectionHeader, Sym};
use object::{Endianness, elf};

use super::glibc::{VERSION, Version};
use crate::{Failure, files};

/// The libraries that every system has. The demo's program also needs libcuda, which the interposer
/// is while it is recorded.
const LIBRARIES: [&str; 9] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libcuda.so.1",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
];

/// The newest libgcc_s whose symbols manylinux2014 permits.
const GCC: Version = Version(4, 8);

/// Fails if a file needs another library, or a newer version than the packages promise.
pub(super) fn check(paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths {
        let needs = Needs::read(path).map_err(|error| files::failed(path, error))?;
        for library in &needs.libraries {
            if !LIBRARIES.contains(&library.as_str()) {
                return Err(files::failed(path, format!("needs {library}")));
            }
        }
        let newest = needs.newest("GLIBC_").unwrap_or(Version(0, 0));
        let gcc = needs.newest("GCC_").unwrap_or(Version(0, 0));
        if newest > VERSION || gcc > GCC {
            let symbols = needs.versions.join(", ");
            return Err(files::failed(
                path,
                format!("needs more than glibc {VERSION} and libgcc_s {GCC}: {symbols}"),
            ));
        }
        println!("{}: glibc {newest}", files::name(path));
    }
    Ok(())
}

/// Fails as [`check`], or if a Python module needs a function that is neither Python's nor of a
/// version of a library: linking did not look for these.
pub(super) fn check_module(path: &Path) -> Result<(), Failure> {
    check(&[path.to_owned()])?;
    let bytes = std::fs::read(path).map_err(|error| files::failed(path, error))?;
    let needed = unversioned(&bytes).map_err(|error| files::failed(path, error))?;
    let is_of_python = |name: &String| name.starts_with("Py") || name.starts_with("_Py");
    let (python, other): (Vec<_>, Vec<_>) = needed.into_iter().partition(is_of_python);
    if !other.is_empty() {
        let other = other.join(", ");
        return Err(files::failed(path, format!("needs {other}: of no library")));
    }
    if python.is_empty() {
        return Err(files::failed(path, "uses no function of Python"));
    }
    Ok(())
}

/// The symbols that a file needs without a version.
fn unversioned(bytes: &[u8]) -> object::read::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let symbols = sections.symbols(endian, bytes, SHT_DYNSYM)?;
    let versions = sections.gnu_versym(endian, bytes)?;
    let versions = versions.map_or(&[][..], |(versions, _)| versions);
    let mut names = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        let version = versions.get(index.0).map(|version| version.0.get(endian));
        let has_version = version.is_some_and(|version| version > elf::VER_NDX_GLOBAL.into());
        let is_needed = symbol.is_undefined(endian) && symbol.st_bind() == elf::STB_GLOBAL;
        if is_needed && !has_version {
            let name = symbols.symbol_name(endian, symbol)?;
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(names)
}

/// What the loader looks for.
#[derive(Debug, Default)]
struct Needs {
    libraries: Vec<String>,
    /// The versions of their symbols: `GLIBC_2.17`.
    versions: Vec<String>,
}

impl Needs {
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        Self::parse(&bytes).map_err(|error| error.to_string())
    }

    fn parse(bytes: &[u8]) -> object::read::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, bytes)?;
        let mut needs = Self::default();
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for section in sections.iter() {
            let link = section.link(endian);
            if section.sh_type(endian) == SHT_DYNAMIC
                && let Some((entries, _)) = section.dynamic(endian, bytes)?
            {
                let strings = sections.strings(endian, bytes, link)?;
                for entry in entries {
                    if entry.tag(endian) == elf::DT_NEEDED {
                        needs.libraries.push(text(entry.string(endian, strings)?));
                    }
                }
            }
            if let Some((mut needed, link)) = section.gnu_verneed(endian, bytes)? {
                let strings = sections.strings(endian, bytes, link)?;
                while let Some((_, mut versions)) = needed.next()? {
                    while let Some(version) = versions.next()? {
                        needs.versions.push(text(version.name(endian, strings)?));
                    }
                }
            }
        }
        Ok(needs)
    }

    /// The newest version of a library's symbols.
    fn newest(&self, prefix: &str) -> Option<Version> {
        self.versions
            .iter()
            .filter_map(|name| {
                let mut numbers = name.strip_prefix(prefix)?.split('.').map(str::parse);
                // GLIBC_PRIVATE is for glibc alone: newer than any.
                let first = numbers.next()?.unwrap_or(u32::MAX);
                let second = numbers.next().and_then(Result::ok).unwrap_or(0);
                Some(Version(first, second))
            })
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        for (names, newest) in [
            (vec![], None),
            (vec!["GCC_3.0"], None),
            (
                vec!["GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.3"],
                Some(Version(2, 14)),
            ),
            (
                vec!["GLIBC_2.2.5", "GLIBC_PRIVATE"],
                Some(Version(u32::MAX, 0)),
            ),
        ] {
            let needs = Needs {
                versions: names.into_iter().map(str::to_owned).collect(),
                ..Needs::default()
            };
            assert_eq!(needs.newest("GLIBC_"), newest);
        }
    }

    #[test]
    fn own_needs_are_read() {
        let needs = Needs::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(
            needs.libraries.iter().any(|name| name == "libc.so.6"),
            "{needs:?}"
        );
        assert!(needs.newest("GLIBC_") > Some(Version(2, 0)), "{needs:?}");
        assert!(Needs::parse(b"no ELF").is_err());
    }
}
