//! `.nv.info` sections: records of a format byte, an attribute byte and a value.

use crate::content::Parameter;
use crate::elf::{u16_at, u32_at};

pub(crate) const MAX_THREADS: u8 = 0x05;
pub(crate) const REQUIRED_THREADS: u8 = 0x10;
pub(crate) const FRAME_SIZE: u8 = 0x11;
pub(crate) const PARAMETER: u8 = 0x17;
pub(crate) const REGISTERS: u8 = 0x2f;
/// Like [`NEEDS_CLUSTER`] as ptxas 12.9 writes it.
pub(crate) const REQUIRED_CLUSTER: u8 = 0x3d;
/// Has no value.
pub(crate) const NEEDS_CLUSTER: u8 = 0x3e;
/// The most blocks of a cluster, as ptxas 12.9 writes it.
pub(crate) const MAX_CLUSTER: u8 = 0x3f;
/// For parameters too large for the 14 bits of [`PARAMETER`] (sm_70 on, PTX 8.1 on).
pub(crate) const PARAMETER_WIDE: u8 = 0x45;

/// The format without a value.
pub(crate) const FORMAT_EMPTY: u8 = 1;
/// The format whose 16-bit value is the length of what follows; the others carry their value in it.
pub(crate) const FORMAT_SIZED: u8 = 4;

/// One record: without a value, or with one that has its own length.
pub(crate) struct Record<'a> {
    pub(crate) attribute: u8,
    pub(crate) value: &'a [u8],
}

/// The empty and the sized records of a section, in order; the others hold nothing of interest.
/// Ends at the first damaged record.
pub(crate) fn records(mut section: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        loop {
            let [format, attribute, low, high, rest @ ..] = section else {
                return None;
            };
            let length = match *format {
                FORMAT_EMPTY => 0,
                FORMAT_SIZED => usize::from(u16::from_le_bytes([*low, *high])),
                _ => {
                    section = rest;
                    continue;
                }
            };
            let value;
            (value, section) = rest.split_at_checked(length)?;
            return Some(Record {
                attribute: *attribute,
                value,
            });
        }
    })
}

impl Record<'_> {
    /// Ordinal and layout of a parameter record of either kind.
    pub(crate) fn parameter(&self) -> Option<(u16, Parameter)> {
        let ordinal = u16_at(self.value, 4)?;
        let offset = u16_at(self.value, 6)?.into();
        let word = u32_at(self.value, 8)?;
        let size = match self.attribute {
            PARAMETER => word >> 18,
            PARAMETER_WIDE => word,
            _ => return None,
        };
        Some((ordinal, Parameter { offset, size }))
    }

    /// The three numbers of a block or cluster shape.
    pub(crate) fn shape(&self) -> Option<[u32; 3]> {
        Some([
            u32_at(self.value, 0)?,
            u32_at(self.value, 4)?,
            u32_at(self.value, 8)?,
        ])
    }

    /// A number.
    pub(crate) fn number(&self) -> Option<u32> {
        u32_at(self.value, 0)
    }

    /// Symbol index and number of a record about one function.
    pub(crate) fn of_symbol(&self) -> Option<(u32, u32)> {
        Some((u32_at(self.value, 0)?, u32_at(self.value, 4)?))
    }
}
