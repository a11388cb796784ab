//! Batches of copies; each address may be of host or device memory.

use cutape_registry::Kind;
use cutape_registry::layout::{offset_of, size_of};

use super::copy::{HostRows, LONGEST, MOST_ROWS, host_rows, is_host, source_bytes};
use crate::api::buffer::{Buffer, number, set_word, word};
use crate::calls::frame::Presets;
use crate::compare::payload::Content;
use crate::compare::readbacks::Target;
use crate::objects::skip::{Skip, skip};
use crate::player::{Job, Played};

const OPERATION_BYTES: usize = size_of("CUDA_MEMCPY3D_BATCH_OP");
const SOURCE: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "src.type");
const TARGET: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "dst.type");
const EXTENT: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "extent.width");
// In an operand: address or array, elements between rows, rows between layers.
const OPERAND: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "src.op.ptr.ptr") - SOURCE;
const ROW_LENGTH: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "src.op.ptr.rowLength") - SOURCE;
const LAYER_HEIGHT: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "src.op.ptr.layerHeight") - SOURCE;
/// CU_MEMCPY_OPERAND_TYPE_POINTER and _ARRAY.
const POINTER: u64 = 1;
const ARRAY: u64 = 2;

/// What is put together for one batch.
struct Batch<'t> {
    /// Host bytes that the batch reads, as recorded, and how many of them have been used.
    source: Content<'t>,
    used: usize,
    targets: Vec<Target>,
    presets: Presets,
}

impl<'t> Batch<'t> {
    /// Gets the host bytes of a batch; refuses absurd ones.
    fn new(job: &mut Job<'_, 't>, read: u64, written: u64) -> Result<Self, Skip> {
        if job.current.is_captured {
            return skip("batches of copies that are captured into a graph are not re-issued");
        }
        if read > LONGEST || written > LONGEST {
            return skip("more host memory in one batch than replay provides");
        }
        Ok(Self {
            source: source_bytes(job, read)?,
            used: 0,
            targets: Vec::new(),
            presets: Presets::default(),
        })
    }

    /// Provides the host side of one copy.
    fn host(
        &mut self,
        job: &mut Job<'_, '_>,
        rows: &[(u64, usize)],
        is_source: bool,
    ) -> Result<HostRows, Skip> {
        if !is_source {
            let host = host_rows(job, rows, None, &mut self.presets)?;
            self.targets.push(Target {
                rows: rows.to_vec(),
                pieces: host.pieces(),
            });
            return Ok(host);
        }
        let end = self.used + rows.iter().map(|row| row.1).sum::<usize>();
        let Some(bytes) = self.source.get(self.used..end) else {
            return skip("the trace holds fewer host bytes than it reads");
        };
        self.used = end;
        host_rows(job, rows, Some(bytes), &mut self.presets)
    }

    fn issue(self, job: &mut Job<'_, '_>) -> Played {
        let mut frame = job.marshal(&self.presets.args)?;
        frame.adopt(self.presets);
        let result = job.issue(&frame)?;
        if job.call.succeeded() && result == 0 && !self.targets.is_empty() {
            let readbacks = &mut job.player.readbacks;
            readbacks.expect(job.call, job.function, self.targets);
        }
        job.conclude(frame, result)
    }
}

/// cuMemcpyBatchAsync: arrays of addresses and sizes.
pub(crate) fn lines(job: &mut Job<'_, '_>) -> Played {
    let mut arrays = [Vec::new(), Vec::new(), Vec::new()];
    for (position, array) in arrays.iter_mut().enumerate() {
        let Some(bytes) = job.input(position, 8)? else {
            // NULL: the driver refuses it.
            return job.plain();
        };
        *array = bytes.chunks_exact(8).map(number).collect::<Vec<u64>>();
    }
    let [mut targets, mut sources, sizes] = arrays;
    let host: Vec<(bool, bool)> = targets
        .iter()
        .zip(&sources)
        .map(|(&target, &source)| {
            let by_host = |address, is_source| address != 0 && is_host(job, address, is_source);
            (by_host(target, false), by_host(source, true))
        })
        .collect();
    let total = |side: fn(&(bool, bool)) -> bool| {
        host.iter()
            .zip(&sizes)
            .filter(|(host, _)| side(host))
            .fold(0u64, |sum, (_, &size)| sum.saturating_add(size))
    };
    let read = total(|host| host.1);
    let mut batch = Batch::new(job, read, total(|host| host.0))?;
    let operands = sources.iter_mut().zip(targets.iter_mut());
    for (index, (&(target_is_host, source_is_host), (source, target))) in
        host.iter().zip(operands).enumerate()
    {
        let length = sizes.get(index).copied().unwrap_or(0) as usize;
        for (address, is_host, is_source) in [
            (source, source_is_host, true),
            (target, target_is_host, false),
        ] {
            *address = match is_host {
                true => batch.host(job, &[(*address, length)], is_source)?.start(),
                false => job.live_address(*address)?,
            };
        }
    }
    batch.presets.point(0usize, Buffer::of_words(&targets));
    batch.presets.point(1usize, Buffer::of_words(&sources));
    batch.issue(job)
}

/// cuMemcpy3DBatchAsync: an array of structs.
pub(crate) fn boxes(job: &mut Job<'_, '_>) -> Played {
    let Some(mut operations) = job.input(1, OPERATION_BYTES as u64)? else {
        return job.plain();
    };
    let (mut read, mut written) = (0u64, 0u64);
    for operation in operations.chunks_exact(OPERATION_BYTES) {
        for (side, is_source) in [(SOURCE, true), (TARGET, false)] {
            if host_side(job, operation, side, is_source)? {
                let sum = if is_source { &mut read } else { &mut written };
                *sum = sum.saturating_add(volume(operation));
            }
        }
    }
    let mut batch = Batch::new(job, read, written)?;
    for operation in operations.chunks_exact_mut(OPERATION_BYTES) {
        for (side, is_source) in [(SOURCE, true), (TARGET, false)] {
            operand(job, operation, side, is_source, &mut batch)?;
        }
    }
    batch.presets.point(1usize, Buffer::of(&operations));
    batch.issue(job)
}

fn kind_of(operation: &[u8], side: usize) -> u64 {
    word(operation, side) & 0xffff_ffff
}

/// Width, height, depth.
fn extent(operation: &[u8]) -> (u64, u64, u64) {
    (
        word(operation, EXTENT),
        word(operation, EXTENT + 8),
        word(operation, EXTENT + 16),
    )
}

/// Bytes of a copy between two pointers, whose elements are bytes.
fn volume(operation: &[u8]) -> u64 {
    let (width, height, depth) = extent(operation);
    width.saturating_mul(height).saturating_mul(depth)
}

/// Whether a side is memory of the host.
fn host_side(
    job: &Job<'_, '_>,
    operation: &[u8],
    side: usize,
    is_source: bool,
) -> Result<bool, Skip> {
    let address = word(operation, side + OPERAND);
    let is_pointer = kind_of(operation, side) == POINTER && address != 0;
    if !is_pointer || !is_host(job, address, is_source) {
        return Ok(false);
    }
    let (_, height, depth) = extent(operation);
    if volume(operation) > LONGEST || height.saturating_mul(depth) > MOST_ROWS {
        return skip("more host memory in one copy than replay provides");
    }
    let other = if is_source { TARGET } else { SOURCE };
    if kind_of(operation, other) == ARRAY {
        return skip("the host side of a copy with an array in a batch is not recorded");
    }
    Ok(true)
}

/// Makes one operand live.
fn operand(
    job: &mut Job<'_, '_>,
    operation: &mut [u8],
    side: usize,
    is_source: bool,
    batch: &mut Batch<'_>,
) -> Result<(), Skip> {
    let recorded = word(operation, side + OPERAND);
    match kind_of(operation, side) {
        ARRAY => {
            let live = job.live_handle(Kind::Array, recorded)?;
            set_word(operation, side + OPERAND, live);
            return Ok(());
        }
        POINTER => {}
        _ => return Ok(()),
    }
    if !host_side(job, operation, side, is_source)? {
        let live = job.live_address(recorded)?;
        set_word(operation, side + OPERAND, live);
        return Ok(());
    }
    match batch.host(job, &rows(operation, side), is_source)? {
        HostRows::Placed(_, moved) => {
            set_word(operation, side + OPERAND, recorded.wrapping_add(moved));
        }
        HostRows::Lent(live, _) => {
            // Zero means as wide and as high as the copy.
            set_word(operation, side + OPERAND, live);
            set_word(operation, side + ROW_LENGTH, 0);
            set_word(operation, side + LAYER_HEIGHT, 0);
        }
    }
    Ok(())
}

/// The rows of a side in memory: address, length.
fn rows(operation: &[u8], side: usize) -> Vec<(u64, usize)> {
    let (width, height, depth) = extent(operation);
    let or = |value, otherwise| if value == 0 { otherwise } else { value };
    let pitch = or(word(operation, side + ROW_LENGTH), width);
    let layer = or(word(operation, side + LAYER_HEIGHT), height).wrapping_mul(pitch);
    let base = word(operation, side + OPERAND);
    (0..depth)
        .flat_map(|z| (0..height).map(move |y| (y, z)))
        .map(|(y, z)| {
            let offset = z.wrapping_mul(layer).wrapping_add(y.wrapping_mul(pitch));
            (base.wrapping_add(offset), width as usize)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_pitch_and_layer() {
        let mut operation = [0; OPERATION_BYTES];
        set_word(&mut operation, OPERAND, 1000);
        for (at, value) in [(0, 4), (8, 2), (16, 2)] {
            set_word(&mut operation, EXTENT + at, value);
        }
        assert_eq!(volume(&operation), 16);
        let tight = [(1000, 4), (1004, 4), (1008, 4), (1012, 4)];
        assert_eq!(rows(&operation, SOURCE), tight);
        set_word(&mut operation, ROW_LENGTH, 10);
        set_word(&mut operation, LAYER_HEIGHT, 3);
        let wide = [(1000, 4), (1010, 4), (1030, 4), (1040, 4)];
        assert_eq!(rows(&operation, SOURCE), wide);
    }
}
