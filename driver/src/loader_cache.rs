//! The dynamic loader's cache (`/etc/ld.so.cache`), which lists the system's libraries.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

use std::path::PathBuf;

/// Start of the newer of the two formats; an older one may precede it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// ELF, glibc 2 (1 and 2 of the low byte), x86-64 (3 of the next).
const FLAGS_X86_64: u32 = 0x0303;

/// Every path that the cache lists for an x86-64 library of that name; empty if it is no cache.
pub(crate) fn paths(cache: &[u8], library: &str) -> Vec<PathBuf> {
    let start = cache
        .windows(MAGIC.len())
        .position(|window| window == MAGIC);
    let cache = start
        .and_then(|start| cache.get(start..))
        .unwrap_or_default();
    let count = number(cache, 20).unwrap_or(0);
    let mut found = Vec::new();
    for index in 0..count as usize {
        let entry = HEADER + index * ENTRY;
        let (Some(flags), Some(name), Some(path)) = (
            number(cache, entry),
            number(cache, entry + 4),
            number(cache, entry + 8),
        ) else {
            break;
        };
        if flags == FLAGS_X86_64
            && text(cache, name) == Some(library.as_bytes())
            && let Some(path) = text(cache, path).and_then(|path| std::str::from_utf8(path).ok())
        {
            found.push(PathBuf::from(path));
        }
    }
    found
}

fn number(cache: &[u8], offset: usize) -> Option<u32> {
    let bytes = cache.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn text(cache: &[u8], offset: u32) -> Option<&[u8]> {
    cache
        .get(offset as usize..)?
        .split(|byte| *byte == 0)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let strings_at = HEADER + entries.len() * ENTRY;
        let mut strings = Vec::new();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
        bytes.resize(HEADER, 0);
        for (flags, name, path) in entries {
            bytes.extend(flags.to_le_bytes());
            for text in [name, path] {
                bytes.extend(
                    u32::try_from(strings_at + strings.len())
                        .unwrap()
                        .to_le_bytes(),
                );
                strings.extend(text.as_bytes());
                strings.push(0);
            }
            bytes.extend([0; 12]);
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn finds_the_64_bit_library_only() {
        let bytes = cache(&[
            (0x0003, "libcuda.so.1", "/lib32/libcuda.so.1"),
            (FLAGS_X86_64, "libcuda.so", "/lib64/libcuda.so"),
            (FLAGS_X86_64, "libcuda.so.1", "/lib64/libcuda.so.1"),
        ]);
        let wanted = vec![PathBuf::from("/lib64/libcuda.so.1")];
        assert_eq!(paths(&bytes, "libcuda.so.1"), wanted);
        // The old format before it moves everything by a whole header.
        let mut both = b"ld.so-1.7.0\0and so on..".to_vec();
        both.extend(&bytes);
        assert_eq!(paths(&both, "libcuda.so.1"), wanted);
    }

    #[test]
    fn damaged_caches_find_nothing() {
        let whole = cache(&[(FLAGS_X86_64, "libcuda.so.1", "/x")]);
        for length in 0..whole.len() - 3 {
            assert!(
                paths(&whole[..length], "libcuda.so.1")
                    .iter()
                    .all(|path| path.as_os_str().is_empty())
            );
        }
        let mut many = whole.clone();
        many[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(paths(&many, "libcuda.so.1").len(), 1);
        assert!(paths(b"", "libcuda.so.1").is_empty());
    }
}
