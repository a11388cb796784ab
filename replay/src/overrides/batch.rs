//! Batches of copies; each address may be of host or device memory.

use cutape_registry::Kind;
use cutape_registry::layout::{offset_of, size_of};

use super::copy::{LONGEST, MOST_ROWS, is_host, live_rows, source_bytes};
use crate::buffer::{Buffer, lend, number, set_word, word};
use crate::issue::frame::Frame;
use crate::issue::player::{Job, Played};
use crate::issue::skip::{Skip, skip};

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
#[derive(Default)]
struct Batch {
    /// Host bytes that the batch reads, as recorded, and how many of them have been used.
    source: Vec<u8>,
    used: usize,
    arriving: Vec<(u64, usize)>,
    buffers: Vec<Buffer>,
}

impl Batch {
    fn next(&mut self, length: usize) -> Result<Vec<u8>, Skip> {
        let end = self.used.saturating_add(length);
        let bytes = self
            .source
            .get(self.used..end)
            .ok_or_else(|| Skip::because("the trace holds fewer host bytes than it reads"))?;
        self.used = end;
        Ok(bytes.to_vec())
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
    let mut batch = begin(job, read, total(|host| host.0))?;
    let operands = sources.iter_mut().zip(targets.iter_mut());
    for (index, (&(target_is_host, source_is_host), (source, target))) in
        host.iter().zip(operands).enumerate()
    {
        let length = sizes.get(index).copied().unwrap_or(0);
        *source = if source_is_host {
            let bytes = batch.next(length as usize)?;
            match job.live_host(*source, length) {
                Some(live) => {
                    job.store_host(live, &bytes);
                    live
                }
                None => lend(&mut batch.buffers, Buffer::of(&bytes)),
            }
        } else {
            job.live_address(*source)?
        };
        *target = if target_is_host {
            let live = match job.live_host(*target, length) {
                Some(live) => live,
                None => lend(&mut batch.buffers, Buffer::zeroed(length as usize)),
            };
            batch.arriving.push((live, length as usize));
            live
        } else {
            job.live_address(*target)?
        };
    }
    let presets = [
        (0, lend(&mut batch.buffers, Buffer::of_words(&targets))),
        (1, lend(&mut batch.buffers, Buffer::of_words(&sources))),
    ];
    issue(job, &presets, batch)
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
    let mut batch = begin(job, read, written)?;
    for operation in operations.chunks_exact_mut(OPERATION_BYTES) {
        for (side, is_source) in [(SOURCE, true), (TARGET, false)] {
            operand(job, operation, side, is_source, &mut batch)?;
        }
    }
    let presets = [(1, lend(&mut batch.buffers, Buffer::of(&operations)))];
    issue(job, &presets, batch)
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
    batch: &mut Batch,
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
    let length = volume(operation) as usize;
    let rows = rows(operation, side);
    let pinned = live_rows(job, &rows);
    let bytes = batch.next(if is_source { length } else { 0 })?;
    let pieces = match pinned {
        Some(pieces) => {
            let mut rest = bytes.as_slice();
            for &(row, length) in pieces.iter().filter(|_| is_source) {
                let (part, behind) = rest.split_at(length.min(rest.len()));
                job.store_host(row, part);
                rest = behind;
            }
            if let Some(((row, _), (live, _))) = rows.first().zip(pieces.first()) {
                let shift = live.wrapping_sub(*row);
                set_word(operation, side + OPERAND, recorded.wrapping_add(shift));
            }
            pieces
        }
        None => {
            // Rows without gaps in memory of our own; zero means as wide and as high as the copy.
            let live = lend(
                &mut batch.buffers,
                if is_source {
                    Buffer::of(&bytes)
                } else {
                    Buffer::zeroed(length)
                },
            );
            set_word(operation, side + OPERAND, live);
            set_word(operation, side + ROW_LENGTH, 0);
            set_word(operation, side + LAYER_HEIGHT, 0);
            vec![(live, length)]
        }
    };
    if !is_source {
        batch.arriving.extend(pieces);
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

/// Gets the host bytes of a batch; refuses absurd ones.
fn begin(job: &mut Job<'_, '_>, read: u64, written: u64) -> Result<Batch, Skip> {
    if read > LONGEST || written > LONGEST {
        return skip("more host memory in one batch than replay provides");
    }
    Ok(Batch {
        source: source_bytes(job, read)?,
        ..Batch::default()
    })
}

fn issue(job: &mut Job<'_, '_>, presets: &[(usize, u64)], batch: Batch) -> Played {
    if job.current.is_captured {
        return skip("batches of copies that are captured into a graph are not re-issued");
    }
    let mut frame: Frame = job.marshal(presets)?;
    frame.buffers.extend(batch.buffers);
    let result = job.issue(&frame)?;
    if job.call.succeeded() && result == 0 && !batch.arriving.is_empty() {
        job.player
            .readbacks
            .expect_pieces(job.call, job.function, batch.arriving);
    }
    job.conclude(frame, result)
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
