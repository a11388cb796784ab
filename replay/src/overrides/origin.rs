//! Functions that no recorded call returned: found by module and name.

use std::ffi::CString;

use cutape_format::layout::OriginNote;
use cutape_model::kinds_of_origin;

use crate::api::result_name;
use crate::objects::handles::{Belongs, Resolved, other_site};
use crate::player::Job;

/// Adds the function of a note to the handles. Calls that need a function that is not found are
/// skipped with a reason.
pub(crate) fn adopt(job: &mut Job<'_, '_>, origin: OriginNote, name: &str) {
    let is_kernel = origin.is_kernel != 0;
    let (kind, owner_kind) = kinds_of_origin(&origin);
    if matches!(job.handles.resolve(kind, origin.handle), Resolved::Live(_)) {
        return;
    }
    let Resolved::Live(owner) = job.handles.resolve(owner_kind, origin.owner) else {
        job.report.note(format!(
            "function {name} came from a private table of the driver, and so did what it belongs to: calls that use it are not re-issued"
        ));
        return;
    };
    let Ok(text) = CString::new(name) else {
        return;
    };
    match job.api.function(owner, &text, is_kernel) {
        Ok(live) => {
            let parent = Some((owner_kind, origin.owner));
            let context = if is_kernel {
                0
            } else {
                job.api.current_context().unwrap_or(0)
            };
            let belongs = Belongs { parent, context };
            let site = other_site(job.call.index, "a private table");
            job.handles
                .find((kind, origin.handle), Some(live), belongs, site);
            job.report.note(
                "functions that the program had from private tables of the driver, found by module and name",
            );
        }
        Err(code) => job.report.note(format!(
            "function {name} from a private table of the driver: {} when asked for by name",
            result_name(code)
        )),
    }
}
