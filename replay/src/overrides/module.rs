//! Images: from the trace, or from the live link state that made them.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use cutape_format::{Bytes, layout::field};
use cutape_registry::{Family, Function, LinkOp};

use crate::buffer::{Buffer, copy_common};
use crate::compare::payload::Payload;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::{Skip, skip};
use crate::overrides::jit;
use crate::place::address::Found;

/// Where a fatbin wrapper points at its container, and at the list of linked-in images.
const WRAPPER_CONTAINER: std::ops::Range<usize> = 8..16;
const WRAPPER_LIST: std::ops::Range<usize> = 16..24;

/// An image in memory of the replayer's own.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub address: u64,
    pub buffers: Vec<Buffer>,
}

/// Puts the image of a parameter into memory.
///
/// An address inside the cubin of a live link state becomes that of the live cubin. After
/// cuLinkDestroy the recorded bytes are used, which the driver found there.
pub(crate) fn image(job: &mut Job<'_, '_>, position: usize) -> Result<Image, Skip> {
    let address = job.call.argument(position);
    if address == 0 {
        return Ok(Image::default());
    }
    if let Some(live) = live_cubin(job, address) {
        return Ok(Image {
            address: live,
            buffers: Vec::new(),
        });
    }
    let bytes = image_piece(job, position, field::POINTEE)?
        .ok_or_else(|| Skip::because("its image is not in the trace"))?;
    let mut buffers = Vec::new();
    let image = match image_piece(job, position, field::FATBIN)? {
        Some(container) if bytes.len() >= WRAPPER_LIST.end => {
            let container = Buffer::of(&container);
            let mut wrapper = Buffer::of(&bytes);
            let place = wrapper.bytes_mut().get_mut(WRAPPER_CONTAINER);
            copy_common(
                place.unwrap_or_default(),
                &container.address().to_le_bytes(),
            );
            if let Some(list) = wrapper.bytes_mut().get_mut(WRAPPER_LIST) {
                list.fill(0);
            }
            buffers.push(container);
            wrapper
        }
        // Text ends with NUL, and a parser that runs over the end of damaged bytes finds zeros.
        _ => {
            let mut padded = bytes;
            padded.extend([0; 64]);
            Buffer::of(&padded)
        }
    };
    let address = image.address();
    buffers.push(image);
    Ok(Image { address, buffers })
}

/// The bytes of a piece that was recorded before the call.
pub(crate) fn piece(job: &Job<'_, '_>, position: usize, name: u8) -> Option<Vec<u8>> {
    match job.payload(&job.call.snapshot(position, name)?) {
        Payload::Here(bytes) => Some(bytes.into_owned()),
        Payload::Left(..) | Payload::Unreadable => None,
    }
}

/// As [`piece`]; fails if the file that has the image is missing or changed, because the driver
/// must never get the wrapper without it.
pub(crate) fn image_piece(
    job: &Job<'_, '_>,
    position: usize,
    name: u8,
) -> Result<Option<Vec<u8>>, Skip> {
    if let Some(capture) = job.call.snapshot(position, name)
        && let Bytes::InFile(range) = capture.bytes
    {
        return match job.trace.file_range(range) {
            Ok(bytes) => Ok(Some(bytes.into_owned())),
            Err(damage) => Err(Skip::because(format!("its image: {}", damage.what))),
        };
    }
    Ok(piece(job, position, name))
}

fn live_cubin(player: &Player<'_>, address: u64) -> Option<u64> {
    match player.ranges.find(address) {
        Found::Live(range, offset)
            if matches!(range.made_by.family, Family::Link(LinkOp::Complete { .. })) =>
        {
            Some(range.live.wrapping_add(offset))
        }
        _ => None,
    }
}

fn parameter(function: &Function, names: &[&str]) -> Option<usize> {
    let mut params = function.params.iter();
    params.position(|param| names.contains(&param.name))
}

/// Positions of a load's option array, if it has one.
pub(crate) fn option_positions(function: &Function) -> Option<jit::Positions> {
    Some(jit::Positions {
        count: parameter(function, &["numOptions", "numJitOptions"])?,
        options: parameter(function, &["options", "jitOptions"])?,
        values: parameter(function, &["optionValues", "jitOptionsValues"])?,
    })
}

/// cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary.
pub(crate) fn load_data(job: &mut Job<'_, '_>) -> Played {
    let Some(position) = parameter(job.function, &["image", "fatCubin"]) else {
        return job.plain();
    };
    let image = image(job, position)?;
    let mut presets = vec![(position, image.address)];
    let mut buffers = image.buffers;
    if let Some(positions) = option_positions(job.function) {
        let options = jit::options(job, positions)?;
        presets.extend(options.presets(positions));
        buffers.extend(options.buffers);
    }
    job.reissue_presets(&presets, buffers)
}

/// A file that only this process sees, with the recorded content.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    _file: Option<std::fs::File>,
    pub path: Buffer,
}

/// A file with the recorded content of the one that a call names; a path without a file if the
/// recording had none.
pub(crate) fn file(job: &Job<'_, '_>, position: usize) -> Result<MemoryFile, Skip> {
    let Some(content) = piece(job, position, field::FILE) else {
        if job.call.succeeded() {
            return skip("the file that it loads is not in the trace");
        }
        return Ok(MemoryFile {
            _file: None,
            path: Buffer::of(b"/nonexistent/cutape-replay\0"),
        });
    };
    // SAFETY: the name is a C string; the descriptor is owned by the file from here on.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"cutape-image".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return skip("no memory for the file that it loads");
        }
        std::fs::File::from_raw_fd(descriptor)
    };
    file.write_all(&content)
        .map_err(|error| Skip::because(format!("the file that it loads: {error}")))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    Ok(MemoryFile {
        _file: Some(file),
        path: Buffer::of(path.as_bytes()),
    })
}

/// cuModuleLoad.
pub(crate) fn load_file(job: &mut Job<'_, '_>) -> Played {
    if job.call.argument(1) == 0 {
        return job.plain();
    }
    let file = file(job, 1)?;
    job.reissue_with(&[(1, file.path.bytes())])
}
