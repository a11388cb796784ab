//! Attributes of functions and kernels, and questions about them.

use cutape_registry::{Family, FunctionOp, Kind, rules};

use super::{Check, Deferral, Draft, Rule, When, at, code};
use crate::context::device_attribute;

/// Numbers of CUfunction_attribute.
pub(super) const MAX_THREADS: i32 = 0;
pub(super) const STATIC_SHARED: i32 = 1;
const PTX_VERSION: i32 = 5;
const BINARY_VERSION: i32 = 6;
pub(super) const MAX_DYNAMIC_SHARED: i32 = 8;
const CARVEOUT: i32 = 9;
pub(super) const CLUSTER_MUST_BE_SET: i32 = 10;
pub(super) const CLUSTER_WIDTH: i32 = 11;
const CLUSTER_DEPTH: i32 = 13;
pub(super) const NON_PORTABLE_CLUSTER: i32 = 14;
const SCHEDULING_POLICY: i32 = 15;
/// What the driver reports of cubins that are older than CUDA 3 (Execution Control,
/// cuFuncGetAttribute).
const OLD_PTX: i32 = 0;
const OLD_BINARY: i32 = 10;
/// The last member of CUfunc_cache, and of CUclusterSchedulingPolicy.
const LAST_CACHE: u32 = 3;
const LAST_POLICY: i64 = 2;

/// The rules about attributes and questions.
pub(super) fn rules_of(family: Family) -> &'static [(When, Rule)] {
    use Rule::Consequence;
    use When::{Always, Wrong};
    let (Family::Function(operation) | Family::Kernel(operation)) = family else {
        return &[];
    };
    match operation {
        FunctionOp::SetAttribute => &[(Always, Consequence(set_attribute))],
        FunctionOp::SetCacheConfig => &[(Wrong, Consequence(set_cache))],
        FunctionOp::GetAttribute => &[(Always, Consequence(get_attribute))],
        FunctionOp::Name { .. } => &[(Wrong, Consequence(name))],
        FunctionOp::ParameterInfo => &[(Wrong, Consequence(parameter))],
        FunctionOp::Find { .. }
        | FunctionOp::OfKernel { .. }
        | FunctionOp::List { .. }
        | FunctionOp::Count
        | FunctionOp::SetLaunchState => &[],
    }
}

/// What these checks decide.
pub(super) const DECIDES: super::decides::Decides = &[
    (
        Rule::Consequence(get_attribute),
        &[
            rules::EXEC_ATTRIBUTE_LEGACY_VERSION,
            rules::EXEC_ATTRIBUTE_NEEDS_LOADED_FUNCTION,
        ],
    ),
    (
        Rule::Consequence(name),
        &[rules::EXEC_INTROSPECTION_ARGUMENTS],
    ),
    (
        Rule::Consequence(parameter),
        &[rules::EXEC_INTROSPECTION_ARGUMENTS],
    ),
    (
        Rule::Consequence(set_attribute),
        &[
            rules::EXEC_ATTRIBUTE_CLUSTER_COMPILE_TIME,
            rules::EXEC_ATTRIBUTE_DYNAMIC_SMEM_OVER_LIMIT,
            rules::EXEC_ATTRIBUTE_READ_ONLY,
            rules::EXEC_ATTRIBUTE_VALUE_DOMAIN,
        ],
    ),
    (
        Rule::Consequence(set_cache),
        &[rules::EXEC_ATTRIBUTE_VALUE_DOMAIN],
    ),
];

/// The function or kernel of a call.
fn subject(check: &Check<'_, '_>) -> Option<cutape_model::ObjectId> {
    check
        .live(Kind::Function)
        .or_else(|| check.live(Kind::Kernel))
}

fn label(check: &Check<'_, '_>) -> String {
    subject(check).map_or_else(|| "the function".to_owned(), |id| check.label(id))
}

fn about(check: &Check<'_, '_>, draft: Draft) -> Draft {
    match subject(check) {
        Some(id) => draft.object(id),
        None => draft,
    }
}

fn attribute_name(check: &Check<'_, '_>, attribute: i32) -> String {
    check.enum_name("CUfunction_attribute", attribute.into(), "attribute")
}

/// The device that an attribute is set for.
fn device(check: &Check<'_, '_>) -> Option<i32> {
    match check.argument("dev") {
        Some(device) => Some(device as i32),
        None => {
            let home = subject(check).and_then(|id| check.object(id)?.context);
            let current = || check.state.contexts.current(check.call.thread).object;
            check.state.device_of(home.or_else(current)?)
        }
    }
}

fn set_attribute(check: &Check<'_, '_>) -> Option<Draft> {
    let attribute = check.argument("attrib")? as i32;
    let value = check.argument("value").or_else(|| check.argument("val"))?;
    let value = i64::from(value as i32);
    let name = attribute_name(check, attribute);
    let is_settable = matches!(attribute, MAX_DYNAMIC_SHARED | CARVEOUT)
        || (CLUSTER_WIDTH..=SCHEDULING_POLICY).contains(&attribute);
    let is_known = (0..=SCHEDULING_POLICY).contains(&attribute);
    let result = check.call.result();
    if is_known && !is_settable && result == Some(code::INVALID_VALUE) {
        let what = format!("sets {name} of {}, which can only be read", label(check));
        let title = "read-only function attribute set";
        let draft = check.draft(rules::EXEC_ATTRIBUTE_READ_ONLY, title, what);
        return Some(about(check, draft));
    }
    let is_cluster = (CLUSTER_WIDTH..=CLUSTER_DEPTH).contains(&attribute);
    if is_cluster && check.went_wrong() {
        let thread = check.call.thread;
        let fixed = subject(check).and_then(|id| {
            let state = check.state;
            state.image_fact(id, thread, check.context, |function| {
                function.required_cluster
            })
        });
        // The manual names NOT_PERMITTED for this alone.
        if fixed.is_some() || result == Some(code::NOT_PERMITTED) {
            let fixed = fixed.map_or(String::new(), |size| {
                format!(" to {}", crate::launch::shape(size))
            });
            let what = format!(
                "sets {name} of {} to {value}, but the kernel was compiled with a required \
                 cluster size, which fixes it{fixed}",
                label(check)
            );
            let title = "required cluster size set that is fixed by the image";
            let draft = check.draft(rules::EXEC_ATTRIBUTE_CLUSTER_COMPILE_TIME, title, what);
            return Some(about(check, draft));
        }
    }
    let domain = match attribute {
        CARVEOUT if !(-1..=100).contains(&value) => "a percentage, or -1 for the default",
        NON_PORTABLE_CLUSTER if !(0..=1).contains(&value) => "0 or 1",
        SCHEDULING_POLICY if !(0..=LAST_POLICY).contains(&value) => {
            "a member of CUclusterSchedulingPolicy"
        }
        _ if (is_cluster || attribute == MAX_DYNAMIC_SHARED) && value < 0 => "not negative",
        _ => return too_much_shared(check, attribute, value),
    };
    let what = format!("sets {name} of {} to {value}; it is {domain}", label(check));
    let title = "attribute value out of its range";
    let draft = about(
        check,
        check.draft(rules::EXEC_ATTRIBUTE_VALUE_DOMAIN, title, what),
    );
    Some(match check.went_wrong() {
        true => draft,
        false => draft.severity(crate::finding::Severity::Warning),
    })
}

/// More dynamic shared memory than the device has for a block. A program that goes on to find the
/// largest value that fits does no wrong.
fn too_much_shared(check: &Check<'_, '_>, attribute: i32, value: i64) -> Option<Draft> {
    if attribute != MAX_DYNAMIC_SHARED || check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let device = device(check)?;
    let limit = "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN";
    let limit = device_attribute(check.context, device, limit)?;
    let id = subject(check)?;
    let state = check.state;
    let queried = state.queried_attribute_of(id, STATIC_SHARED, device);
    let of_image = || {
        let thread = check.call.thread;
        let bytes = state.image_fact(id, thread, check.context, |function| {
            Some(function.shared_bytes)
        });
        bytes.and_then(|bytes| i64::try_from(bytes).ok())
    };
    let fixed = queried.or_else(of_image).unwrap_or(0);
    if value.saturating_add(fixed) <= limit {
        return None;
    }
    let what = format!(
        "sets CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of {} to {value}. With {fixed} bytes \
         of static shared memory that is more than {limit} \
         (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN of device {device}); at most {} \
         bytes fit",
        check.label(id),
        limit.saturating_sub(fixed),
    );
    let title = "more dynamic shared memory than a block can have";
    let rule = rules::EXEC_ATTRIBUTE_DYNAMIC_SMEM_OVER_LIMIT;
    let draft = check.draft(rule, title, what).object(id);
    Some(draft.deferred(Deferral::Function(id)))
}

fn set_cache(check: &Check<'_, '_>) -> Option<Draft> {
    let config = check.argument("config")? as u32;
    if config <= LAST_CACHE || check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let what = format!(
        "sets the cache configuration of {} to {config}, which is no member of CUfunc_cache",
        label(check)
    );
    let title = "attribute value out of its range";
    let draft = check.draft(rules::EXEC_ATTRIBUTE_VALUE_DOMAIN, title, what);
    Some(about(check, draft))
}

fn get_attribute(check: &Check<'_, '_>) -> Option<Draft> {
    let attribute = check.argument("attrib")? as i32;
    let result = check.call.result();
    if result == Some(code::FUNCTION_NOT_LOADED) {
        let created = subject(check).and_then(|id| Some(at(check.object(id)?.created)));
        let created = created.map_or(String::new(), |site| format!(", which {site} returned,"));
        let what = format!(
            "asks for {} of {}{created} before its code is loaded. Call cuFuncLoad first, or load \
             modules eagerly",
            attribute_name(check, attribute),
            label(check),
        );
        let title = "attribute of a function that is not loaded";
        let rule = rules::EXEC_ATTRIBUTE_NEEDS_LOADED_FUNCTION;
        return Some(about(check, check.draft(rule, title, what)));
    }
    let value = check
        .plan
        .at("pi")
        .and_then(|position| check.call.out(position))? as i32;
    let is_placeholder = match attribute {
        PTX_VERSION => value == OLD_PTX,
        BINARY_VERSION => value == OLD_BINARY,
        _ => false,
    };
    if !is_placeholder || result != Some(0) {
        return None;
    }
    let message = format!(
        "{} returned {value} as {} of {}. That is no version: the driver reports it for images \
         that tools before CUDA 3 made.",
        check.function(),
        attribute_name(check, attribute),
        label(check),
    );
    let title = "version of an image that has none";
    let draft = Draft::new(rules::EXEC_ATTRIBUTE_LEGACY_VERSION, title, message);
    Some(about(check, draft))
}

fn name(check: &Check<'_, '_>) -> Option<Draft> {
    let (Family::Function(FunctionOp::Name { name, handle })
    | Family::Kernel(FunctionOp::Name { name, handle })) = check.family()
    else {
        return None;
    };
    let positions = [usize::from(name), usize::from(handle)];
    let missing = positions
        .into_iter()
        .find(|&at| check.call.argument(at) == 0)?;
    null_argument(check, missing)
}

fn null_argument(check: &Check<'_, '_>, position: usize) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let what = format!("gets NULL for `{}`", check.parameter(position));
    let title = "question about a function without an argument that it needs";
    Some(check.draft(rules::EXEC_INTROSPECTION_ARGUMENTS, title, what))
}

/// A parameter that the kernel does not have. Asking for one after the other until the driver has
/// no more is the way to count them.
fn parameter(check: &Check<'_, '_>) -> Option<Draft> {
    let offset = check.plan.at("paramOffset")?;
    if let Some(missing) = [0, offset]
        .into_iter()
        .find(|&at| check.call.argument(at) == 0)
    {
        return null_argument(check, missing);
    }
    let (handle, index) = (check.call.argument(0), check.argument("paramIndex")?);
    let asked = check
        .state
        .threads
        .get(check.call.thread as usize)?
        .parameter_asked;
    let is_next = index == 0
        || asked.is_some_and(|(other, last)| other == handle && last.checked_add(1) == Some(index));
    if is_next || check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let thread = check.call.thread;
    let parameters = check.state.parameters_of(handle, thread, check.context)?;
    let count = parameters.len() as u64;
    if index < count {
        return None;
    }
    let what = format!(
        "asks for parameter {index} of {}, whose number of parameters is {count} (indices begin \
         at 0)",
        label(check)
    );
    let title = "query of a parameter that the kernel does not have";
    let draft = check.draft(rules::EXEC_INTROSPECTION_ARGUMENTS, title, what);
    Some(about(check, draft))
}
