//! Links: option arrays with logs that live as long as the link state, inputs, the cubin.

use cutape_format::layout::field;
use cutape_registry::{Family, Kind, LinkOp, OptionArray};

use crate::api::buffer::Buffer;
use crate::calls::frame::Presets;
use crate::objects::skip::{Skip, skip};
use crate::overrides::{jit, module};
use crate::player::{Job, Played};

/// The operations of a link state.
pub(crate) fn link(job: &mut Job<'_, '_>) -> Played {
    let Family::Link(operation) = job.function.family else {
        return job.plain();
    };
    match operation {
        LinkOp::Create { options, output } => create(job, options, usize::from(output)),
        LinkOp::AddData {
            data,
            size,
            options,
        } => {
            let mut presets = input(job, usize::from(data), usize::from(size))?;
            jit::options(job, options, &mut presets)?;
            job.reissue_with(presets)
        }
        LinkOp::AddFile { path, options } => {
            let (mut presets, path) = (Presets::default(), usize::from(path));
            let _file = match job.call.argument(path) {
                0 => None,
                _ => module::file(job, path, &mut presets)?,
            };
            jit::options(job, options, &mut presets)?;
            job.reissue_with(presets)
        }
        LinkOp::Complete { cubin, size } => complete(job, usize::from(cubin), usize::from(size)),
        LinkOp::Destroy => {
            job.plain()?;
            if job.call.succeeded() {
                let state = job.call.argument(0);
                job.links.remove(&state);
            }
            Ok(())
        }
    }
}

fn create(job: &mut Job<'_, '_>, array: OptionArray, output: usize) -> Played {
    let mut presets = Presets::default();
    jit::options(job, array, &mut presets)?;
    let frame = job.marshal(&presets.args)?;
    job.reissue(frame)?;
    match job.call.out(output).filter(|_| job.call.succeeded()) {
        Some(state) => drop(job.links.insert(state, presets.buffers)),
        // A driver that took the options all the same may write into the logs.
        None => job.lent.kept.extend(presets.buffers),
    }
    Ok(())
}

/// What cuLinkAddData links.
fn input(job: &Job<'_, '_>, data: usize, size: usize) -> Result<Presets, Skip> {
    let mut presets = Presets::default();
    if job.call.argument(data) == 0 {
        return Ok(presets);
    }
    let size = job.call.argument(size);
    let bytes = module::image_piece(job, data, field::POINTEE)?;
    let Some(mut bytes) = bytes.or_else(|| (size == 0).then(Vec::new)) else {
        return skip("its input is not in the trace");
    };
    if (bytes.len() as u64) < size {
        return skip("the trace holds less of its input than it reads");
    }
    // The byte behind the given size matters to a parser of text.
    bytes.extend(job.piece(data, field::BYTE_BEHIND).unwrap_or_default());
    bytes.extend([0; 16]);
    presets.point(data, Buffer::of(&bytes));
    Ok(presets)
}

/// cuLinkComplete: the cubin belongs to the link state; a load of its address gets the live one.
fn complete(job: &mut Job<'_, '_>, cubin: usize, size: usize) -> Played {
    let (mut frame, result) = job.issued(&[])?;
    // Another driver or device gives another cubin, so a different size is no divergence.
    let alike = job.machine.compiles_alike();
    let (live, live_size) = (frame.word_at(cubin), frame.word_at(size).unwrap_or(0));
    if !alike {
        frame.remove_place(size);
    }
    job.conclude(frame, result)?;
    if result != 0 || !job.call.succeeded() {
        return Ok(());
    }
    let (Some(live), Some(recorded)) = (live.filter(|&live| live != 0), job.call.out(cubin)) else {
        return Ok(());
    };
    if alike && let Some(expected) = job.returned(cubin, field::FILE) {
        let pieces = [(live, usize::try_from(live_size).unwrap_or(0))];
        job.compare_bytes(cubin, &expected, &pieces, None);
    }
    // No address behind the live cubin is ever made from a recorded one.
    let length = job.call.out(size).unwrap_or(live_size).min(live_size);
    let mut range = job.range(Kind::Link, recorded, length, live);
    range.owner = Some((Kind::Link, job.call.argument(0)));
    job.ranges.insert(range);
    Ok(())
}
