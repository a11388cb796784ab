//! Debug information of a file: its own, or in a file beside it or in the system's folder.

use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use cutape_format::SourceFrame;
use object::read::ReadCache;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};

use crate::regular_file;
use cutape_analyzer::demangle::demangle;

/// Where systems install separate debug information.
const SYSTEM: &str = "/usr/lib/debug";

/// Functions, files and lines of a file's addresses.
pub(crate) struct DebugFile {
    loader: Loader,
}

/// What an executable or library says about its debug information.
struct Links {
    has_own: bool,
    build_id: Vec<u8>,
    /// A file name, and its checksum.
    link: Option<(String, u32)>,
}

impl DebugFile {
    /// The debug information of a file; `None` if there is none on this machine.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let links = Links::of(path)?;
        let found = match links.has_own {
            true => path.to_owned(),
            false => links.candidates(path).find(|file| links.belongs(file))?,
        };
        let loader = match supplement(&found) {
            Some(other) => Loader::new_with_sup(&found, Some(other)),
            None => Loader::new(&found),
        };
        Some(Self {
            loader: loader.ok()?,
        })
    }

    /// The functions at an address of the file, the innermost inlined one first; empty if unknown.
    pub(crate) fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        let Ok(mut found) = self.loader.find_frames(address) else {
            return frames;
        };
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|function| {
                let name = function.raw_name().ok()?;
                Some(demangle(&name))
            });
            let location = frame.location.as_ref();
            frames.push(SourceFrame {
                function: name.unwrap_or_default(),
                file: location
                    .and_then(|location| location.file)
                    .unwrap_or_default()
                    .to_owned(),
                line: location.and_then(|location| location.line).unwrap_or(0),
            });
        }
        frames
    }
}

impl Links {
    fn of(path: &Path) -> Option<Self> {
        let file = regular_file::open(path)?;
        let cache = ReadCache::new(&file);
        let elf = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
        let link = elf.gnu_debuglink().ok().flatten();
        Some(Self {
            has_own: has_debug_information(&elf),
            build_id: elf.build_id().ok().flatten().unwrap_or_default().to_vec(),
            link: link
                .map(|(name, checksum)| (String::from_utf8_lossy(name).into_owned(), checksum)),
        })
    }

    /// Where the debug information may be, by the rules of GDB ("Separate Debug Files").
    fn candidates(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        let id: String = self
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let by_id = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty());
        let by_id = by_id
            .map(|(start, rest)| PathBuf::from(format!("{SYSTEM}/.build-id/{start}/{rest}.debug")));
        let folder = fs::canonicalize(path).ok();
        let folder = folder.as_deref().and_then(Path::parent).map(Path::to_owned);
        let name = self.link.as_ref().map(|link| link.0.clone());
        let by_name = folder.zip(name).into_iter().flat_map(|(folder, name)| {
            let inside = folder.strip_prefix("/").unwrap_or(&folder).to_owned();
            [
                folder.join(&name),
                folder.join(".debug").join(&name),
                Path::new(SYSTEM).join(inside).join(&name),
            ]
        });
        by_id.into_iter().chain(by_name)
    }

    /// Whether a file is the debug information of this one, not of another build.
    fn belongs(&self, path: &Path) -> bool {
        let Some(other) = Self::of(path).filter(|other| other.has_own) else {
            return false;
        };
        if !self.build_id.is_empty() {
            return other.build_id == self.build_id;
        }
        let checksum = self.link.as_ref().map(|link| link.1);
        let content = fs::read(path);
        content.is_ok_and(|content| checksum == Some(cutape_format::checksum(&content)))
    }
}

fn has_debug_information<'d>(elf: &impl Object<'d>) -> bool {
    let has = |name| {
        let section = elf.section_by_name(name);
        section.is_some_and(|section| section.file_range().is_some_and(|range| range.1 > 0))
    };
    has(".debug_info") && has(".debug_line")
}

/// The file with what several debug files have in common (dwz).
fn supplement(path: &Path) -> Option<PathBuf> {
    let file = regular_file::open(path)?;
    let cache = ReadCache::new(&file);
    let elf = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
    let (name, id) = elf.gnu_debugaltlink().ok()??;
    let name = String::from_utf8_lossy(name);
    let path = fs::canonicalize(path).ok()?.parent()?.join(&*name);
    let links = Links::of(&path)?;
    (links.build_id == id).then_some(path)
}
