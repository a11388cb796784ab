//! Whether a shared object names a symbol, without loading it, which would run its code.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

use std::fs::File;

use object::elf::{DT_STRSZ, DT_STRTAB, FileHeader64, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{LittleEndian, elf};

/// The longest string table that is read, in bytes; a damaged file may claim more.
const MAX_STRINGS: u64 = 64 << 20;

/// Whether the dynamic string table of a 64-bit little-endian ELF file has that name; `None` for
/// another or a damaged file.
pub(crate) fn names_symbol(file: File, symbol: &str) -> Option<bool> {
    let data = &ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let (mut address, mut length) = (0, 0);
    for segment in segments {
        let entries = segment.dynamic(endian, data).ok()?.unwrap_or_default();
        for entry in entries
            .iter()
            .take_while(|entry| entry.tag(endian) != elf::DT_NULL)
        {
            match entry.tag(endian) {
                DT_STRTAB => address = entry.d_val(endian),
                DT_STRSZ => length = entry.d_val(endian),
                _ => {}
            }
        }
    }
    let offset_in = |segment: &elf::ProgramHeader64<LittleEndian>| {
        let offset = address.checked_sub(segment.p_vaddr(endian))?;
        let is_inside = segment.p_type(endian) == PT_LOAD && offset < segment.p_filesz(endian);
        is_inside.then(|| segment.p_offset(endian).checked_add(offset))?
    };
    let offset = segments.iter().find_map(offset_in)?;
    let strings = data.read_bytes_at(offset, length.min(MAX_STRINGS)).ok()?;
    let mut names = strings.split(|byte| *byte == 0);
    Some(names.any(|name| name == symbol.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &std::path::Path, symbol: &str) -> Option<bool> {
        names_symbol(File::open(path).unwrap(), symbol)
    }

    #[test]
    fn sees_the_names_of_this_test_program() {
        let own = std::env::current_exe().unwrap();
        assert!(names(&own, "__libc_start_main").unwrap());
        assert!(!names(&own, "cutape_no_such_symbol").unwrap());
    }

    #[test]
    fn damaged_files_are_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let path = std::env::temp_dir().join(format!("cutape-elf-{}", std::process::id()));
        let mut cases: Vec<Vec<u8>> = [0, 5, 16, 63, 64, 200]
            .map(|length| own[..length].to_vec())
            .into();
        cases.push(b"#!/bin/sh\n".repeat(20));
        // Program headers that lie beyond the end, and more of them than there are bytes.
        for (offset, value) in [(39, 0x7f), (55, 0xff), (57, 0xff)] {
            let mut bytes = own[..4096].to_vec();
            bytes[offset] = value;
            cases.push(bytes);
        }
        for bytes in cases {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(names(&path, "x"), None);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
