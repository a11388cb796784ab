//! Memory before the measured calls: saved, compared afterwards, and restored before each
//! iteration.

use cutape_registry::Kind;

use crate::api::{Api, Code, result_name};
use crate::compare::received::read_memory;
use crate::place::address::Range;
use crate::process::pages::available_memory;

/// Bytes that are read and compared at a time.
const CHUNK: usize = 64 << 20;
/// Device memory that stays free for the driver and the measured calls.
const DEVICE_MARGIN: u64 = 256 << 20;

/// Live memory of the recorded program.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub recorded: u64,
    pub live: u64,
    pub length: u64,
    /// Host memory, which this process reads and writes directly. Other memory needs copies.
    pub is_host: bool,
    /// Description for messages.
    pub what: String,
}

impl Region {
    /// `None` if the range has no bytes of its own.
    pub(super) fn of(range: &Range) -> Option<Self> {
        let is_host = match range.kind {
            Kind::Memory | Kind::Global => false,
            Kind::HostMemory | Kind::Registration => true,
            _ => return None,
        };
        (range.length > 0).then(|| Self {
            recorded: range.start,
            live: range.live,
            length: range.length,
            is_host,
            what: range.describe(),
        })
    }

    fn read(&self, api: &Api, offset: usize, bytes: &mut [u8]) -> Result<(), Code> {
        let address = self.live.wrapping_add(offset as u64);
        if self.is_host {
            bytes.copy_from_slice(&read_memory(address, bytes.len()));
            return Ok(());
        }
        api.read_device(address, bytes)
    }
}

/// One region with its saved bytes.
#[derive(Debug)]
pub(super) struct Piece {
    pub region: Region,
    pub bytes: Vec<u8>,
    /// Device memory with the same bytes.
    copy: Option<u64>,
}

/// Saved regions.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub pieces: Vec<Piece>,
    /// Regions that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

impl Snapshot {
    /// Reads all regions into host memory. All work must be done.
    ///
    /// # Errors
    /// If they take more than half of this machine's available memory.
    pub(super) fn take(api: &Api, regions: Vec<Region>) -> Result<Self, String> {
        let lengths = regions.iter().map(|region| region.length);
        let bytes = lengths.fold(0u64, u64::saturating_add);
        if let Some(available) = available_memory()
            && bytes > available / 2
        {
            return Err(format!(
                "{bytes} bytes of memory are live before the measured calls, more than half of the available host memory ({available} bytes): they cannot be saved; use --no-restore to measure without restoring memory"
            ));
        }
        let mut snapshot = Self::default();
        for region in regions {
            let mut bytes = vec![0; region.length as usize];
            let mut read = Ok(());
            for (at, chunk) in bytes.chunks_mut(CHUNK).enumerate() {
                read = read.and_then(|()| region.read(api, at * CHUNK, chunk));
            }
            match read {
                Ok(()) => snapshot.pieces.push(Piece {
                    region,
                    bytes,
                    copy: None,
                }),
                Err(code) => snapshot.unreadable.push(format!(
                    "{}: reading it failed: the driver returned {}",
                    region.what,
                    result_name(code)
                )),
            }
        }
        Ok(snapshot)
    }

    /// Number of saved bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.region.length).sum()
    }

    /// The current bytes of each region that changed. All work must be done.
    pub(super) fn changes(&self, api: &Api) -> Result<Vec<(usize, Vec<u8>)>, String> {
        let mut changes = Vec::new();
        for (number, piece) in self.pieces.iter().enumerate() {
            let mut now = vec![0; piece.bytes.len()];
            for (at, chunk) in now.chunks_mut(CHUNK).enumerate() {
                let read = piece.region.read(api, at * CHUNK, chunk);
                read.map_err(|code| {
                    format!(
                        "{}: reading it failed: the driver returned {}",
                        piece.region.what,
                        result_name(code)
                    )
                })?;
            }
            if now != piece.bytes {
                changes.push((number, now));
            }
        }
        Ok(changes)
    }

    /// Drops all regions but these, and copies their saved bytes to device memory while there is
    /// room.
    pub(super) fn keep_only(&mut self, api: &Api, changed: &[usize]) {
        let mut number = 0;
        self.pieces.retain(|_| {
            number += 1;
            changed.contains(&(number - 1))
        });
        let mut free = api.free_memory().unwrap_or(0).saturating_sub(DEVICE_MARGIN);
        for piece in &mut self.pieces {
            if piece.region.is_host || piece.region.length > free {
                continue;
            }
            let Ok(address) = api.allocate(piece.region.length) else {
                break;
            };
            if api.write_device(address, &piece.bytes).is_err() {
                let _ = api.free(address);
                break;
            }
            free -= piece.region.length;
            piece.copy = Some(address);
        }
    }

    /// Bytes that are restored from host memory because the device has no room for a copy.
    pub(super) fn spilled(&self) -> u64 {
        let from_host = |piece: &&Piece| piece.copy.is_none() && !piece.region.is_host;
        let pieces = self.pieces.iter().filter(from_host);
        pieces.map(|piece| piece.region.length).sum()
    }

    /// Restores the bytes; copies on the device are enqueued on `stream`. All work must be done
    /// before.
    pub(super) fn restore(&self, api: &Api, stream: u64) -> Result<(), String> {
        for Piece {
            region,
            bytes,
            copy,
        } in &self.pieces
        {
            let restored = match copy {
                _ if region.is_host => {
                    // SAFETY: the region is live host memory of this process: calls that would end
                    // it are deferred, or this is the only call between; no work is in progress.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            bytes.as_ptr(),
                            region.live as *mut u8,
                            bytes.len(),
                        )
                    };
                    Ok(())
                }
                Some(copy) => api.copy_device(region.live, *copy, region.length, stream),
                None => api.write_device(region.live, bytes),
            };
            restored.map_err(|code| {
                format!(
                    "{}: restoring its bytes failed: the driver returned {}",
                    region.what,
                    result_name(code)
                )
            })?;
        }
        Ok(())
    }

    /// Frees the copies on the device.
    pub(super) fn release(&mut self, api: &Api) {
        for piece in &mut self.pieces {
            if let Some(copy) = piece.copy.take()
                && let Err(code) = api.free(copy)
            {
                tracing::debug!("a copy at {copy:#x} could not be freed: result {code}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::address::Way;

    #[test]
    fn memory_with_bytes_is_saved() {
        for (kind, length, expected) in [
            (Kind::Memory, 16, Some(false)),
            (Kind::Global, 16, Some(false)),
            (Kind::HostMemory, 16, Some(true)),
            (Kind::Registration, 16, Some(true)),
            (Kind::Reservation, 16, None),
            (Kind::Memory, 0, None),
        ] {
            let range = Range {
                start: 0x1000,
                length,
                live: 0x2000,
                kind,
                way: Way::Plain,
                context: 0,
                owner: None,
                made: 1,
                made_by: cutape_registry::function("cuMemAlloc_v2").unwrap(),
                ended: None,
                flags: 0,
            };
            let region = Region::of(&range);
            assert_eq!(region.map(|region| region.is_host), expected, "{kind:?}");
        }
    }
}
