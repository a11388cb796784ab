//! What sort of event a finding is: misuse, or a call of which an error is part of the plan.

use crate::finding::{Class, Frame};
use crate::plan::Plan;
use cutape_format::Call;
use cutape_registry::{Family, StreamOp};

/// Functions in which a process exits: those of glibc and of the Python interpreter.
const EXITS: [&str; 6] = [
    "exit",
    "__run_exit_handlers",
    "__cxa_finalize",
    "_dl_fini",
    "Py_FinalizeEx",
    "Py_Finalize",
];

/// True if the call only asks. The rule about questions for parameters knows a loop that counts
/// them itself.
fn asks(plan: &Plan) -> bool {
    matches!(
        plan.function.family,
        Family::ProcAddress { .. }
            | Family::ExportTable
            | Family::Pointer(_)
            | Family::Stream(StreamOp::Query)
    )
}

/// Whether a call was made while the process exits.
pub(crate) fn is_exiting(frames: &[Frame]) -> bool {
    let mut native = frames.iter().filter(|frame| !frame.is_python);
    native.any(|frame| EXITS.contains(&frame.function.as_str()))
}

/// The class of a finding about a call. `may_be_late` is false for a rule about pending work, which
/// counts at exit as well.
pub(crate) fn class_of(plan: &Plan, call: &Call<'_>, frames: &[Frame], may_be_late: bool) -> Class {
    if is_exiting(frames) && may_be_late {
        return Class::Teardown;
    }
    // A call that did not return is no answer.
    let refused = call.result().is_some_and(|result| result != 0);
    match refused && asks(plan) {
        true => Class::Probe,
        false => Class::Misuse,
    }
}
