//! Waiting for all work around an observed call.

use std::time::Duration;

use crate::api::{Code, NOT_READY, result_name};
use crate::observation::observer::Observer;
use crate::player::Job;

/// How long an observation waits for work, at most.
const LONGEST: Duration = Duration::from_secs(30);

/// Most work is done by then.
const SOON: Duration = Duration::from_millis(5);

/// How long an observation waits for work: less than the time after which a call of a replay hangs.
pub(super) fn patience(job: &Job<'_, '_>) -> Duration {
    LONGEST.min(job.options.watchdog / 2)
}

/// Whether memory can be read, once all work is done.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn check_readable(job: &Job<'_, '_>, observer: &Observer) -> Result<(), String> {
    if job.captures.any_open() {
        return Err("a stream is capturing at that call".into());
    }
    if job.comparer.host_bytes_missing {
        let why = "bytes that the program copied to the device before are not in the trace";
        return Err(format!("{why}: record it with --payloads all"));
    }
    if observer.waits_for_memory {
        return Err("streams may wait for values in memory".into());
    }
    if let Some(call) = observer.endless {
        let work = format!("the work that call {call} waited for");
        return Err(endless(&work, patience(job)));
    }
    Ok(())
}

/// Waits for all work.
pub(super) fn wait(job: &Job<'_, '_>, observer: &mut Observer, when: &str) -> Result<(), String> {
    let current = job.api.current_context().unwrap_or(0);
    let contexts = job.contexts_with_work([], current);
    let patience = patience(job);
    let ends = |&context: &u64| job.api.ends_soon(context, patience);
    if !contexts.iter().all(ends) {
        return Err(give_up(job, observer, when, patience));
    }
    job.wait_for_contexts([]).map_err(|code| failed(when, code))
}

/// Waits for the work of a call. If all earlier work is done, it is the last in the call's stream.
pub(super) fn wait_for_call(job: &mut Job<'_, '_>, observer: &mut Observer) -> Result<(), String> {
    const WHEN: &str = "after";
    let stream = job.uncaptured_stream().filter(|_| observer.is_idle);
    let done = match stream {
        Some(stream) => {
            let patience = patience(job);
            let query = |api: &crate::api::Api| api.query_stream(stream);
            let mut done = job.api.poll(SOON, query);
            if done == Err(NOT_READY) {
                // A kernel may wait for what the CPU does after a later call: those by which XLA
                // delays work give up after a tenth of a second.
                let is_expected = job.expect_coming_writes();
                done = job.api.poll(patience, query);
                if is_expected {
                    job.withdraw_late_writes();
                }
            }
            match done {
                Err(NOT_READY) => Err(give_up(job, observer, WHEN, patience)),
                done => done.map_err(|code| failed(WHEN, code)),
            }
        }
        None => wait(job, observer, WHEN),
    };
    observer.is_idle = done.is_ok();
    done
}

fn give_up(job: &Job<'_, '_>, observer: &mut Observer, when: &str, patience: Duration) -> String {
    observer.endless = Some(job.call.index);
    endless(&format!("the work {when} it"), patience)
}

fn failed(when: &str, code: Code) -> String {
    let name = result_name(code);
    format!("waiting for the work {when} it returned {name}")
}

fn endless(work: &str, patience: Duration) -> String {
    let seconds = patience.as_secs();
    format!("{work} did not end in {seconds} s: a kernel may wait for what the CPU does later")
}
