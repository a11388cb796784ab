//! Memory that a graph allocates: its addresses are given out when the node is added, and may be those of freed memory.

use cutape_format::Call;
use cutape_format::layout::field;

use super::State;
use crate::plan::Plan;

/// cuda.h: CU_GRAPH_NODE_TYPE_MEM_ALLOC.
const ALLOCATION: u64 = 10;

impl State {
    /// What was freed where a node's memory lies is forgotten. The memory is no object: it lives in launches, which name no address.
    pub(super) fn graph_memory(&mut self, plan: &Plan, call: &Call<'_>) {
        let written = plan.at("nodeParams").and_then(|position| {
            let capture = call.leave?.capture(position, field::POINTEE)?;
            let c_type = plan.function.params[position].c_type;
            Some((c_type.trim_end_matches([' ', '*']), capture.bytes.inline()?))
        });
        let Some((name, bytes)) = written else {
            return;
        };
        let member = |member: &str| {
            let fields = cutape_registry::structure(name)?.fields;
            let place = fields.iter().find(|field| field.name == member)?;
            let start = place.offset as usize;
            let mut word = [0; 8];
            let slice = bytes.get(start..start + place.size.min(8) as usize)?;
            word[..slice.len()].copy_from_slice(slice);
            Some(u64::from_le_bytes(word))
        };
        let found = match member("type") {
            None => member("dptr").zip(member("bytesize")),
            Some(ALLOCATION) => member("alloc.dptr").zip(member("alloc.bytesize")),
            Some(_) => None,
        };
        if let Some((address, size)) = found {
            self.ranges.clear_dead(address, size);
        }
    }
}
