//! Waiting for all work around an observed call.

use std::time::Duration;

use crate::api::result_name;
use crate::observation::observer::Observer;
use crate::player::Job;

/// How long an observation waits for work: less than the time after which a call of a replay hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for all work.
pub(super) fn wait(job: &Job<'_, '_>, observer: &mut Observer, when: &str) -> Result<(), String> {
    let current = job.api.current_context().unwrap_or(0);
    let contexts = job.contexts_with_work([], current);
    let ends = |&context: &u64| job.api.ends_soon(context, PATIENCE);
    if !contexts.iter().all(ends) {
        observer.endless = Some(job.call.index);
        return Err(endless(&format!("the work {when} it")));
    }
    let waited = job.wait_for_contexts([]);
    waited.map_err(|code| {
        format!(
            "waiting for the work {when} it returned {}",
            result_name(code)
        )
    })
}

pub(super) fn endless(work: &str) -> String {
    let seconds = PATIENCE.as_secs();
    format!("{work} did not end in {seconds} s: a kernel may wait for what the CPU does later")
}
