//! Links: option arrays with logs that live as long as the link state, inputs, the cubin.

use cutape_format::layout::field;
use cutape_registry::Kind;

use crate::buffer::Buffer;
use crate::compare::received::read_memory;
use crate::issue::links::LinkState;
use crate::issue::player::{Job, Played};
use crate::issue::skip::skip;
use crate::overrides::{jit, module};
use crate::place::address::{Range, Way};

/// cuLinkCreate.
pub(crate) fn create(job: &mut Job<'_, '_>) -> Played {
    let positions = jit::Positions {
        count: 0,
        options: 1,
        values: 2,
    };
    let options = jit::options(job, positions)?;
    let frame = job.marshal(&options.presets(positions))?;
    job.reissue(frame)?;
    if let Some(state) = job.call.out(3).filter(|_| job.call.succeeded()) {
        let (_buffers, cubin) = (options.buffers, None);
        job.links.insert(state, LinkState { _buffers, cubin });
    } else {
        // A driver that took the options all the same may write into the logs.
        job.lent.kept.extend(options.buffers);
    }
    Ok(())
}

/// cuLinkAddData.
pub(crate) fn add_data(job: &mut Job<'_, '_>) -> Played {
    let (data, size) = (2, job.call.argument(3));
    let mut buffers = Vec::new();
    let address = if job.call.argument(data) == 0 {
        0
    } else {
        let bytes = module::image_piece(job, data, field::POINTEE)?;
        let Some(mut bytes) = bytes.or_else(|| (size == 0).then(Vec::new)) else {
            return skip("its input is not in the trace");
        };
        if (bytes.len() as u64) < size {
            return skip("the trace holds less of its input than it reads");
        }
        // The byte behind the given size matters to a parser of text.
        let behind = module::piece(job, data, field::BYTE_BEHIND);
        bytes.extend(behind.unwrap_or_default());
        bytes.extend([0; 16]);
        let buffer = Buffer::of(&bytes);
        let address = buffer.address();
        buffers.push(buffer);
        address
    };
    add(job, (data, address), 5, buffers)
}

/// cuLinkAddFile.
pub(crate) fn add_file(job: &mut Job<'_, '_>) -> Played {
    if job.call.argument(2) == 0 {
        return add(job, (2, 0), 3, Vec::new());
    }
    let file = module::file(job, 2)?;
    let path = (2, file.path.address());
    add(job, path, 3, Vec::new())
}

fn add(
    job: &mut Job<'_, '_>,
    source: (usize, u64),
    count: usize,
    mut buffers: Vec<Buffer>,
) -> Played {
    let positions = jit::Positions {
        count,
        options: count + 1,
        values: count + 2,
    };
    let options = jit::options(job, positions)?;
    let [given, values] = options.presets(positions);
    buffers.extend(options.buffers);
    job.reissue_presets(&[source, given, values], buffers)
}

/// cuLinkComplete: the cubin belongs to the link state; a load of its address gets the live one.
pub(crate) fn complete(job: &mut Job<'_, '_>) -> Played {
    let mut frame = job.marshal(&[])?;
    // Another driver or device gives another cubin, so a different size is no divergence.
    let alike = job.machine.compiles_alike();
    let result = job.issue(&frame)?;
    let (live, size) = (frame.word_at(1), frame.word_at(2));
    if !alike {
        frame.places.retain(|place| place.position != 2);
    }
    job.conclude(frame, result)?;
    if result != 0 || !job.call.succeeded() {
        return Ok(());
    }
    let (Some(live), Some(recorded)) = (live.filter(|&live| live != 0), job.call.out(1)) else {
        return Ok(());
    };
    // No address behind the live cubin is ever made from a recorded one.
    let length = job.call.out(2).or(size).unwrap_or(0).min(size.unwrap_or(0));
    let expected = job
        .call
        .leave
        .and_then(|leave| leave.snapshot(1, field::FILE));
    if alike && let (Some(expected), Some(size)) = (expected, size) {
        let bytes = read_memory(live, usize::try_from(size).unwrap_or(0));
        job.compare_bytes(1, &expected, &bytes, None);
    }
    let state = job.call.argument(0);
    job.player.ranges.insert(Range {
        start: recorded,
        length,
        live,
        kind: Kind::Link,
        way: Way::Plain,
        context: 0,
        owner: Some((Kind::Link, state)),
        made: job.call.index,
        made_by: job.function,
        ended: None,
        flags: 0,
    });
    if let Some(link) = job.links.get_mut(&state) {
        link.cubin = Some(recorded);
    }
    Ok(())
}

/// cuLinkDestroy.
pub(crate) fn destroy(job: &mut Job<'_, '_>) -> Played {
    job.plain()?;
    if job.call.succeeded()
        && let Some(link) = job.player.links.remove(&job.call.argument(0))
        && let Some(cubin) = link.cubin
    {
        job.player.ranges.end(cubin, job.call.index);
    }
    Ok(())
}
