//! The memory that is live in a replay.

use cutape_registry::Kind;

use crate::observation::memory::Region;
use crate::place::mapped::Mapped;
use crate::player::Player;

/// All live memory, sorted by live address. Mapped memory in one piece is one region.
pub(super) fn all_live(player: &Player<'_>, mapped: &Mapped) -> Vec<Region> {
    let mut regions: Vec<Region> = player.ranges.all_live().filter_map(Region::of).collect();
    for region in &mut regions {
        if !player.handles.is_taken(Kind::Context, region.context) {
            region.context = 0;
        }
    }
    let mut last: Option<usize> = None;
    for (recorded, length, made) in mapped.pieces() {
        let live = player.ranges.translate(recorded);
        if let Some(before) = last.and_then(|last| regions.get_mut(last))
            && (before.recorded + before.length, before.end()) == (recorded, live)
        {
            before.length += length;
            continue;
        }
        last = Some(regions.len());
        regions.push(Region::mapped((recorded, live), length, made));
    }
    regions.sort_by_key(|region| region.live);
    regions
}
