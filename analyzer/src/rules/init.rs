//! The driver's lifetime in a process, and the lookup of its functions.

use cutape_format::Call;
use cutape_model::Effect;
use cutape_registry::{ContextOp, Family, PrimaryOp, VirtualMemoryOp, rules};

use super::{Check, Draft, code};
use crate::finding::Severity;

/// Metadata of a trace whose process was forked after its parent had initialized the driver.
const FORKED: &str = "fork.after-init";

/// True if the driver refused the call because it is not initialized. Every function can be refused
/// so.
#[inline]
pub(crate) fn is_uninitialized(call: &Call<'_>) -> bool {
    call.result() == Some(code::NOT_INITIALIZED)
}

/// True for a call that failed or did not return in a forked child, for whatever reason.
pub(super) fn fails_in_forked_child(check: &Check<'_, '_>) -> bool {
    check.went_wrong() && check.context.meta(FORKED).is_some()
}

/// A call that returned, and would have ended or freed something.
fn only_ends(check: &Check<'_, '_>) -> bool {
    let is_end = check.plan.destroys
        || matches!(
            check.family(),
            Family::PrimaryContext(PrimaryOp::Release)
                | Family::VirtualMemory(
                    VirtualMemoryOp::Unmap { .. }
                        | VirtualMemoryOp::Release
                        | VirtualMemoryOp::FreeReservation
                )
        );
    is_end && check.call.leave.is_some()
}

/// A call that the driver refused because it is not initialized.
pub(super) fn not_initialized(check: &Check<'_, '_>) -> Option<Draft> {
    // Every later call fails for the same reason.
    if check.state.init_reported {
        return None;
    }
    if check.context.meta(FORKED).is_some() {
        let what = "is called in a child that was forked after its parent had initialized the \
                    driver. The child has inherited a driver that it cannot use";
        let title = "driver used in a forked child";
        let draft = check.draft(rules::INIT_FORK_CHILD_USE, title, what);
        // Destructors that exit() runs, those of the runtime too: harmless, and one finding.
        return Some(match only_ends(check) {
            true => draft.severity(Severity::Advice).once_in_process(),
            false => draft,
        });
    }
    if check.state.initialized {
        return None;
    }
    let family = check.family();
    // Asking for the current context is how libraries find out whether anyone uses the driver.
    let is_probe = matches!(
        family,
        Family::Init | Family::Context(ContextOp::Current | ContextOp::Device)
    );
    if is_probe {
        return None;
    }
    let effects = &check.plan.effects;
    let mut objects = effects.objects.iter();
    let changes = matches!(family, Family::PrimaryContext(_))
        || effects.stream(check.call).is_some()
        || objects.any(|(_, effect)| matches!(effect, Effect::Create(..) | Effect::Destroy(_)));
    let what = "is called before cuInit has succeeded";
    let title = "call before cuInit";
    let draft = check.draft(rules::INIT_CALL_OUTSIDE_DRIVER_LIFETIME, title, what);
    Some(match changes {
        true => draft,
        false => draft.severity(Severity::Advice),
    })
}

/// A lookup that cannot succeed.
pub(super) fn proc_address(check: &Check<'_, '_>) -> Option<Draft> {
    let Family::ProcAddress { name, address } = check.family() else {
        return None;
    };
    let returned = check.call.out(usize::from(address));
    if !check.went_wrong() && returned.is_none_or(|returned| returned != 0) {
        return None;
    }
    const BOTH: u64 = 3;
    let what = if check.argument("flags")? & BOTH == BOTH
        && check.call.result() == Some(code::INVALID_VALUE)
    {
        "asks for the variant for the legacy default stream and for the per-thread one at once"
            .to_owned()
    } else {
        let name = check.call.string(usize::from(name))?;
        // Some names have a suffix themselves, and are documented so.
        let function = cutape_registry::function(&name)?;
        if function.base == name {
            return None;
        }
        format!(
            "asks for \"{name}\", the name of an exported symbol. It knows \"{}\", and chooses the \
             variant by `cudaVersion` and `flags`",
            function.base
        )
    };
    let answer = match check.call.result() {
        Some(0) => "The driver returned CUDA_SUCCESS and a NULL pointer.".to_owned(),
        _ => check.answer(),
    };
    let message = format!("{} {what}. {answer}", check.function());
    let title = "lookup of a driver function that cannot succeed";
    Some(Draft::new(
        rules::INIT_PROC_ADDRESS_UNUSABLE,
        title,
        message,
    ))
}
