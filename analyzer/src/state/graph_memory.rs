//! Memory that a graph allocates: its addresses are fixed when the node is added, and may be those
//! of freed memory.

use cutape_format::Call;
use cutape_format::layout::field;

use super::State;
use crate::context::TraceContext;
use crate::plan::Plan;

/// cuda.h: CU_GRAPH_NODE_TYPE_MEM_ALLOC.
const ALLOCATION: u64 = 10;

impl State {
    /// Notes the addresses of a node's allocation. The allocation is no object: launches of the
    /// graph create and free it, and they name no address.
    pub(super) fn graph_memory(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        position: usize,
    ) {
        let leave = call.leave;
        let written = leave.and_then(|leave| leave.snapshot(position, field::POINTEE));
        let Some(bytes) = written.and_then(|snapshot| snapshot.bytes.inline()) else {
            return;
        };
        let c_type = plan.function.params[position].c_type;
        let name = c_type.trim_end_matches([' ', '*']);
        let layout = context.signatures().structure(name);
        let member = |member: &str| layout?.number(bytes, member);
        let found = match member("type") {
            None => member("dptr").zip(member("bytesize")),
            Some(ALLOCATION) => member("alloc.dptr").zip(member("alloc.bytesize")),
            Some(_) => None,
        };
        if let Some((address, size)) = found {
            self.model.memory.belongs_to_graph(address, size);
        }
    }
}
