//! Reads the encodings of `.eh_frame` from memory that may go away.

use crate::process::memory;

/// Bytes that are read at once: most entries are shorter.
const WINDOW: usize = 128;

/// A position in memory, and the bytes around it.
pub(super) struct View {
    position: u64,
    window: [u8; WINDOW],
    window_start: u64,
    window_length: usize,
}

impl View {
    pub(super) fn new(position: u64) -> Self {
        Self {
            position,
            window: [0; WINDOW],
            window_start: 0,
            window_length: 0,
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn skip(&mut self, bytes: u64) {
        self.position = self.position.wrapping_add(bytes);
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        for _ in 0..2 {
            let at = self.position.wrapping_sub(self.window_start);
            let known = self.window.get(..self.window_length)?;
            if let Ok(at) = usize::try_from(at)
                && let Some(bytes) = known.get(at..).and_then(|rest| rest.first_chunk())
            {
                self.position = self.position.wrapping_add(N as u64);
                return Some(*bytes);
            }
            self.window_start = self.position;
            self.window_length = memory::read(self.position, &mut self.window);
        }
        None
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_le_bytes)
    }

    pub(super) fn uleb(&mut self) -> Option<u64> {
        let (value, _, _) = self.leb()?;
        Some(value)
    }

    pub(super) fn sleb(&mut self) -> Option<i64> {
        let (value, bits, is_negative) = self.leb()?;
        let sign = if is_negative && bits < 64 {
            u64::MAX << bits
        } else {
            0
        };
        Some((value | sign) as i64)
    }

    /// A LEB128 number without its sign, its bits, and whether the last is set.
    fn leb(&mut self) -> Option<(u64, u32, bool)> {
        let (mut value, mut bits) = (0_u64, 0_u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(bits).unwrap_or(0);
            bits += 7;
            if byte & 0x80 == 0 {
                return Some((value, bits, byte & 0x40 != 0));
            }
            if bits > 63 {
                return None;
            }
        }
    }

    /// An encoded pointer (LSB, "DWARF Exception Header Encoding"), absolute or relative to its own
    /// place.
    pub(super) fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let place = self.position;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.bytes().map(u64::from_le_bytes)?,
            0x02 => self.u16()?.into(),
            0x03 => self.u32()?.into(),
            0x0a => self.bytes().map(i16::from_le_bytes)? as u64,
            0x0b => self.i32()? as u64,
            _ => return None,
        };
        // Bit 7, "indirect", occurs only with personality routines, whose value is not used.
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(place.wrapping_add(value)),
            _ => None,
        }
    }
}
