//! Lets the work of calls run in a chosen order.

use std::time::Duration;

use crate::api::result_name;
use crate::observation::hold::{self, Hold, OrderedWork};
use crate::observation::job::ForcedOrder;
use crate::observation::observer::Observer;
use crate::observe::wait;
use crate::player::Job;

/// The order, and the place of the call in it.
fn place<'o>(job: &Job<'_, '_>, observer: &'o Observer) -> Option<(&'o ForcedOrder, usize)> {
    let order = observer.job.order.as_ref()?;
    let is_call = |&call: &u64| call == job.call.index;
    let place = order.calls.iter().position(is_call)?;
    observer.ordered.failure.is_none().then_some((order, place))
}

/// Before a call: keeps back its work, if other work is to run before it.
pub(super) fn before(job: &mut Job<'_, '_>, observer: &mut Observer) {
    let Some((order, place)) = place(job, observer) else {
        return;
    };
    let is_first = order.calls.iter().min() == Some(&job.call.index);
    if is_first {
        load_libraries(job);
    }
    let runs_now = match order.is_together {
        true => !is_first,
        false => place == observer.ordered.complete,
    };
    if runs_now {
        return;
    }
    let call = job.call.index;
    if job.function.stream.is_none() && !job.traits.is_launch {
        let why = format!("call {call} waits for its work");
        return observer.ordered.fail(why);
    }
    let Some(stream) = job.uncaptured_stream() else {
        let why = format!("a stream is capturing at call {call}");
        return observer.ordered.fail(why);
    };
    match Hold::new(&job.api, stream) {
        Ok(hold) => observer.ordered.hold = Some(hold),
        Err(code) => {
            let why = format!("cuStreamWaitValue32 returned {}", result_name(code));
            observer.ordered.fail(why);
        }
    }
}

/// The driver loads a library into a context at the first use of one of its kernels, and waits for
/// all work then; not for the first launch of a module's kernel (H200, driver 580.159.04).
fn load_libraries(job: &Job<'_, '_>) {
    for kernel in job.handles.live_kernels() {
        // What is refused here is refused at the launch, too.
        let _ = job.api.kernel_function(kernel);
    }
}

/// After a call: lets work run as far as the order allows.
pub(super) fn after(job: &mut Job<'_, '_>, observer: &mut Observer, skipped: Option<&str>) {
    let Some((order, _)) = place(job, observer) else {
        return;
    };
    let (order, call) = (order.clone(), job.call.index);
    if let Some(why) = skipped {
        let why = format!("the replay does not issue call {call}: {why}");
        return observer.ordered.fail(why);
    }
    let Some(stream) = job.uncaptured_stream() else {
        let why = format!("a stream is capturing at call {call}");
        return observer.ordered.fail(why);
    };
    let is_last = order.calls.iter().max() == Some(&call);
    let event = match order.is_together && !is_last {
        true => None,
        false => match job.api.event_after(stream) {
            Ok(event) => Some(event),
            Err(code) => {
                let why = format!("cuEventRecord returned {}", result_name(code));
                return observer.ordered.fail(why);
            }
        },
    };
    let work = &mut observer.ordered;
    let hold = work.hold.take();
    work.pending.insert(call, (hold, event));
    if order.is_together && !is_last {
        return;
    }
    if let Err(why) = run(job, work, &order) {
        work.fail(why);
    }
}

/// Lets the works run that come next in the order and were enqueued, one after the other.
fn run(job: &Job<'_, '_>, work: &mut OrderedWork, order: &ForcedOrder) -> Result<(), String> {
    while let Some(&next) = order.calls.get(work.complete)
        && let Some((hold, event)) = work.pending.remove(&next)
    {
        let is_in_time = hold.is_none_or(Hold::let_go);
        let kept_back = work.pending.values().any(|(hold, _)| hold.is_some());
        let patience: Duration = match kept_back {
            true => hold::PATIENCE,
            false => wait::patience(job),
        };
        let ends = event.is_none_or(|event| job.api.completes_soon(event, patience));
        if !is_in_time || !ends {
            return Err(
                "a call between them, or work that is to run earlier, waits for work that is to \
                 run later"
                    .to_owned(),
            );
        }
        work.complete += 1;
    }
    Ok(())
}
