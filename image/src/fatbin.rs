//! The entries of a fatbin container and their decompression.
//!
//! The layout is inferred from files that `fatbinary` 12.9 and 13.5 made, and from NVIDIA's
//! libraries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

use crate::elf::{range, u16_at, u32_at, u64_at};
use crate::problem::{Place, Problem, ProblemKind};
use crate::target::{CodeKind, Suffix, Target, runs_on};

/// The most bytes that one entry may have when decompressed.
pub const MAX_DECOMPRESSED: u64 = 1 << 30;
/// The most bytes that all entries of one image together may have when decompressed.
pub const MAX_DECOMPRESSED_TOTAL: u64 = 8 << 30;
/// The entries of one image together may have that many bytes when decompressed, however short the
/// image is.
const ALWAYS_DECOMPRESSED: u64 = 32 << 20;
/// Beyond that, the most bytes that a stored byte stands for: what LZ4 can do. Only zstd data of
/// little else than zeros has more.
const MAX_EXPANSION: u64 = 255;
/// The most entries that are read.
pub const MAX_ENTRIES: usize = 1 << 16;

pub(crate) const KIND_PTX: u16 = 1;
pub(crate) const KIND_ELF: u16 = 2;
const KIND_LTO: u16 = 8;
/// Several images compressed as one (`fatbinary --concat`, CUDA 13).
const KIND_GROUP: u16 = 256;

pub(crate) const FLAG_64_BIT: u64 = 0x1;
#[cfg(feature = "build")]
pub(crate) const FLAG_LINUX: u64 = 0x10;
pub(crate) const FLAG_LZ4: u64 = 0x2000;
pub(crate) const FLAG_ZSTD: u64 = 0x8000;
pub(crate) const FLAG_ARCH: u64 = 0x10_0000;
pub(crate) const FLAG_FAMILY: u64 = 0x20_0000;

/// The least bytes of an entry's header, which has its own size field; 64 to 120 were seen.
pub(crate) const ENTRY_HEADER: usize = 64;

/// An entry as its header describes it, its payload still packed.
#[derive(Clone, Debug)]
pub(crate) struct Packed<'a> {
    pub(crate) code: CodeKind,
    pub(crate) target: Option<Target>,
    pub(crate) address_bits: u8,
    /// Two numbers of the header: the PTX version of PTX, the ABI of a cubin.
    pub(crate) version: (u16, u16),
    pub(crate) identifier: Option<String>,
    pub(crate) options: Option<String>,
    flags: u64,
    payload: &'a [u8],
    original: u64,
    at: u64,
    /// For a member of a group: its part of the decompressed bytes.
    part: Option<(u64, u64)>,
}

/// The entries of the container at the start of `bytes`.
pub(crate) fn entries(bytes: &[u8]) -> Result<Vec<Packed<'_>>, Problem> {
    let cut = || Problem::truncated(bytes.len() as u64, "the fatbin's header takes 16 bytes");
    let header = usize::from(u16_at(bytes, 6).ok_or_else(cut)?);
    let size = u64_at(bytes, 8).ok_or_else(cut)?;
    if header < 16 {
        return Err(Problem::malformed(
            6,
            format!("a fatbin header of {header} bytes"),
        ));
    }
    let end = usize::try_from(size)
        .ok()
        .and_then(|s| s.checked_add(header));
    let Some(whole) = end.and_then(|end| bytes.get(..end)) else {
        let what = format!(
            "the fatbin's header claims {size} bytes after it, {} are there",
            bytes.len()
        );
        return Err(Problem::truncated(bytes.len() as u64, what));
    };
    let mut found = Vec::new();
    let mut at = header;
    while at < whole.len() {
        if found.len() >= MAX_ENTRIES {
            return Err(Problem::too_large(format!(
                "more than {MAX_ENTRIES} entries"
            )));
        }
        let rest = whole.get(at..).unwrap_or_default();
        let size = u64_at(rest, 8).and_then(|s| usize::try_from(s).ok());
        let header = u32_at(rest, 4).map(|h| h as usize);
        let place = at as u64;
        let (Some(header), Some(size)) = (header, size) else {
            return Err(Problem::truncated(
                place,
                "the fatbin ends inside an entry's header",
            ));
        };
        if header < ENTRY_HEADER {
            return Err(Problem::malformed(
                place + 4,
                format!("an entry header of {header} bytes"),
            ));
        }
        let parts = rest.split_at_checked(header);
        let parts = parts.and_then(|(header, rest)| Some((header, rest.get(..size)?)));
        let Some((head, payload)) = parts else {
            return Err(Problem::truncated(place, "the fatbin ends inside an entry"));
        };
        let fault = || Problem::malformed(place, "an entry's sizes contradict each other");
        let entry = one(head, payload, place).ok_or_else(fault)?;
        let members = match entry.code {
            CodeKind::Other(KIND_GROUP) => members(head, &entry),
            _ => Vec::new(),
        };
        // A group that cannot be read stays one entry of its own kind.
        if members.is_empty() {
            found.push(entry);
        } else {
            found.extend(members);
        }
        at += header + size;
    }
    Ok(found)
}

/// The container at the start of `bytes` with the entries alone that these devices load: machine
/// code of the nearest target, else the newest PTX. `None` if that leaves nothing out, or if some
/// device would find nothing.
pub fn entries_for(bytes: &[u8], devices: &[(u16, u16)]) -> Option<Vec<u8>> {
    let entries = entries(bytes).ok()?;
    let mut kept: Vec<u64> = Vec::new();
    for &device in devices {
        let numbers = |entry: &Packed<'_>, code: CodeKind| {
            let target = entry.target.filter(|_| entry.code == code)?;
            runs_on(target, code, device).then_some((target.major, target.minor))
        };
        let best = |code| {
            let targets = entries.iter().filter_map(|entry| numbers(entry, code));
            Some((code, targets.max()?))
        };
        let (code, target) = best(CodeKind::Elf).or_else(|| best(CodeKind::Ptx))?;
        let chosen = entries
            .iter()
            .filter(|entry| numbers(entry, code) == Some(target));
        kept.extend(chosen.map(|entry| entry.at));
    }
    let header = usize::from(u16_at(bytes, 6)?);
    let end = header.checked_add(usize::try_from(u64_at(bytes, 8)?).ok()?)?;
    // Members of a group are at the same place.
    let mut places: Vec<u64> = entries.iter().map(|entry| entry.at).collect();
    places.dedup();
    let ends = places.iter().skip(1).copied().chain([end as u64]);
    let mut out = bytes.get(..header)?.to_vec();
    for (&start, end) in places.iter().zip(ends) {
        if kept.contains(&start) {
            out.extend_from_slice(range(bytes, start, end)?);
        }
    }
    let length = (out.len() - header) as u64;
    out.get_mut(8..16)?.copy_from_slice(&length.to_le_bytes());
    (!kept.is_empty() && out.len() < end).then_some(out)
}

/// The container at the start of `bytes` with these payloads, not compressed, in the entries at
/// these places.
pub(crate) fn with_payloads(bytes: &[u8], payloads: &HashMap<u64, Vec<u8>>) -> Option<Vec<u8>> {
    let start = usize::from(u16_at(bytes, 6)?);
    let end = start.checked_add(usize::try_from(u64_at(bytes, 8)?).ok()?)?;
    let mut out = bytes.get(..start)?.to_vec();
    let mut at = start;
    while at < end {
        let rest = bytes.get(at..end)?;
        let header = u32_at(rest, 4)? as usize;
        let length = header.checked_add(usize::try_from(u64_at(rest, 8)?).ok()?)?;
        match payloads.get(&(at as u64)) {
            None => out.extend_from_slice(rest.get(..length)?),
            Some(payload) => {
                let place = out.len();
                let padded = payload.len().next_multiple_of(8);
                out.extend_from_slice(rest.get(..header)?);
                let flags = u64_at(rest, 40)? & !(FLAG_LZ4 | FLAG_ZSTD);
                let mut set = |at: usize, value: &[u8]| {
                    let place = out.get_mut(place + at..place + at + value.len())?;
                    place.copy_from_slice(value);
                    Some(())
                };
                set(8, &(padded as u64).to_le_bytes())?;
                // Stored entries leave both sizes of compression 0.
                set(16, &[0; 4])?;
                set(40, &flags.to_le_bytes())?;
                set(56, &[0; 8])?;
                out.extend_from_slice(payload);
                out.resize(place + header + padded, 0);
            }
        }
        at = at.checked_add(length)?;
    }
    let length = (out.len() - start) as u64;
    out.get_mut(8..16)?.copy_from_slice(&length.to_le_bytes());
    Some(out)
}

fn one<'a>(header: &[u8], payload: &'a [u8], at: u64) -> Option<Packed<'a>> {
    let flags = u64_at(header, 40)?;
    let packed = u32_at(header, 16)? as usize;
    let compressed = flags & (FLAG_LZ4 | FLAG_ZSTD) != 0;
    // The payload is padded to 8 bytes; stored entries leave the packed size 0.
    let payload = if compressed && packed != 0 {
        payload.get(..packed)?
    } else {
        payload
    };
    let options_at = u32_at(header, 20)? as usize;
    let has_options = u16_at(header, 0)? == KIND_PTX && options_at != 0;
    let options = || {
        let (at, length) = (u32_at(header, options_at)?, u32_at(header, options_at + 4)?);
        slice(header, at, length)
    };
    Some(Packed {
        code: code(u16_at(header, 0)?),
        target: target(u32_at(header, 28)?, flags),
        address_bits: if flags & FLAG_64_BIT != 0 { 64 } else { 32 },
        version: (u16_at(header, 26)?, u16_at(header, 24)?),
        identifier: slice(header, u32_at(header, 32)?, u32_at(header, 36)?),
        options: if has_options { options() } else { None },
        flags,
        payload,
        original: if compressed {
            u64_at(header, 56)?
        } else {
            payload.len() as u64
        },
        at,
        part: None,
    })
}

/// The members of a group: after the entry's header a count, then 64 bytes each, laid out like an
/// entry's header with the offset in the decompressed bytes in place of the header size.
fn members<'a>(header: &[u8], group: &Packed<'a>) -> Vec<Packed<'a>> {
    let list = u32_at(header, 20).unwrap_or(0) as usize;
    let count = u32_at(header, list).unwrap_or(0) as usize;
    let rows = header.get(list.saturating_add(8)..).unwrap_or_default();
    if list < ENTRY_HEADER || count != rows.len() / ENTRY_HEADER {
        return Vec::new();
    }
    let member = |row: &[u8]| {
        let flags = u64_at(row, 40)?;
        Some(Packed {
            code: code(u16_at(row, 0)?),
            target: target(u32_at(row, 28)?, flags),
            address_bits: if flags & FLAG_64_BIT != 0 { 64 } else { 32 },
            version: (u16_at(row, 26)?, u16_at(row, 24)?),
            identifier: None,
            options: None,
            part: Some((u32_at(row, 4)?.into(), u64_at(row, 8)?)),
            ..group.clone()
        })
    };
    rows.chunks_exact(ENTRY_HEADER).filter_map(member).collect()
}

fn code(kind: u16) -> CodeKind {
    match kind {
        KIND_PTX => CodeKind::Ptx,
        KIND_ELF => CodeKind::Elf,
        KIND_LTO => CodeKind::LtoIr,
        other => CodeKind::Other(other),
    }
}

fn target(number: u32, flags: u64) -> Option<Target> {
    let suffix = match flags & (FLAG_ARCH | FLAG_FAMILY) {
        FLAG_ARCH => Suffix::Arch,
        FLAG_FAMILY => Suffix::Family,
        _ => Suffix::None,
    };
    u16::try_from(number)
        .ok()
        .filter(|&n| n != 0)
        .map(|n| Target::from_number(n, suffix))
}

/// Text inside an entry's header.
fn slice(header: &[u8], at: u32, length: u32) -> Option<String> {
    let end = (at as usize).checked_add(length as usize)?;
    let text = header.get(at as usize..end)?;
    let text = text.split(|&b| b == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Decompresses entries of one image.
pub(crate) struct Unpacker {
    /// Bytes that it may still give.
    left: u64,
    /// The last decompressed group; its members follow each other and share it.
    group: Option<(u64, Result<Vec<u8>, Problem>)>,
}

impl Unpacker {
    /// For an image with these entries.
    pub(crate) fn new(entries: &[Packed<'_>]) -> Self {
        // Members of a group share its bytes, and follow each other.
        let stored = entries.chunk_by(|one, next| one.at == next.at);
        let stored = stored.filter_map(|same| same.first());
        let stored: u64 = stored.map(|entry| entry.payload.len() as u64).sum();
        let most = ALWAYS_DECOMPRESSED.saturating_add(stored.saturating_mul(MAX_EXPANSION));
        Self {
            left: most.min(MAX_DECOMPRESSED_TOTAL),
            group: None,
        }
    }

    /// Counts that many bytes; an error if they are too many.
    fn spend(&mut self, bytes: u64) -> Result<(), Problem> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| {
            Problem::too_large(format!(
                "{bytes} bytes when decompressed, which is too much for an image of this length"
            ))
        })?;
        Ok(())
    }
}

impl<'a> Packed<'a> {
    /// Whether it is compressed together with others.
    pub(crate) fn is_member(&self) -> bool {
        self.part.is_some()
    }

    /// Where it begins in the image.
    pub(crate) fn place(&self) -> u64 {
        self.at
    }

    /// Bytes that its payload takes in the image.
    pub(crate) fn stored_length(&self) -> usize {
        self.payload.len()
    }

    pub(crate) fn compressed(&self) -> bool {
        self.flags & (FLAG_LZ4 | FLAG_ZSTD) != 0
    }

    /// Calls `use_it` with the unpacked payload.
    pub(crate) fn with_payload<T>(
        &self,
        unpacker: &mut Unpacker,
        use_it: impl FnOnce(&[u8]) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let Some((start, size)) = self.part else {
            return use_it(&self.unpack(unpacker)?);
        };
        // Members may overlap, so each counts with what is read of it.
        unpacker.spend(size)?;
        if unpacker.group.as_ref().is_none_or(|(at, _)| *at != self.at) {
            let whole = self.unpack(unpacker).map(Cow::into_owned);
            unpacker.group = Some((self.at, whole));
        }
        let whole = match &unpacker.group {
            Some((_, Ok(whole))) => whole,
            Some((_, Err(problem))) => return Err(problem.clone()),
            None => return Err(Problem::malformed(self.at, "a group without content")),
        };
        let part = start
            .checked_add(size)
            .and_then(|end| range(whole, start, end));
        let outside = || Problem::malformed(self.at, "a group's member is outside of it");
        use_it(part.ok_or_else(outside)?)
    }

    fn unpack(&self, unpacker: &mut Unpacker) -> Result<Cow<'a, [u8]>, Problem> {
        if !self.compressed() {
            return Ok(Cow::Borrowed(self.payload));
        }
        let original = self.original;
        if original > MAX_DECOMPRESSED {
            return Err(Problem::too_large(format!(
                "an entry of {original} bytes when decompressed"
            )));
        }
        let bad = |what: String| Problem::new(ProblemKind::Malformed, Place::Byte(self.at), what);
        let is_lz4 = self.flags & FLAG_LZ4 != 0;
        let most = (self.payload.len() as u64).saturating_mul(MAX_EXPANSION);
        if is_lz4 && original > most.saturating_add(64) {
            return Err(bad(format!(
                "{original} bytes are too many for this LZ4 data"
            )));
        }
        unpacker.spend(original)?;
        let out = if is_lz4 {
            lz4_flex::block::decompress(self.payload, original as usize)
                .map_err(|e| bad(format!("LZ4 data of an entry is damaged: {e}")))?
        } else {
            let mut out = Vec::new();
            let frame = ruzstd::decoding::StreamingDecoder::new(self.payload)
                .map_err(|e| bad(format!("zstd data of an entry is damaged: {e}")))?;
            // Reading one byte more than promised shows that the promise is wrong.
            frame
                .take(original + 1)
                .read_to_end(&mut out)
                .map_err(|e| bad(format!("zstd data of an entry is damaged: {e}")))?;
            out
        };
        if out.len() as u64 != original {
            let got = out.len();
            return Err(bad(format!(
                "an entry gave {got} bytes where its header promises {original}"
            )));
        }
        Ok(Cow::Owned(out))
    }
}
