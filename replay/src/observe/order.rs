//! Lets the work of two calls run in a chosen order.

use crate::api::result_name;
use crate::observation::hold::Hold;
use crate::observation::job::ForcedOrder;
use crate::observation::observer::Observer;
use crate::observe::wait::wait;
use crate::player::Job;

fn wanted(job: &Job<'_, '_>, observer: &Observer) -> Option<ForcedOrder> {
    let order = observer.job.order?;
    let call = job.call.index;
    (call == order.first || call == order.second).then_some(order)
}

/// Before a call: keeps back the work of the first one.
pub(super) fn before(job: &mut Job<'_, '_>, observer: &mut Observer) {
    let Some(order) = wanted(job, observer) else {
        return;
    };
    if !order.is_reversed || job.call.index != order.first {
        return;
    }
    if job.function.stream.is_none() && !job.traits.is_launch {
        observer.not_ordered = Some("the first call waits for its work".to_owned());
        return;
    }
    let Some(stream) = job.uncaptured_stream() else {
        observer.not_ordered = Some("a stream is capturing at the first call".to_owned());
        return;
    };
    match Hold::new(&job.api, stream) {
        Ok(hold) => observer.hold = Some(hold),
        Err(code) => {
            let why = format!("cuStreamWaitValue32 returned {}", result_name(code));
            observer.not_ordered = Some(why);
        }
    }
}

/// After a call: waits for the work of the first one, or lets it run after that of the second one.
pub(super) fn after(job: &mut Job<'_, '_>, observer: &mut Observer, skipped: Option<&str>) {
    let Some(order) = wanted(job, observer) else {
        return;
    };
    if let Some(why) = skipped {
        let call = job.call.index;
        observer.not_ordered = Some(format!("the replay does not issue call {call}: {why}"));
    }
    if !order.is_reversed {
        if job.call.index == order.first
            && let Err(why) = wait(job, observer, "after")
        {
            observer.not_ordered = Some(why);
        }
        return;
    }
    if job.call.index == order.first {
        return;
    }
    let Some(hold) = observer.hold.take() else {
        return;
    };
    let stream = job.uncaptured_stream();
    let is_done = stream.is_some_and(|stream| hold.wait_for(&job.api, stream));
    if !hold.let_go() || !is_done {
        let why = "a call between the two, or the work of the second one, waits for that of the first; so \
                   does the first launch of a kernel, which loads its code: record with \
                   CUDA_MODULE_LOADING=EAGER";
        observer.not_ordered.get_or_insert(why.to_owned());
    }
}
