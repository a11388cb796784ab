//! Just enough ELF to see whether a shared object names a symbol, without loading it (which would run its code).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
/// No string table or dynamic section of a driver comes near this; a larger one is a damaged file.
const LARGEST: u64 = 64 << 20;

/// Whether the dynamic string table of a 64-bit little-endian ELF file has that name.
pub(crate) fn names_symbol(path: &Path, symbol: &str) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let header = read_at(&mut file, 0, 64)?;
    if header.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(damaged("not a 64-bit little-endian ELF file"));
    }
    let table = word(&header, 32, 8)?;
    let entry = word(&header, 54, 2)?;
    let count = word(&header, 56, 2)?;
    let headers = read_at(&mut file, table, entry * count)?;
    let mut loads = Vec::new();
    let mut dynamic = None;
    for index in 0..count {
        let start = usize::try_from(index * entry).map_err(|_| damaged("program headers"))?;
        let kind = word(&headers, start, 4)?;
        let (offset, address, size) = (
            word(&headers, start + 8, 8)?,
            word(&headers, start + 16, 8)?,
            word(&headers, start + 32, 8)?,
        );
        if kind == u64::from(PT_LOAD) {
            loads.push((address, offset, size));
        } else if kind == u64::from(PT_DYNAMIC) {
            dynamic = Some((offset, size));
        }
    }
    let (offset, size) = dynamic.ok_or_else(|| damaged("no dynamic section"))?;
    let entries = read_at(&mut file, offset, size)?;
    let (mut strings, mut length) = (0, 0);
    for start in (0..entries.len()).step_by(16) {
        match (word(&entries, start, 8)?, word(&entries, start + 8, 8)?) {
            (DT_STRTAB, value) => strings = value,
            (DT_STRSZ, value) => length = value,
            (0, _) => break,
            _ => {}
        }
    }
    let (address, offset, _) = loads
        .into_iter()
        .find(|(address, _, size)| {
            strings
                .checked_sub(*address)
                .is_some_and(|distance| distance < *size)
        })
        .ok_or_else(|| damaged("string table in no segment"))?;
    let place = (strings - address)
        .checked_add(offset)
        .ok_or_else(|| damaged("string table"))?;
    let table = read_at(&mut file, place, length)?;
    Ok(table
        .split(|byte| *byte == 0)
        .any(|name| name == symbol.as_bytes()))
}

fn read_at(file: &mut File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    if length > LARGEST {
        return Err(damaged("a table is larger than any driver's"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).ok() == Some(length) {
        Ok(bytes)
    } else {
        Err(damaged("cut off"))
    }
}

fn word(bytes: &[u8], offset: usize, length: usize) -> io::Result<u64> {
    let mut value = [0; 8];
    let field = offset
        .checked_add(length)
        .and_then(|end| bytes.get(offset..end))
        .ok_or_else(|| damaged("cut off"))?;
    value[..length].copy_from_slice(field);
    Ok(u64::from_le_bytes(value))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_the_names_of_this_test_program() {
        let own = std::env::current_exe().unwrap();
        assert!(names_symbol(&own, "__libc_start_main").unwrap());
        assert!(!names_symbol(&own, "cutape_no_such_symbol").unwrap());
    }

    #[test]
    fn damaged_files_are_errors() {
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
            assert!(names_symbol(&path, "x").is_err());
        }
        std::fs::remove_file(&path).unwrap();
    }
}
