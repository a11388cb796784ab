//! What ranks share: each exports again, and hands the new handle to those that import it.
//!
//! Without other ranks these calls are not re-issued.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use cutape_registry::{Family, Shared, SharingOp, Width};

use crate::alone::stand_in;
use crate::api::buffer::Buffer;
use crate::api::result_name;
use crate::calls::frame::Presets;
use crate::objects::skip::{Skip, skip};
use crate::player::{Job, Played};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: u64 = 1;

/// cuIpcGetMemHandle, cuMemImportFromShareableHandle and their like.
pub(crate) fn share(job: &mut Job<'_, '_>) -> Played {
    let Family::Sharing(op) = job.function.family else {
        return job.plain();
    };
    if job.options.alone.is_some() {
        return stand_in::share(job, op);
    }
    match op {
        SharingOp::Export(shared) => export(job, shared),
        SharingOp::Import(shared) => import(job, shared),
        SharingOp::Close => job.plain(),
    }
}

/// Whether a call hands on a file descriptor.
fn is_descriptor(job: &Job<'_, '_>, shared: Shared) -> bool {
    let kind = shared.handle_type.map(usize::from);
    kind.is_some_and(|kind| job.call.argument(kind) & 0xffff_ffff == FILE_DESCRIPTOR)
}

fn export(job: &mut Job<'_, '_>, shared: Shared) -> Played {
    let (frame, result) = job.issued(&[])?;
    let place = frame.place(usize::from(shared.handle)).copied();
    if let (Some(peers), true) = (job.options.peers.clone(), job.call.succeeded()) {
        let call = job.call.index;
        match place.filter(|_| result == 0) {
            Some(place) => {
                let bytes = frame.received(&place);
                let descriptor = match is_descriptor(job, shared) {
                    true => descriptor(&bytes),
                    false => None,
                };
                let raw = descriptor.as_ref().map(AsRawFd::as_raw_fd);
                if peers.is_wanted(call) {
                    peers.offer(call, &bytes, raw);
                }
            }
            None => peers.withhold(
                call,
                &format!("the driver returned {}", result_name(result)),
            ),
        }
    }
    job.conclude(frame, result)
}

/// The descriptor that a call has written, to be closed as the program did.
fn descriptor(bytes: &[u8]) -> Option<OwnedFd> {
    let raw = RawFd::from_le_bytes(*bytes.first_chunk()?);
    // SAFETY: the driver has just opened it for the caller, who owns it.
    (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}

fn import(job: &mut Job<'_, '_>, shared: Shared) -> Played {
    if !job.call.succeeded() {
        return skip("failed to import in the recording; what it was given is not known");
    }
    let Some(peers) = job.options.peers.clone() else {
        return skip(job.function.reason);
    };
    let position = Arc::clone(&job.issuer.position);
    let call = job.call.index;
    let given = job.player.while_lent(|_| peers.take(call, &position));
    let given = given.map_err(|why| Skip::because(format!("imports from another rank: {why}")))?;
    let handle = usize::from(shared.handle);
    let mut presets = Presets::default();
    match &given.descriptor {
        Some(descriptor) if is_descriptor(job, shared) => {
            presets.set(handle, descriptor.as_raw_fd() as u64);
        }
        _ => presets.point(handle, Buffer::of(&given.bytes)),
    }
    let by_value = job.function.params.get(handle).map(|param| param.width);
    if let Some(Width::Memory(length)) = by_value
        && given.bytes.len() != usize::from(length)
    {
        return skip("imports from another rank: the handle has another length");
    }
    let mut frame = job.marshal(&presets.args)?;
    frame.adopt(presets);
    frame.length = given.size;
    job.reissue(frame)
}
