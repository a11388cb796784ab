//! Obeys a session at the calls at which it stops.

use std::mem::take;

use crate::api::result_name;
use crate::observation::job::{WatchedRange, Writer};
use crate::observation::observer::Observer;
use crate::observation::session::{Act, Done, Reply, Served, Stop};
use crate::observation::watch::Watch;
use crate::observe::wait::{check_readable, wait};
use crate::observe::watch::{find, place};
use crate::player::Job;

/// Before or after a call: does what the session asks for at this stop, and waits for the next
/// request.
pub(super) fn serve(job: &mut Job<'_, '_>, observer: &mut Observer, is_after: bool) {
    let Some(mut session) = observer.session.take() else {
        return;
    };
    let at = Stop {
        call: job.call.index,
        is_after,
    };
    while is_due(&session, observer, at) {
        if let Some(request) = session.request.take() {
            let done = act(job, observer, request.act);
            let divergences = job.report.divergence_count;
            session.answer(&Reply {
                at,
                divergences,
                done,
            });
        }
        session.wait(&job.issuer.position);
        if let Some(request) = &session.request
            && let Act::Watch { ranges, .. } = &request.act
        {
            watch(job, observer, ranges);
        }
    }
    observer.session = Some(session);
}

/// Whether something is to be done here.
fn is_due(session: &Served, observer: &Observer, at: Stop) -> bool {
    let Some(request) = &session.request else {
        return true;
    };
    let is_first = matches!(request.act, Act::Watch { is_first: true, .. });
    request.stop <= at || is_first && observer.watch.last_change().is_some()
}

fn act(job: &Job<'_, '_>, observer: &mut Observer, act: Act) -> Result<Done, String> {
    let (address, length) = match &act {
        Act::Read { address, length } => (*address, *length),
        Act::Write { address, bytes } => (*address, bytes.len() as u64),
        Act::Watch { .. } => {
            let (seen, left_out) = take(&mut observer.watch).finish();
            return Ok(Done::Watched(seen, left_out));
        }
    };
    check_readable(job, observer)?;
    wait(job, observer, "before")?;
    let range = WatchedRange {
        address,
        length,
        until: None,
    };
    let found = find(job, observer, range);
    let (part, _) = found.ok_or_else(|| format!("no memory lies at {address:#x} there"))?;
    let failed = |code| {
        format!(
            "{}: the driver returned {}",
            part.describe(),
            result_name(code)
        )
    };
    let Act::Write { bytes, .. } = act else {
        let mut bytes = Vec::new();
        part.read(&job.api, 0, &mut bytes, part.length as usize)
            .map_err(failed)?;
        return Ok(Done::Read(bytes));
    };
    if part.length < length {
        let has = part.length;
        return Err(format!("the memory at {address:#x} has {has} bytes"));
    }
    part.write(&job.api, &bytes).map_err(failed)?;
    Ok(Done::Written)
}

/// Begins to watch ranges, with what they hold now.
fn watch(job: &Job<'_, '_>, observer: &mut Observer, ranges: &[WatchedRange]) {
    const KEPT: usize = 1;
    observer.watch = Watch::new(ranges, KEPT, None);
    let call = job.call.index;
    place(job, observer);
    if check_readable(job, observer).is_ok() && wait(job, observer, "before").is_ok() {
        observer.watch.look(&job.api, call, &Writer::Call, false);
    }
    observer.watch.forget();
}
