//! The outer layout of an ELF file: header, section table and segment table, for both word sizes.
// Without `decompress` only the end of the file is read.
#![cfg_attr(not(feature = "decompress"), allow(dead_code))]

/// The machine number of CUDA code.
pub(crate) const EM_CUDA: u16 = 190;
/// A section without bytes in the file.
pub(crate) const SHT_NOBITS: u32 = 8;

/// A byte at a checked offset.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// A little-endian integer at a checked offset.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// See [`u16_at`].
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// See [`u16_at`].
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The bytes from `start` to `end`, if they are all there.
pub(crate) fn range(bytes: &[u8], start: u64, end: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// The ELF header, widened to 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// True for ELFCLASS64.
    pub(crate) wide: bool,
    /// EI_OSABI; distinguishes the two layouts of the CUDA flags.
    pub(crate) os_abi: u8,
    /// ET_REL is 1, ET_EXEC is 2.
    pub(crate) file_type: u16,
    /// EM_CUDA or a host machine.
    pub(crate) machine: u16,
    /// e_flags.
    pub(crate) flags: u32,
    segments_at: u64,
    sections_at: u64,
    segment_size: u16,
    segment_count: u16,
    section_size: u16,
    section_count: u16,
    names_index: u16,
}

/// One row of the section table, widened to 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// Offset of its name in the section name table.
    pub(crate) name: u32,
    /// sh_type.
    pub(crate) kind: u32,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Bytes; in the file unless the section is [`SHT_NOBITS`].
    pub(crate) size: u64,
    /// sh_link.
    pub(crate) link: u32,
    /// sh_info.
    pub(crate) info: u32,
}

/// Why a header could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElfError {
    /// This many bytes from the start are needed.
    Short(u64),
    /// No ELF file of CUDA or of a little-endian host.
    Bad,
}

impl Header {
    /// Reads the header at the start of `bytes`.
    pub(crate) fn read(bytes: &[u8]) -> Result<Header, ElfError> {
        let ident: &[u8; 16] = bytes.first_chunk().ok_or(ElfError::Short(64))?;
        let [0x7f, b'E', b'L', b'F', class @ 1..=2, 1, _, os_abi, ..] = *ident else {
            return Err(ElfError::Bad);
        };
        let wide = class == 2;
        let whole = if wide { 64 } else { 52 };
        let short = ElfError::Short(whole);
        let half = |at| u16_at(bytes, at).ok_or(short);
        let word = |at| u32_at(bytes, at).ok_or(short);
        let address = |narrow, broad| {
            if wide {
                u64_at(bytes, broad).ok_or(short)
            } else {
                u32_at(bytes, narrow).map(u64::from).ok_or(short)
            }
        };
        let tail = if wide { 48 } else { 36 };
        let header = Header {
            wide,
            os_abi,
            file_type: half(16)?,
            machine: half(18)?,
            flags: word(tail)?,
            segments_at: address(28, 32)?,
            sections_at: address(32, 40)?,
            segment_size: half(tail + 6)?,
            segment_count: half(tail + 8)?,
            section_size: half(tail + 10)?,
            section_count: half(tail + 12)?,
            names_index: half(tail + 14)?,
        };
        let (min_section, min_segment) = if wide { (64, 56) } else { (40, 32) };
        let is_short = header.sections_at != 0 && header.section_size < min_section
            || header.segment_count != 0 && header.segment_size < min_segment;
        if is_short {
            return Err(ElfError::Bad);
        }
        Ok(header)
    }

    /// Bytes of the header itself.
    pub(crate) fn size(&self) -> u64 {
        if self.wide { 64 } else { 52 }
    }

    /// The number of sections; above 65279 the first section's size holds it.
    pub(crate) fn section_count(&self, bytes: &[u8]) -> Result<u64, ElfError> {
        if self.sections_at == 0 {
            // Without a table there are none.
            return Ok(0);
        }
        if self.section_count != 0 {
            return Ok(u64::from(self.section_count));
        }
        Ok(self.section(bytes, 0)?.size)
    }

    /// The index of the section name table, which has the same escape.
    pub(crate) fn names_index(&self, bytes: &[u8]) -> Result<u32, ElfError> {
        if self.names_index == 0xffff && self.sections_at != 0 {
            return Ok(self.section(bytes, 0)?.link);
        }
        Ok(u32::from(self.names_index))
    }

    fn segment_count(&self, bytes: &[u8]) -> Result<u64, ElfError> {
        if self.segment_count == 0xffff && self.sections_at != 0 {
            return Ok(u64::from(self.section(bytes, 0)?.info));
        }
        Ok(u64::from(self.segment_count))
    }

    /// Row `index` of the section table.
    pub(crate) fn section(&self, bytes: &[u8], index: u64) -> Result<Section, ElfError> {
        let (row, short) = self.row(bytes, self.sections_at, self.section_size, index)?;
        let word = |at| u32_at(row, at).ok_or(short);
        let long = |at| u64_at(row, at).ok_or(short);
        Ok(if self.wide {
            Section {
                name: word(0)?,
                kind: word(4)?,
                offset: long(24)?,
                size: long(32)?,
                link: word(40)?,
                info: word(44)?,
            }
        } else {
            Section {
                name: word(0)?,
                kind: word(4)?,
                offset: word(16)?.into(),
                size: word(20)?.into(),
                link: word(24)?,
                info: word(28)?,
            }
        })
    }

    /// File offset and file size of row `index` of the segment table.
    fn segment(&self, bytes: &[u8], index: u64) -> Result<(u64, u64), ElfError> {
        let (row, short) = self.row(bytes, self.segments_at, self.segment_size, index)?;
        Ok(if self.wide {
            (u64_at(row, 8).ok_or(short)?, u64_at(row, 32).ok_or(short)?)
        } else {
            let word = |at| u32_at(row, at).map(u64::from).ok_or(short);
            (word(4)?, word(16)?)
        })
    }

    fn row<'a>(
        &self,
        bytes: &'a [u8],
        table: u64,
        size: u16,
        index: u64,
    ) -> Result<(&'a [u8], ElfError), ElfError> {
        let size = u64::from(size);
        let start = index.checked_mul(size).and_then(|o| o.checked_add(table));
        let start = start.ok_or(ElfError::Bad)?;
        let end = start.checked_add(size).ok_or(ElfError::Bad)?;
        let short = ElfError::Short(end);
        Ok((range(bytes, start, end).ok_or(short)?, short))
    }

    /// Where the file ends: the furthest end of the tables, of what sections hold and of what
    /// segments load. Requires whole tables at once, so that a reader that fetches bytes needs at
    /// most three rounds.
    pub(crate) fn file_end(&self, bytes: &[u8]) -> Result<u64, ElfError> {
        let mut end = self.size();
        let sections = self.section_count(bytes)?;
        let segments = self.segment_count(bytes)?;
        for (table, size, count) in [
            (self.sections_at, self.section_size, sections),
            (self.segments_at, self.segment_size, segments),
        ] {
            if count != 0 {
                let table_end = count
                    .checked_mul(u64::from(size))
                    .and_then(|n| n.checked_add(table));
                end = end.max(table_end.ok_or(ElfError::Bad)?);
            }
        }
        if (bytes.len() as u64) < end {
            return Err(ElfError::Short(end));
        }
        for index in 0..sections {
            let section = self.section(bytes, index)?;
            // Row 0 may hold the escaped counts, and a null row has no bytes.
            if index != 0 && section.kind != SHT_NOBITS && section.kind != 0 {
                let last = section
                    .offset
                    .checked_add(section.size)
                    .ok_or(ElfError::Bad)?;
                end = end.max(last);
            }
        }
        for index in 0..segments {
            let (offset, size) = self.segment(bytes, index)?;
            end = end.max(offset.checked_add(size).ok_or(ElfError::Bad)?);
        }
        Ok(end)
    }
}
