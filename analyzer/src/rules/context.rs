//! Contexts: a reset that others feel, limits that come too late, green contexts, checkpoints of
//! processes.

use cutape_model::{ObjectId, Site};
use cutape_registry::{CheckpointOp, Family, GreenOp, Kind, PrimaryOp, rules};

use super::{Check, Draft, Rule, When, at, code};
use crate::finding::Severity;
use crate::plan::{Plan, Step};

/// For calls that take a context, or create something for a green one.
pub(super) fn rule_of(plan: &Plan) -> Option<(When, Rule)> {
    let applies =
        plan.used.contains(Kind::Context) || matches!(plan.function.family, Family::Green(_));
    applies.then_some((When::Wrong, Rule::Consequence(green)))
}

/// A reset of a primary context that is retained more than once.
pub(super) fn reset_shared(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let device = check.call.argument(0) as i32;
    let retained = check.state.contexts.retained(device);
    let context = check.state.contexts.primary(device);
    let Some(context) = context.filter(|_| retained > 1 && !check.went_wrong()) else {
        return;
    };
    let objects: Vec<ObjectId> = check.state.objects.children(context).collect();
    // A reset of an empty context harms nobody.
    let Some(&last) = objects.first() else { return };
    let message = format!(
        "{} destroys everything in {}, which is retained {retained} times: {}. A reset does not \
         count as a release.",
        check.function(),
        check.label(context),
        match objects.len() {
            1 => format!("{} is alive in it", check.label(last)),
            count => format!(
                "{count} objects are alive in it, the newest of them {}",
                check.label(last),
            ),
        },
    );
    let title = "primary context reset while others hold it";
    drafts.push(
        Draft::new(rules::CONTEXT_PRIMARY_RESET_SHARED, title, message)
            .object(context)
            .object(last)
            .culprit(check.site),
    );
}

/// A use of what a reset by another thread has destroyed is that reset's fault: the users of a
/// runtime share one retain.
pub(super) fn blame_reset(check: &Check<'_, '_>, end: Site, mut draft: Draft) -> Draft {
    let function = cutape_registry::function(end.function);
    let is_reset = function
        .is_some_and(|function| function.family == Family::PrimaryContext(PrimaryOp::Reset));
    let is_of_context = [
        rules::CONTEXT_RESOURCE_AFTER_DESTROY,
        rules::CONTEXT_USE_AFTER_DESTROY,
    ]
    .contains(&draft.rule);
    if !is_reset || !is_of_context || end.thread == check.call.thread {
        return draft;
    }
    draft.rule = rules::CONTEXT_PRIMARY_RESET_SHARED;
    // All that it destroyed makes one finding.
    let is_context = |id: &ObjectId| check.kind(*id) == Some(Kind::Context);
    draft.objects.retain(is_context);
    draft.severity(Severity::Error).culprit(end)
}

/// CUlimit: the sizes that are fixed by the first launch of a kernel that uses them.
const PRINTF_FIFO: u64 = 1;
const MALLOC_HEAP: u64 = 2;

/// A limit that the driver refuses.
pub(super) fn limit(check: &Check<'_, '_>) -> Option<Draft> {
    let limit = check.argument("limit")? & 0xffff_ffff;
    let name = check.enum_name("CUlimit", limit as i64, "limit");
    let title = "limit set where it has no effect";
    match check.call.result()? {
        code::INVALID_VALUE
            if matches!(limit, PRINTF_FIFO | MALLOC_HEAP) && check.state.has_launched =>
        {
            let what = format!(
                "sets {name} after kernels were launched. That size is fixed as soon as a kernel \
                 that uses it is launched"
            );
            Some(check.draft(rules::CONTEXT_LIMIT_ORDER, title, what))
        }
        code::UNSUPPORTED_LIMIT => {
            let what = format!("sets {name}, which this device does not have");
            let draft = check.draft(rules::CONTEXT_LIMIT_ORDER, title, what);
            Some(draft.severity(Severity::Advice))
        }
        _ => None,
    }
}

/// CU_GREEN_CTX_DEFAULT_STREAM, and CU_STREAM_NON_BLOCKING.
const REQUIRED_FLAG: u64 = 1;

/// A refused call about a green context.
pub(super) fn green(check: &Check<'_, '_>) -> Option<Draft> {
    let lacks_flag = check.argument("flags").unwrap_or(REQUIRED_FLAG) & REQUIRED_FLAG == 0;
    let what = match check.family() {
        Family::Green(GreenOp::Create) if lacks_flag => {
            "creates a green context without CU_GREEN_CTX_DEFAULT_STREAM, which is required"
        }
        Family::Green(GreenOp::CreateStream) if lacks_flag => {
            "creates a stream of a green context without CU_STREAM_NON_BLOCKING, which is required"
        }
        _ => return green_as_context(check),
    };
    let title = "green context without a required flag";
    Some(check.draft(rules::CONTEXT_GREEN_MISUSE, title, what))
}

fn green_as_context(check: &Check<'_, '_>) -> Option<Draft> {
    let objects = &check.state.objects;
    let green = check.plan.steps.iter().find_map(|&(position, step)| {
        let (Step::Use(Kind::Context) | Step::Destroy(Kind::Context)) = step else {
            return None;
        };
        let handle = check.call.argument(position);
        let is_context = objects.live(Kind::Context, handle).is_some();
        objects
            .live(Kind::GreenContext, handle)
            .filter(|_| !is_context)
    })?;
    let what = format!(
        "gets {} as a CUcontext. cuCtxFromGreenCtx returns the context to use",
        check.label(green)
    );
    let title = "green context used as a context";
    let draft = check.draft(rules::CONTEXT_GREEN_MISUSE, title, what);
    Some(draft.object(green))
}

/// A step of checkpointing that the process's state does not allow.
pub(super) fn checkpoint(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::ILLEGAL_STATE) {
        return None;
    }
    let process = check.argument("pid")? as i32;
    let (wanted, before) = match check.family() {
        Family::Checkpoint(CheckpointOp::Lock) => ("running", "before any other step"),
        Family::Checkpoint(CheckpointOp::Checkpoint) => ("locked", "after cuCheckpointProcessLock"),
        Family::Checkpoint(CheckpointOp::Restore) => {
            ("checkpointed", "after cuCheckpointProcessCheckpoint")
        }
        _ => (
            "locked",
            "after cuCheckpointProcessLock or cuCheckpointProcessRestore",
        ),
    };
    let last = match check.state.checkpoints.get(&process) {
        Some(&site) => format!("The last call that changed its state is {}.", at(site)),
        None => "No call in this trace has changed its state.".to_owned(),
    };
    let message = format!(
        "{} works on process {process}, which must be {wanted}: it belongs {before}. {last} {}",
        check.function(),
        check.answer(),
    );
    let title = "checkpointing steps out of order";
    let draft = Draft::new(rules::CONTEXT_CHECKPOINT_STATE, title, message);
    Some(draft.subject(process as u64))
}
