//! Functions that no recorded call returned: found by module and name.

use std::ffi::CString;

use cutape_format::{Call, layout::OriginNote};
use cutape_registry::Kind;

use crate::api::result_name;
use crate::issue::handles::{Belongs, By, Resolved};
use crate::issue::player::Player;

/// Adds the function of a note to the handles. Calls that need a function that is not found are
/// skipped with a reason.
pub(crate) fn adopt<'t>(player: &mut Player<'t>, call: &Call<'t>, origin: OriginNote, name: &str) {
    let is_kernel = origin.is_kernel != 0;
    let (kind, owner_kind) = if is_kernel {
        (Kind::Kernel, Kind::Library)
    } else {
        (Kind::Function, Kind::Module)
    };
    if matches!(
        player.handles.resolve(kind, origin.handle),
        Resolved::Live(_)
    ) {
        return;
    }
    let Resolved::Live(owner) = player.handles.resolve(owner_kind, origin.owner) else {
        player.report.note(format!(
            "function {name} came from a private table of the driver, and so did what it belongs to: calls that use it are not re-issued"
        ));
        return;
    };
    let Ok(text) = CString::new(name) else {
        return;
    };
    match player.api.function(owner, &text, is_kernel) {
        Ok(live) => {
            let parent = Some((owner_kind, origin.owner));
            let context = if is_kernel {
                0
            } else {
                player.api.current_context().unwrap_or(0)
            };
            let belongs = Belongs { parent, context };
            let by = By::other(call.index, "a private table");
            player
                .handles
                .find((kind, origin.handle), Some(live), belongs, by);
            player.report.note(
                "functions that the program had from private tables of the driver, found by module and name",
            );
        }
        Err(code) => player.report.note(format!(
            "function {name} from a private table of the driver: {} when asked for by name",
            result_name(code)
        )),
    }
}
