//! Names of callers, resolved while the program's files still exist.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cutape_format::{Mapping, ResolvedAddress, SourceFrame, Symbol, Trace};
use object::elf::{SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, Sym64};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, SectionHeader, Sym};
use object::{LittleEndian, Object, ObjectSegment};

use crate::debug_file::DebugFile;
use crate::regular_file;
use cutape_analyzer::demangle::{LONGEST_NAME, demangle};

/// The symbols of all callers that lie in a mapped file, except those that the trace already has.
pub fn of_callers(trace: &Trace) -> Vec<Symbol> {
    let mut callers = BTreeSet::new();
    let mut last = 0;
    let walked = trace.walk().run(|call| {
        if call.caller != last {
            last = call.caller;
            callers.insert(last);
        }
        Ok::<_, cutape_format::Error>(())
    });
    if walked.is_err() {
        // Packing reports what is wrong with the trace.
        return Vec::new();
    }
    let resolver = Resolver::default();
    callers
        .into_iter()
        .filter(|&address| trace.symbol(address).is_none())
        .filter_map(|address| {
            Some(Symbol {
                address,
                text: resolver.resolve(trace, address)?,
            })
        })
        .collect()
}

/// Resolves addresses with the files of a trace's memory map; reads each file once.
#[derive(Default)]
pub struct Resolver {
    files: RefCell<HashMap<String, Option<File>>>,
}

impl Resolver {
    /// `main+0x2f in saxpy`, or `libx.so+0x1234` without a symbol.
    pub fn resolve(&self, trace: &Trace, address: u64) -> Option<String> {
        let mapping = trace
            .mappings()
            .iter()
            .find(|map| (map.start..map.end).contains(&address))?;
        let mut files = self.files.borrow_mut();
        let file = files
            .entry(mapping.path.clone())
            .or_insert_with(|| File::read(mapping));
        let name = mapping.path.rsplit('/').next().unwrap_or(&mapping.path);
        let offset = address - mapping.start + mapping.offset;
        // A return address may lie past the end of its function; the byte before never does.
        let symbol = file
            .as_ref()
            .and_then(|file| file.symbol(offset.saturating_sub(1)));
        Some(match symbol {
            Some((symbol, distance)) => format!("{symbol}+{:#x} in {name}", distance + 1),
            None => format!("{name}+{offset:#x}"),
        })
    }
}

impl Resolver {
    /// The function that holds a return address, with what is inlined there, and why there are no
    /// lines, if there are none.
    ///
    /// # Errors
    /// If the mapped file is not on this machine, or another build is.
    pub fn source(&self, trace: &Trace, address: u64) -> Result<(ResolvedAddress, String), String> {
        let mut mappings = trace.mappings().iter();
        let mapping = mappings
            .find(|map| (map.start..map.end).contains(&address))
            .ok_or("no file is mapped there")?;
        let mut files = self.files.borrow_mut();
        let file = files
            .entry(mapping.path.clone())
            .or_insert_with(|| File::read(mapping));
        let Some(file) = file else {
            return Err(match Path::new(&mapping.path).exists() {
                true => "the file here is of another build".to_owned(),
                false => "the file is not here".to_owned(),
            });
        };
        // A return address may lie past the end of its function; the byte before never does.
        let offset = (address - mapping.start + mapping.offset).saturating_sub(1);
        let debug = file.debug(&mapping.path);
        let mut frames = debug
            .zip(file.address_of(offset))
            .map_or_else(Vec::new, |(debug, address)| debug.frames(address));
        // The symbol table names what the debug information leaves out.
        let name = || file.symbol(offset).map(|(name, _)| name);
        match frames.last_mut() {
            Some(last) if last.function.is_empty() => last.function = name().unwrap_or_default(),
            Some(_) => {}
            None => frames.push(SourceFrame {
                function: name().unwrap_or_else(|| format!("{:#x}", offset + 1)),
                ..SourceFrame::default()
            }),
        }
        let missing = match debug {
            Some(_) => String::new(),
            None => "no debug information".to_owned(),
        };
        let source = ResolvedAddress {
            address,
            module: mapping.path.clone(),
            frames,
        };
        Ok((source, missing))
    }
}

/// The functions of a file by address, and its segments. Names are read on demand: a framework's
/// libraries have a million symbols, of which a trace needs a few hundred.
struct File {
    file: fs::File,
    /// By address.
    functions: Vec<Function>,
    /// (offset in the file, length, address).
    segments: Vec<(u64, u64, u64)>,
    debug: OnceCell<Option<DebugFile>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    length: u64,
    /// The file offset of its name.
    name: u64,
}

impl File {
    /// Reads the file, if it is still the one that was mapped.
    fn read(mapping: &Mapping) -> Option<Self> {
        let file = regular_file::open(Path::new(&mapping.path))?;
        let cache = ReadCache::new(&file);
        let elf = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
        if !mapping.build_id.is_empty() && elf.build_id().ok()? != Some(&mapping.build_id) {
            return None;
        }
        let tables = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()];
        let mut functions: Vec<_> = tables
            .into_iter()
            .filter(|table| !table.is_empty())
            .filter_map(|table| {
                let names = elf.elf_section_table().section(table.string_section());
                Some((table, names.ok()?.sh_offset(LittleEndian)))
            })
            .flat_map(|(table, names)| {
                let functions = table.iter().filter(|symbol| is_function(symbol));
                functions.map(move |symbol| Function {
                    address: symbol.st_value(LittleEndian),
                    length: symbol.st_size(LittleEndian),
                    name: names.saturating_add(symbol.st_name(LittleEndian).into()),
                })
            })
            .collect();
        functions.sort_unstable();
        functions.dedup_by_key(|function| function.address);
        let segments = elf
            .segments()
            .map(|segment| {
                let (offset, length) = segment.file_range();
                (offset, length, segment.address())
            })
            .collect();
        Some(Self {
            functions,
            segments,
            debug: OnceCell::new(),
            file,
        })
    }

    /// Its debug information; read when it is first asked for.
    fn debug(&self, path: &str) -> Option<&DebugFile> {
        let debug = self.debug.get_or_init(|| DebugFile::of(Path::new(path)));
        debug.as_ref()
    }

    /// The address, as the file counts them, of a file offset.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let mut segments = self.segments.iter();
        let &(start, _, address) =
            segments.find(|&&(start, length, _)| offset >= start && offset - start < length)?;
        address.checked_add(offset - start)
    }

    /// The function at a file offset, and the offset in the function.
    fn symbol(&self, offset: u64) -> Option<(String, u64)> {
        let address = self.address_of(offset)?;
        let at = self
            .functions
            .partition_point(|function| function.address <= address)
            .checked_sub(1)?;
        let function = self.functions.get(at)?;
        let distance = address - function.address;
        // Symbols from assembly may lack a length.
        if function.length != 0 && distance >= function.length {
            return None;
        }
        Some((demangle(&self.name(function.name)?), distance))
    }

    /// The name at a file offset.
    fn name(&self, at: u64) -> Option<String> {
        let mut name = Vec::new();
        let mut piece = [0; 256];
        // Stops at the limit if the name has no end.
        while name.len() < LONGEST_NAME {
            let read = self.file.read_at(&mut piece, at + name.len() as u64).ok()?;
            let piece = piece.get(..read)?;
            let end = piece.iter().position(|&byte| byte == 0);
            name.extend_from_slice(piece.get(..end.unwrap_or(read))?);
            if end.is_some() || read == 0 {
                break;
            }
        }
        String::from_utf8(name).ok().filter(|name| !name.is_empty())
    }
}

/// Whether a symbol is a function defined in the file.
fn is_function(symbol: &Sym64<LittleEndian>) -> bool {
    matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
        && symbol.st_shndx(LittleEndian) != SHN_UNDEF
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of this program's own map with that address in it.
    fn mapping(address: u64) -> Mapping {
        let list = fs::read("/proc/self/maps").unwrap();
        let mut mappings = cutape_maps::mappings(&list);
        let found = mappings.find(|found| (found.start..found.end).contains(&address));
        let found = found.unwrap();
        Mapping {
            start: found.start,
            end: found.end,
            offset: found.offset,
            path: String::from_utf8(found.path.to_vec()).unwrap(),
            build_id: Vec::new(),
        }
    }

    #[test]
    fn functions_have_names() {
        // A function of this program, and one of a library with only a dynamic symbol table.
        let (own, library) = (
            demangle as *const () as u64,
            libc::getpid as *const () as u64,
        );
        for (address, expected) in [
            (own, "cutape_analyzer::demangle::demangle"),
            (library, "getpid"),
        ] {
            let mapping = mapping(address);
            let file = File::read(&mapping).unwrap();
            let offset = address - mapping.start + mapping.offset;
            let (name, distance) = file.symbol(offset + 3).unwrap();
            assert!(name.ends_with(expected), "{name}");
            assert_eq!(distance, 3);
            let other = Mapping {
                build_id: vec![1, 2, 3],
                ..mapping
            };
            assert!(File::read(&other).is_none(), "another build");
        }
    }

    #[test]
    fn cut_files_do_not_panic() {
        let path = std::env::temp_dir().join(format!("symbols-{}", std::process::id()));
        let library = mapping(libc::getpid as *const () as u64);
        let bytes = fs::read(&library.path).unwrap();
        for length in [0, 3, 63, 64, 1000, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            let part = Mapping {
                path: path.display().to_string(),
                ..library.clone()
            };
            if let Some(file) = File::read(&part) {
                file.symbol(library.offset);
            }
            assert!(length >= 64 || File::read(&part).is_none(), "{length}");
        }
        fs::remove_file(&path).unwrap();
    }
}
