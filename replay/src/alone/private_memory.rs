//! Memory that no recorded call made, and that a call names.

use std::path::Path;

use cutape_format::Trace;

use crate::place::address::Found;
use crate::plan::private_memory::operands;
use crate::player::Job;

impl Job<'_, '_> {
    /// Notes memory that the call names and that no recorded call made.
    pub(crate) fn find_private_memory(&mut self) {
        let state = &mut **self.player;
        for (start, length) in operands(state.trace, self.call, self.function) {
            let is_known = !matches!(state.ranges.find(start), Found::Unknown)
                || state.ranges.is_in_block(start)
                || state
                    .unavailable
                    .absent
                    .at(&state.ranges, start, 1)
                    .is_some();
            if !is_known {
                let owner = || owner_of(state.trace, self.call.caller);
                state.unavailable.add_private(start, length, owner);
            }
        }
    }
}

/// What memory is called that a caller uses.
fn owner_of(trace: &Trace, caller: u64) -> String {
    let mut mappings = trace.mappings().iter();
    let mapping = mappings.find(|map| (map.start..map.end).contains(&caller));
    let file = mapping.and_then(|mapping| Path::new(&mapping.path).file_name());
    match file {
        Some(file) => format!(
            "private memory of the driver ({})",
            file.to_string_lossy().escape_debug()
        ),
        None => "private memory of the driver".to_owned(),
    }
}
