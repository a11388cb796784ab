//! Lets programs find driver functions that the registry does not know, while recording.
//!
//! `record` writes a small library that exports them, and a copy of the interposer that needs
//! (`DT_NEEDED`) it, so that the loader and `dlsym` find them. Each function jumps through a slot
//! in the library's data. At first the slot points to `cutape_forward` in the interposer, which
//! stores the driver's function there; `cutape_forward` documents the four words of an entry.

use std::ffi::CString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::write::elf as write;
use object::{Endianness, SymbolKind};

use cutape_terminal::library;

/// The name of the library. The interposer refers to it with `DT_AUXILIARY`, in its own folder.
pub(crate) const LIBRARY: &str = "libcutape-forward.so";
/// The symbol of the interposer that the library imports.
const RESOLVER: &str = "cutape_forward";

const PAGE: u64 = 4096;
/// Bytes of a function, and of the code that its slot points to at first.
const CODE: u64 = 16;
/// Bytes of a function's data: target, unresolved, name, next.
const ENTRY: u64 = 32;
/// Bytes of a dynamic entry: tag and value.
const DYNAMIC_ENTRY: usize = 16;

/// The functions that a driver exports, sorted: names that start with `cu`.
///
/// # Errors
/// If the file cannot be read.
pub fn exported(driver: &Path) -> Result<Vec<String>, String> {
    let mut names = library::exported(driver, |name, kind| {
        kind == SymbolKind::Text && name.starts_with("cu")
    })?;
    names.sort();
    names.dedup();
    Ok(names)
}

/// Whether the registry knows a function: the interposer exports those.
pub fn is_known(name: &str) -> bool {
    cutape_registry::function(name).is_some()
}

/// Why a library in that folder cannot be loaded; `None` if it can.
pub fn obstacle(folder: &Path) -> Option<String> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero is a valid buffer for the call.
    let mut status: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL, the buffer is ours.
    let known = unsafe { libc::statvfs(path.as_ptr(), &raw mut status) } == 0;
    (known && status.f_flag & libc::ST_NOEXEC != 0).then(|| {
        format!(
            "{} is mounted noexec; set TMPDIR to a folder on another file system",
            folder.display()
        )
    })
}

/// The copy of the interposer that needs `LIBRARY`.
///
/// # Errors
/// If the original cannot be read or has no tag to change.
pub fn interposer(original: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: String| format!("{}: {why}", original.display());
    let mut bytes = fs::read(original).map_err(|error| wrong(error.to_string()))?;
    let place = auxiliary(&bytes).map_err(|error| wrong(error.to_string()))?;
    let tag = place
        .and_then(|place| bytes.get_mut(place..place + 8))
        .ok_or_else(|| wrong(format!("has no DT_AUXILIARY tag for {LIBRARY}")))?;
    // DT_AUXILIARY makes the library optional. It cannot stay: ld.so fails an assertion if such a
    // library is loaded into a new namespace (glibc 2.36), or with dlopen (before 2.31).
    tag.copy_from_slice(&elf::DT_NEEDED.0.to_le_bytes()[..8]);
    Ok(bytes)
}

/// The file offset of the tag `DT_AUXILIARY`.
fn auxiliary(bytes: &[u8]) -> object::Result<Option<usize>> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, bytes)? {
        let Some(entries) = segment.dynamic(endian, bytes)? else {
            continue;
        };
        let index = entries
            .iter()
            .position(|entry| entry.tag(endian) == elf::DT_AUXILIARY);
        let start = segment.p_offset(endian) as usize;
        return Ok(index.map(|index| start + index * DYNAMIC_ENTRY));
    }
    Ok(None)
}

/// The library that exports these functions.
///
/// # Errors
/// If a table would be too large.
pub fn library(names: &[String]) -> Result<Vec<u8>, String> {
    write_library(names).map_err(|error| format!("{LIBRARY}: {error}"))
}

fn write_library(names: &[String]) -> Result<Vec<u8>, object::write::Error> {
    let count = names.len() as u64;
    let mut file = Vec::new();
    let mut writer = write::Writer::new(Endianness::Little, true, &mut file);

    writer.reserve_file_header();
    writer.reserve_program_headers(5);
    let text_section = writer.reserve_section_index();
    let text_name = writer.add_section_name(b".text");
    writer.reserve_hash_section_index();
    writer.reserve_dynsym_section_index();
    writer.reserve_dynstr_section_index();
    writer.reserve_dynamic_section_index();
    writer.reserve_shstrtab_section_index();
    let soname = writer.add_dynamic_string(LIBRARY.as_bytes());
    let resolver_name = writer.add_dynamic_string(RESOLVER.as_bytes());
    let resolver = writer.reserve_dynamic_symbol_index();
    let mut strings = Vec::with_capacity(names.len());
    for name in names {
        strings.push(writer.add_dynamic_string(name.as_bytes()));
        writer.reserve_dynamic_symbol_index();
    }
    let symbols = writer.dynamic_symbol_count();
    let hash = writer.reserve_hash(symbols, symbols);
    let dynsym = writer.reserve_dynsym();
    let dynstr = writer.reserve_dynstr()?;
    let relocations = 3 * names.len() + 1;
    let rela = writer.reserve_relocations(relocations, true);
    let read_only = writer.reserved_len();
    let text = writer.reserve(2 * CODE * count, PAGE);
    let text = text..writer.reserved_len();
    // Includes DT_NULL.
    let dynamic_count = 11;
    let data = writer.reserve(0, PAGE);
    let dynamic = writer.reserve_dynamic(dynamic_count);
    let dynamic_end = writer.reserved_len();
    // The resolver's address, then the entries.
    let resolver_slot = writer.reserve(8, 8);
    let entries = writer.reserve(ENTRY * count, 16);
    let data = data..writer.reserved_len();
    writer.reserve_shstrtab()?;
    writer.reserve_section_headers();

    writer.write_file_header(&write::FileHeader {
        os_abi: elf::ELFOSABI_SYSV,
        abi_version: 0,
        e_type: elf::ET_DYN,
        e_machine: elf::EM_X86_64,
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    })?;
    writer.write_align_program_headers();
    // The address of each part is its offset in the file.
    let mut segment = |kind, flags, part: &Range<u64>, align| {
        writer.write_program_header(&write::ProgramHeader {
            p_type: kind,
            p_flags: flags,
            p_offset: part.start,
            p_vaddr: part.start,
            p_paddr: part.start,
            p_filesz: part.end - part.start,
            p_memsz: part.end - part.start,
            p_align: align,
        });
    };
    let data_flags = elf::PF_R | elf::PF_W;
    segment(elf::PT_LOAD, elf::PF_R, &(0..read_only), PAGE);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, &text, PAGE);
    segment(elf::PT_LOAD, data_flags, &data, PAGE);
    segment(elf::PT_DYNAMIC, data_flags, &(dynamic..dynamic_end), 8);
    // Without it the loader makes the stack executable.
    segment(elf::PT_GNU_STACK, data_flags, &(0..0), 16);

    writer.write_hash(symbols, symbols, |symbol| {
        let name = names.get((symbol as usize).checked_sub(2)?)?;
        Some(elf::hash(name.as_bytes()))
    });
    writer.write_null_dynamic_symbol();
    let mut symbol = |name, section: Option<write::SectionIndex>, value, size| {
        writer.write_dynamic_symbol(&write::Sym {
            section: section.map(|section| section.0),
            st_name: writer.dynamic_string_offset(Some(name)),
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
            st_other: elf::SymbolOther(0),
            st_shndx: elf::SHN_UNDEF,
            st_value: value,
            st_size: size,
        });
    };
    symbol(resolver_name, None, 0, 0);
    for (index, &name) in (0..).zip(&strings) {
        symbol(name, Some(text_section), text.start + 2 * CODE * index, 10);
    }
    writer.write_dynstr();
    writer.write_align_relocation();
    let relocation = |offset, symbol, kind, addend: u64| write::Rel {
        r_offset: offset,
        r_sym: symbol,
        r_type: kind,
        r_addend: addend as i64,
    };
    for (index, &name) in (0..).zip(&strings) {
        let entry = entries + ENTRY * index;
        let unresolved = text.start + 2 * CODE * index + CODE;
        let name = dynstr + u64::from(writer.dynamic_string_offset(Some(name)));
        for (offset, value) in [(0, unresolved), (8, unresolved), (16, name)] {
            let relative = relocation(entry + offset, 0, elf::R_X86_64_RELATIVE, value);
            writer.write_relocation(true, &relative);
        }
    }
    let address = relocation(resolver_slot, resolver.0, elf::R_X86_64_GLOB_DAT, 0);
    writer.write_relocation(true, &address);

    writer.pad_until(text.start);
    for index in 0..count {
        let entry = entries + ENTRY * index;
        writer.write(&code(text.start + 2 * CODE * index, entry, resolver_slot));
    }
    writer.pad_until(data.start);
    writer.write_align_dynamic();
    writer.write_dynamic_string(elf::DT_SONAME, soname)?;
    for (tag, value) in [
        (elf::DT_HASH, hash),
        (elf::DT_SYMTAB, dynsym),
        (elf::DT_SYMENT, 24),
        (elf::DT_STRTAB, dynstr),
        (elf::DT_STRSZ, u64::from(writer.dynstr_len())),
        (elf::DT_RELA, rela),
        (elf::DT_RELASZ, 24 * relocations as u64),
        (elf::DT_RELAENT, 24),
        (elf::DT_RELACOUNT, relocations as u64 - 1),
        (elf::DT_NULL, 0),
    ] {
        writer.write_dynamic(tag, value)?;
    }
    // The relocations fill the rest.
    writer.pad_until(data.end);
    writer.write_shstrtab();
    writer.write_null_section_header();
    writer.write_section_header(&write::SectionHeader {
        sh_name: writer.section_name_offset(Some(text_name)),
        sh_type: elf::SHT_PROGBITS,
        sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
        sh_addr: text.start,
        sh_offset: text.start,
        sh_size: text.end - text.start,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: CODE,
        sh_entsize: 0,
    });
    writer.write_hash_section_header(hash);
    writer.write_dynsym_section_header(dynsym, 1);
    writer.write_dynstr_section_header(dynstr);
    writer.write_dynamic_section_header(dynamic);
    writer.write_shstrtab_section_header();
    Ok(file)
}

/// A function's code: `endbr64; jmp *entry`, followed by `lea entry, %r11; jmp *resolver`.
fn code(address: u64, entry: u64, resolver: u64) -> [u8; 2 * CODE as usize] {
    // The padding is int3.
    let mut code = [0xcc; 2 * CODE as usize];
    let mut put = |at: usize, opcode: &[u8], target: u64| {
        let end = at + opcode.len() + 4;
        // Less than 2 GiB apart: the library is small.
        let distance = target.wrapping_sub(address + end as u64) as u32;
        code[at..at + opcode.len()].copy_from_slice(opcode);
        code[end - 4..end].copy_from_slice(&distance.to_le_bytes());
        end
    };
    put(0, &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25], entry);
    let end = put(CODE as usize, &[0x4c, 0x8d, 0x1d], entry);
    put(end, &[0xff, 0x25], resolver);
    code
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSymbol};

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("cuNew{number}")).collect()
    }

    #[test]
    fn library_exports_the_names() {
        for count in [1, 2, 300] {
            let names = names(count);
            let bytes = library(&names).unwrap();
            let library = object::File::parse(&*bytes).unwrap();
            let defined = library
                .dynamic_symbols()
                .filter(|symbol| symbol.is_definition());
            let mut exported: Vec<_> = defined.map(|s| s.name().unwrap().to_owned()).collect();
            exported.sort();
            let mut expected = names.clone();
            expected.sort();
            assert_eq!(exported, expected);
            let undefined: Vec<_> = library
                .dynamic_symbols()
                .filter(|symbol| symbol.is_undefined())
                .map(|symbol| symbol.name().unwrap())
                .collect();
            assert_eq!(undefined, [RESOLVER]);
            let header = elf::FileHeader64::<Endianness>::parse(&*bytes).unwrap();
            let segments = header.program_headers(Endianness::Little, &*bytes).unwrap();
            for segment in segments {
                let flags = segment.p_flags(Endianness::Little);
                let writable = flags & elf::PF_W == elf::PF_W;
                let executable = flags & elf::PF_X == elf::PF_X;
                assert!(!(writable && executable), "{segment:?}");
            }
        }
    }

    #[test]
    fn code_jumps_through_the_entry() {
        let code = code(0x1000, 0x3040, 0x3000);
        // Relative to the end of each jump: 0x100a + 0x2036; 0x1017 + 0x2029; 0x101d + 0x1fe3.
        assert_eq!(
            code[..10],
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x36, 0x20, 0, 0]
        );
        assert_eq!(
            code[16..29],
            [
                0x4c, 0x8d, 0x1d, 0x29, 0x20, 0, 0, 0xff, 0x25, 0xe3, 0x1f, 0, 0
            ]
        );
    }

    #[test]
    fn other_files_are_refused() {
        // A library without the tag, a file that is not a library, no file.
        for path in ["/proc/self/exe", "/dev/null", "/no/such"] {
            let why = interposer(Path::new(path)).unwrap_err();
            assert!(why.starts_with(path), "{why}");
        }
        assert!(exported(Path::new("/dev/null")).is_err());
        assert_eq!(exported(Path::new("/proc/self/exe")), Ok(Vec::new()));
    }

    #[test]
    fn noexec_folders_are_detected() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        // The last mount of a folder hides the others.
        let mut last = std::collections::BTreeMap::new();
        for line in mounts.lines() {
            let words: Vec<_> = line.split(' ').collect();
            last.insert(words[1], words[3].split(',').any(|word| word == "noexec"));
        }
        for (folder, noexec) in last {
            // A mount may be hidden below another one or inaccessible.
            if Path::new(folder).is_dir() && folder.matches('/').count() == 1 {
                assert_eq!(obstacle(Path::new(folder)).is_some(), noexec, "{folder}");
            }
        }
    }
}
