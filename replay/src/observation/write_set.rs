//! Describes what a call or a node has written to device memory.

use std::collections::HashMap;

use cutape_driver::dirty::Page;

use crate::observation::area::{Area, Known};
use crate::observation::job::{ChangedPage, MemoryKind, ObservedMemory, WriteSet};
use crate::observation::memory::{Reader, Region};

/// Adds pages that have changed, the memory that lives, and the contents of recorded ranges. All work
/// must be done.
pub(crate) fn describe(
    reader: &mut Reader<'_>,
    known: &HashMap<Area, Known>,
    (changed, reads): (&[Page], &[(u64, u64)]),
    set: &mut WriteSet,
) {
    let mut areas: Vec<(Area, u64)> = known
        .iter()
        .map(|(&area, known)| (area, known.context))
        .collect();
    areas.sort_by_key(|(area, _)| area.live);
    set.pages = changed
        .iter()
        .filter_map(|page| {
            let after = areas.partition_point(|(area, _)| area.live <= page.address);
            let (area, _) = areas.get(after.checked_sub(1)?)?;
            let offset = page.address - area.live;
            Some(ChangedPage {
                made: area.made,
                offset,
                address: area.recorded + offset,
                length: page.length.into(),
                digest: page.digest,
            })
        })
        .collect();
    set.pages.sort_by_key(|page| page.address);
    let entry = |region: &Region| ObservedMemory {
        kind: MemoryKind::Device,
        ..region.entry()
    };
    let memory = areas.iter().map(|(area, _)| entry(&area.region()));
    set.memory = memory.collect();
    for &(start, end) in reads {
        let has = |area: &Area| {
            area.recorded <= start && end <= area.recorded.saturating_add(area.length)
        };
        let Some((area, context)) = areas.iter().find(|(area, _)| has(area)) else {
            set.left_out
                .push(format!("{start:#x}: no memory lives there"));
            continue;
        };
        let live = |address: u64| area.live + (address - area.recorded);
        let mut region = area.region().part(live(start), live(end));
        region.context = *context;
        match reader.read(&region, |_, _| ()) {
            Ok(after) => set.read.push(ObservedMemory {
                after,
                ..entry(&region)
            }),
            Err(why) => set.left_out.push(format!("{}: {why}", region.describe())),
        }
    }
}
