//! Links: option arrays with logs that live as long as the link state, inputs, the cubin.

use cutape_format::{Call, layout::field};
use cutape_registry::{Function, Kind};

use crate::buffer::Buffer;
use crate::compare::received::read_memory;
use crate::issue::links::LinkState;
use crate::issue::player::{Job, Played, Player};
use crate::issue::skip::skip;
use crate::overrides::{jit, module};
use crate::place::address::{Range, Way};

/// cuLinkCreate.
pub(crate) fn create(Job(player, call, function): Job<'_, '_>) -> Played {
    let positions = jit::Positions {
        count: 0,
        options: 1,
        values: 2,
    };
    let options = jit::options(player, call, positions)?;
    let frame = player.marshal(call, function, &options.presets(positions))?;
    player.reissue(call, function, frame)?;
    if let Some(state) = call.out(3).filter(|_| call.succeeded()) {
        let (_buffers, cubin) = (options.buffers, None);
        player.links.insert(state, LinkState { _buffers, cubin });
    } else {
        // A driver that took the options all the same may write into the logs.
        player.lent.kept.extend(options.buffers);
    }
    Ok(())
}

/// cuLinkAddData.
pub(crate) fn add_data(Job(player, call, function): Job<'_, '_>) -> Played {
    let (data, size) = (2, call.argument(3));
    let mut buffers = Vec::new();
    let address = if call.argument(data) == 0 {
        0
    } else {
        let bytes = module::image_piece(player, call, data, field::POINTEE)?;
        let Some(mut bytes) = bytes.or_else(|| (size == 0).then(Vec::new)) else {
            return skip("its input is not in the trace");
        };
        if (bytes.len() as u64) < size {
            return skip("the trace holds less of its input than it reads");
        }
        // The byte behind the given size matters to a parser of text.
        let behind = module::piece(player, call, data, field::BYTE_BEHIND);
        bytes.extend(behind.unwrap_or_default());
        bytes.extend([0; 16]);
        let buffer = Buffer::of(&bytes);
        let address = buffer.address();
        buffers.push(buffer);
        address
    };
    add(player, call, function, (data, address), 5, buffers)
}

/// cuLinkAddFile.
pub(crate) fn add_file(Job(player, call, function): Job<'_, '_>) -> Played {
    if call.argument(2) == 0 {
        return add(player, call, function, (2, 0), 3, Vec::new());
    }
    let file = module::file(player, call, 2)?;
    let path = (2, file.path.address());
    add(player, call, function, path, 3, Vec::new())
}

fn add<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
    source: (usize, u64),
    count: usize,
    mut buffers: Vec<Buffer>,
) -> Played {
    let positions = jit::Positions {
        count,
        options: count + 1,
        values: count + 2,
    };
    let options = jit::options(player, call, positions)?;
    let [given, values] = options.presets(positions);
    buffers.extend(options.buffers);
    player.reissue_presets(call, function, &[source, given, values], buffers)
}

/// cuLinkComplete: the cubin belongs to the link state; a load of its address gets the live one.
pub(crate) fn complete(Job(player, call, function): Job<'_, '_>) -> Played {
    let mut frame = player.marshal(call, function, &[])?;
    // Another driver or device gives another cubin, so a different size is no divergence.
    let alike = player.machine.compiles_alike();
    let result = player.issue(call, function, &frame)?;
    let (live, size) = (frame.word_at(1), frame.word_at(2));
    if !alike {
        frame.places.retain(|place| place.position != 2);
    }
    player.conclude(call, function, frame, result)?;
    if result != 0 || !call.succeeded() {
        return Ok(());
    }
    let (Some(live), Some(recorded)) = (live.filter(|&live| live != 0), call.out(1)) else {
        return Ok(());
    };
    // No address behind the live cubin is ever made from a recorded one.
    let length = call.out(2).or(size).unwrap_or(0).min(size.unwrap_or(0));
    let expected = call.leave.and_then(|leave| leave.snapshot(1, field::FILE));
    if alike && let (Some(expected), Some(size)) = (expected, size) {
        let bytes = read_memory(live, usize::try_from(size).unwrap_or(0));
        player.compare_bytes(call, function, 1, &expected, &bytes, None);
    }
    let state = call.argument(0);
    player.ranges.insert(Range {
        start: recorded,
        length,
        live,
        kind: Kind::Link,
        way: Way::Plain,
        context: 0,
        owner: Some((Kind::Link, state)),
        made: call.index,
        made_by: function,
        ended: None,
        flags: 0,
    });
    if let Some(link) = player.links.get_mut(&state) {
        link.cubin = Some(recorded);
    }
    Ok(())
}

/// cuLinkDestroy.
pub(crate) fn destroy(Job(player, call, function): Job<'_, '_>) -> Played {
    player.plain(call, function)?;
    if call.succeeded()
        && let Some(link) = player.links.remove(&call.argument(0))
        && let Some(cubin) = link.cubin
    {
        player.ranges.end(cubin, call.index);
    }
    Ok(())
}
