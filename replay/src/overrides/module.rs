//! Images: from the trace, or from the live link state that made them.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use cutape_format::{Bytes, layout::field};
use cutape_registry::{Family, ImageSource, LinkOp};

use crate::api::buffer::{Buffer, set_word};
use crate::calls::frame::Presets;
use crate::objects::skip::{Skip, skip};
use crate::overrides::jit;
use crate::overrides::library::library_options;
use crate::place::address::Found;
use crate::player::{Job, Played};
use crate::process::memory_file;

/// The parameter behind which a load puts the handle.
const LIBRARY: usize = 0;
/// Where a fatbin wrapper points at its container, and at the list of linked-in images.
const WRAPPER_CONTAINER: usize = 8;
const WRAPPER_LIST: usize = 16;

/// Loads a module or a library.
pub(crate) fn load(job: &mut Job<'_, '_>) -> Played {
    let (Family::ModuleLoad(load) | Family::LibraryLoad(load)) = job.function.family else {
        return job.plain();
    };
    let mut presets = Presets::default();
    let position = usize::from(load.source.position());
    let mut _file = None;
    match load.source {
        _ if job.call.argument(position) == 0 => presets.set(position, 0),
        ImageSource::File(_) => _file = file(job, position, &mut presets)?,
        ImageSource::Data(_) | ImageSource::FatBinary(_) => image(job, position, &mut presets)?,
    }
    let mut image = Vec::new();
    if let Some(options) = load.library_options {
        // With CU_LIBRARY_BINARY_IS_PRESERVED the driver may read the image for as long as the
        // library lives.
        image = std::mem::take(&mut presets.buffers);
        library_options(job, options, &mut presets)?;
    }
    if let Some(options) = load.options {
        jit::options(job, options, &mut presets)?;
    }
    job.reissue_with(presets)?;
    if !image.is_empty()
        && let Some(library) = job.call.out(LIBRARY).filter(|_| job.call.succeeded())
    {
        job.lent.images.insert(library, image);
    }
    Ok(())
}

/// Lets a parameter point at its image.
///
/// An address inside the cubin of a live link state becomes that of the live cubin. After
/// cuLinkDestroy the recorded bytes are used, which the driver found there.
fn image(job: &Job<'_, '_>, position: usize, presets: &mut Presets) -> Result<(), Skip> {
    if let Found::Live(range, offset) = job.ranges.find(job.call.argument(position))
        && matches!(range.made_by.family, Family::Link(LinkOp::Complete { .. }))
    {
        presets.set(position, range.live.wrapping_add(offset));
        return Ok(());
    }
    let mut replacements = job.options.images.iter();
    if let Some((_, other)) = replacements.find(|(call, _)| *call == job.call.index) {
        // A text needs a NUL at its end.
        let padded = [other, &[0; 64][..]].concat();
        presets.point(position, Buffer::of(&padded));
        return Ok(());
    }
    let mut bytes = image_piece(job, position, field::POINTEE)?
        .ok_or_else(|| Skip::because("its image is not in the trace"))?;
    match image_piece(job, position, field::FATBIN)? {
        Some(container) if bytes.len() >= WRAPPER_LIST + 8 => {
            let container = presets.lend(Buffer::of(&container));
            set_word(&mut bytes, WRAPPER_CONTAINER, container);
            set_word(&mut bytes, WRAPPER_LIST, 0);
        }
        // Text ends with NUL, and a parser that runs over the end of damaged bytes finds zeros.
        _ => bytes.extend([0; 64]),
    }
    presets.point(position, Buffer::of(&bytes));
    Ok(())
}

/// As [`Job::piece`]; fails if the file that has the image is missing or changed, because the
/// driver must never get the wrapper without it.
pub(crate) fn image_piece(
    job: &Job<'_, '_>,
    position: usize,
    name: u8,
) -> Result<Option<Vec<u8>>, Skip> {
    if let Some(snapshot) = job.call.snapshot(position, name)
        && let Bytes::InFile(range) = snapshot.bytes
    {
        return match job.trace.file_range(range) {
            Ok(bytes) => Ok(Some(bytes.into_owned())),
            Err(damage) => Err(Skip::because(format!("its image: {}", damage.what))),
        };
    }
    Ok(job.piece(position, name))
}

/// Lets a parameter name a file that only this process sees, while it is open, with the recorded
/// content; a path without a file if the recording had none.
pub(crate) fn file(
    job: &Job<'_, '_>,
    position: usize,
    presets: &mut Presets,
) -> Result<Option<File>, Skip> {
    let Some(content) = job.piece(position, field::FILE) else {
        if job.call.succeeded() {
            return skip("the file that it loads is not in the trace");
        }
        presets.point(position, Buffer::of(b"/nonexistent/cutape-replay\0"));
        return Ok(None);
    };
    let Ok(file) = memory_file::create(c"cutape-image") else {
        return skip("no memory for the file that it loads");
    };
    let mut file = File::from(file);
    file.write_all(&content)
        .map_err(|error| Skip::because(format!("the file that it loads: {error}")))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    presets.point(position, Buffer::of(path.as_bytes()));
    Ok(Some(file))
}
