//! What a process has mapped, as Linux lists it in `/proc/PID/maps` (proc_pid_maps(5)).
//!
//! Invariant: no allocation, so that a process can read its own list without changing it; no panic,
//! whatever the list holds.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)
)]

use std::io::{self, Read};
use std::ops::ControlFlow;

/// Addresses that a process has mapped: a line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub start: u64,
    /// The address past the last byte.
    pub end: u64,
    /// `r`, `w` and `x`, or `-`; then `s` if it is shared, `p` if it is private.
    pub permissions: &'a [u8],
    /// Where in the file it begins.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file; 0 if there is none.
    pub inode: u64,
    /// The file's path, with newlines as `\012`, or a name such as `[heap]`; empty if there is none.
    pub path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Reads `7f12-7f34 r--p 00001000 08:01 42   /path`.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let mut word = || words.next();
        let (start, end) = pair(word()?, b'-')?;
        let (permissions, offset) = (word()?, number(word()?, 16)?);
        let (major, minor) = pair(word()?, b':')?;
        Some(Self {
            start,
            end,
            permissions,
            offset,
            device: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
            inode: number(word()?, 10)?,
            path: word().unwrap_or_default().trim_ascii_start(),
        })
    }

    /// True if other processes see what is written there.
    pub fn is_shared(&self) -> bool {
        self.permissions.last() == Some(&b's')
    }

    /// True for the stack of the first thread: the first mapping above all that the kernel places.
    pub fn is_stack(&self) -> bool {
        self.path == b"[stack]"
    }
}

fn pair(text: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|&byte| byte == between)?;
    let (first, second) = text.split_at_checked(at)?;
    Some((number(first, 16)?, number(second.get(1..)?, 16)?))
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    let text = core::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text, base).ok()
}

/// The mappings of a list in order of address.
pub fn mappings(list: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    list.split(|&byte| byte == b'\n').filter_map(Mapping::parse)
}

/// Reads a list in pieces, and passes its lines on until `each` breaks. Of a line that is longer
/// than `piece`, the beginning is passed on.
///
/// # Errors
/// The list cannot be read.
pub fn for_each_line(
    mut list: impl Read,
    piece: &mut [u8],
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut kept = 0;
    let mut is_rest_of_line = false;
    loop {
        let count = list.read(piece.get_mut(kept..).unwrap_or_default())?;
        if count == 0 {
            return Ok(());
        }
        let filled = kept + count;
        let bytes = piece.get(..filled).unwrap_or_default();
        let newline = bytes.iter().rposition(|&byte| byte == b'\n');
        let is_full = newline.is_none() && filled == piece.len();
        let end = newline.map_or(if is_full { filled } else { 0 }, |at| at + 1);
        let whole = bytes.get(..end).unwrap_or_default();
        for line in whole.split_inclusive(|&byte| byte == b'\n') {
            let text = line.strip_suffix(b"\n");
            if !std::mem::replace(&mut is_rest_of_line, text.is_none())
                && each(text.unwrap_or(line)).is_break()
            {
                return Ok(());
            }
        }
        kept = filled - end;
        piece.copy_within(end..filled, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_parts() {
        for (line, path, is_shared) in [
            (
                "7f00-7f01 rw-s 00001000 fd:0a 5 /tmp/a b.cutape",
                "/tmp/a b.cutape",
                true,
            ),
            (
                "7f00-7f01 rw-p 00001000 fd:0a 5                  /usr/lib/x.so",
                "/usr/lib/x.so",
                false,
            ),
            (
                "7f00-7f01 rw-p 00001000 fd:0a 5                  [stack]",
                "[stack]",
                false,
            ),
            ("7f00-7f01 rw-p 00001000 fd:0a 5 ", "", false),
            ("7f00-7f01 rw-s 00001000 fd:0a 5", "", true),
        ] {
            let mapping = Mapping::parse(line.as_bytes()).unwrap();
            assert_eq!((mapping.start, mapping.end), (0x7f00, 0x7f01), "{line}");
            assert_eq!((mapping.offset, mapping.inode), (0x1000, 5), "{line}");
            assert_eq!(mapping.device, (0xfd, 0xa), "{line}");
            assert_eq!(mapping.path, path.as_bytes(), "{line}");
            assert_eq!(mapping.is_shared(), is_shared, "{line}");
            assert_eq!(mapping.is_stack(), path == "[stack]", "{line}");
        }
        for line in [
            "",
            "x",
            "1000 r--p 0 08:01 4",
            "1-2 r--p 0 08:01",
            "1-2 r--p 0 08 4",
        ] {
            assert_eq!(Mapping::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn own_memory_is_mapped() {
        let list = std::fs::read("/proc/self/maps").unwrap();
        let here = list.as_ptr() as u64;
        assert!(mappings(&list).any(|mapping| (mapping.start..mapping.end).contains(&here)));
        let code = own_memory_is_mapped as *const () as u64;
        let code = mappings(&list).find(|mapping| (mapping.start..mapping.end).contains(&code));
        let program = std::env::current_exe().unwrap();
        assert_eq!(code.unwrap().path, program.to_str().unwrap().as_bytes());
    }

    #[test]
    fn lines_are_read_in_pieces() {
        let list = b"first\nsecond one\nx\n\nlast\n";
        let read = |piece: usize, most: usize| {
            let mut lines = Vec::new();
            for_each_line(&list[..], &mut vec![0; piece], |line| {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
                match lines.len() == most {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .unwrap();
            lines
        };
        let all = ["first", "second one", "x", "", "last"];
        for piece in [11, 12, 17, 100] {
            assert_eq!(read(piece, 9), all, "{piece}");
        }
        assert_eq!(read(100, 2), all[..2]);
        assert_eq!(read(6, 9), ["first", "second", "x", "", "last"]);
        assert!(read(0, 9).is_empty());
    }
}
