//! Attributes of launches, streams and kernel nodes: what they may be set on, their events, and
//! what they promise.

use cutape_registry::{AttributeTarget, Family, GraphOp, Kind, LaunchAttribute, StreamOp, rules};

use super::{Check, Refused, window};
use crate::finding::Severity;
use crate::launch::{Launch, LaunchAttributes, pointee, u32_at, u64_at};
use crate::rules::{Draft, at, code};
use crate::state::launches::EventTrigger;

/// Flag of an event in an attribute (cuda.h: CU_EVENT_RECORD_EXTERNAL).
const RECORD_EXTERNAL: u32 = 1;
/// Where an event's flags are in the value of an attribute.
const EVENT_FLAGS: usize =
    cutape_registry::layout::offset_of("CUlaunchAttributeValue", "programmaticEvent.flags");

fn name(check: &Check<'_, '_>, attribute: u32) -> String {
    check.enum_name("CUlaunchAttributeID", attribute.into(), "attribute")
}

/// A number of attributes without the attributes.
pub(super) fn uncounted(refused: &Refused<'_, '_>) -> Option<Draft> {
    let attributes = refused.launch.attributes;
    if attributes.address != 0 || attributes.count == 0 {
        return None;
    }
    let what = format!(
        "launches {} with numAttrs = {} and attrs = NULL. attrs must point to that many attributes",
        refused.label(),
        attributes.count,
    );
    let title = "a number of launch attributes without the attributes";
    Some(refused.draft(rules::LAUNCH_CONFIG_ATTRIBUTES_NULL, title, what))
}

/// Why the driver did not take the attributes of a launch.
pub(super) fn refused(refused: &Refused<'_, '_>) -> Option<Draft> {
    let check = refused.check;
    let mut attributes = refused.launch.attributes.iter();
    attributes.find_map(|(id, value)| {
        let draft = one(check, AttributeTarget::Launch, id, value, refused)?;
        Some(match refused.function {
            Some(function) => draft.object(function),
            None => draft,
        })
    })
}

fn one(
    check: &Check<'_, '_>,
    target: AttributeTarget,
    id: u32,
    value: &[u8],
    refused: &Refused<'_, '_>,
) -> Option<Draft> {
    match LaunchAttribute::of(id)? {
        LaunchAttribute::ProgrammaticEvent | LaunchAttribute::CompletionEvent => {
            event(check, id, value)
        }
        LaunchAttribute::DeviceUpdatableNode => updatable(check, value, refused),
        LaunchAttribute::SharedMemoryCarveout => carveout(check, value),
        LaunchAttribute::AccessPolicyWindow => {
            window::check(check, value, refused.device.unwrap_or(0))
        }
        attribute => misplaced(check, attribute, target),
    }
}

/// An event of the wrong kind.
fn event(check: &Check<'_, '_>, id: u32, value: &[u8]) -> Option<Draft> {
    let attribute = name(check, id);
    if u32_at(value, EVENT_FLAGS)? & RECORD_EXTERNAL != 0 {
        let what = format!(
            "gets {attribute} with the flag CU_EVENT_RECORD_EXTERNAL, which these events do not take"
        );
        let title = "event of a launch attribute with a flag that it does not take";
        return Some(check.draft(rules::LAUNCH_CONFIG_EVENT_KIND, title, what));
    }
    let event = check.state.objects.live(Kind::Event, u64_at(value, 0)?)?;
    let data = check.state.event(event)?;
    let label = check.label(event);
    let created = at(check.object(event)?.created);
    if data.interprocess {
        let what = format!(
            "gets {label} in {attribute}, but {created} made it an event of several processes, \
             which these attributes do not take"
        );
        let title = "interprocess event in a launch attribute";
        let draft = check.draft(rules::LAUNCH_CONFIG_EVENT_KIND, title, what);
        return Some(draft.object(event));
    }
    if !data.timing {
        return None;
    }
    let what = format!(
        "gets {label} in {attribute}, but {created} made it without CU_EVENT_DISABLE_TIMING, and \
         these attributes take only events without timing"
    );
    let title = "event with timing in a launch attribute";
    let draft = check.draft(rules::LAUNCH_CONFIG_EVENT_TIMING_ENABLED, title, what);
    Some(draft.object(event))
}

/// A node that the device may update, outside a capture, or with a value that is no answer.
fn updatable(check: &Check<'_, '_>, value: &[u8], refused: &Refused<'_, '_>) -> Option<Draft> {
    let value = u32_at(value, 0)?;
    if value > 1 {
        return Some(bad_updatable(check, value));
    }
    let is_capturing = !check.state.captures.is_empty();
    if value == 0 || is_capturing || check.call.result() != Some(code::NOT_SUPPORTED) {
        return None;
    }
    let what = format!(
        "launches {} with CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE in a stream that does \
         not capture. Only a captured launch becomes a node, which the device can update",
        refused.label()
    );
    let title = "attribute for captured launches outside a capture";
    let rule = rules::LAUNCH_CONFIG_DEVICE_UPDATABLE_NOT_CAPTURING;
    Some(check.draft(rule, title, what))
}

fn bad_updatable(check: &Check<'_, '_>, value: u32) -> Draft {
    let what = format!("gets deviceUpdatable = {value}; it is 0 or 1");
    let title = "deviceUpdatable that is neither 0 nor 1";
    check.draft(rules::LAUNCH_CONFIG_DEVICE_UPDATABLE_VALUE, title, what)
}

fn carveout(check: &Check<'_, '_>, value: &[u8]) -> Option<Draft> {
    let percent = u32_at(value, 0)? as i32;
    if (-1..=100).contains(&percent) {
        return None;
    }
    let what = format!(
        "gets CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = {percent}; it is a percentage, \
         or -1 for the default"
    );
    let title = "attribute value out of its range";
    Some(check.draft(rules::EXEC_ATTRIBUTE_VALUE_DOMAIN, title, what))
}

/// An attribute of something else.
fn misplaced(
    check: &Check<'_, '_>,
    attribute: LaunchAttribute,
    target: AttributeTarget,
) -> Option<Draft> {
    if attribute.is_valid_for(target) || check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    use AttributeTarget::{Launch, Node, Stream};
    let targets = [Launch, Stream, Node].into_iter();
    let valid = targets.filter(|target| attribute.is_valid_for(*target));
    let valid: Vec<&str> = valid.map(AttributeTarget::name).collect();
    let what = format!(
        "sets {} on {}; it can be set on {}",
        name(check, attribute as u32),
        target.name(),
        valid.join(" or "),
    );
    let title = "attribute set on something that does not have it";
    Some(check.draft(rules::LAUNCH_CONFIG_ATTRIBUTE_NOT_FOR_LAUNCH, title, what))
}

/// An attribute of a stream.
pub(super) fn on_stream(check: &Check<'_, '_>) -> Option<Draft> {
    let Family::Stream(StreamOp::SetAttribute { attribute, value }) = check.family() else {
        return None;
    };
    let attribute = LaunchAttribute::of(check.call.argument(attribute.into()) as u32)?;
    if attribute == LaunchAttribute::AccessPolicyWindow {
        let stream = check.plan.handle_of(check.call, Kind::Stream);
        let device = check.state.device_for(check.call, stream).unwrap_or(0);
        return window::check(check, pointee(check.call, value.into())?, device);
    }
    misplaced(check, attribute, AttributeTarget::Stream)
}

/// An attribute of a kernel node that the driver did not take.
pub(super) fn on_node(check: &Check<'_, '_>) -> Option<Draft> {
    let Family::Graph(GraphOp::SetKernelAttribute { attribute, value }) = check.family() else {
        return None;
    };
    let attribute = LaunchAttribute::of(check.call.argument(attribute.into()) as u32)?;
    let bytes = pointee(check.call, value.into())?;
    match attribute {
        LaunchAttribute::AccessPolicyWindow => {
            let device = check.state.device_for(check.call, None).unwrap_or(0);
            window::check(check, bytes, device)
        }
        LaunchAttribute::DeviceUpdatableNode => {
            let given = u32_at(bytes, 0)?;
            if given > 1 {
                return Some(bad_updatable(check, given));
            }
            let node = check.live(Kind::GraphNode).filter(|_| given == 0)?;
            let site = check.state.launches.updatable.get(&node)?;
            let what = format!(
                "sets deviceUpdatable of {} to 0, after {} set it to 1. Once set, it cannot be \
                 cleared",
                check.label(node),
                at(*site),
            );
            let title = "deviceUpdatable of a graph node cleared";
            let rule = rules::LAUNCH_CONFIG_DEVICE_UPDATABLE_VALUE;
            Some(check.draft(rule, title, what).object(node))
        }
        attribute => misplaced(check, attribute, AttributeTarget::Node),
    }
}

/// Attributes that the driver takes, but that do not do what the program may expect.
pub(super) fn passed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    use LaunchAttribute::{AccessPolicyWindow, ProgrammaticSerialization};
    let Some(config) = check.plan.config.filter(|_| drafts.is_empty()) else {
        return;
    };
    let passed = LaunchAttributes::of(check.call, config);
    let mut numbers = passed.iter().map(|(id, _)| id);
    let matters = |id| [AccessPolicyWindow as u32, ProgrammaticSerialization as u32].contains(&id);
    if check.went_wrong() || !numbers.any(matters) {
        return;
    }
    for launch in Launch::of(check.family(), check.call) {
        let launch = Refused::new(check, &launch);
        let attributes = launch.launch.attributes;
        let window = attributes.value(LaunchAttribute::AccessPolicyWindow);
        let window =
            window.and_then(|value| window::check(check, value, launch.device.unwrap_or(0)));
        let found = window.or_else(|| unsynchronised(&launch));
        drafts.extend(found);
    }
}

/// A launch without the attribute that its kernel needs: `need`, which passes an array of
/// attributes with a count of zero.
pub(super) fn unread(launch: &Refused<'_, '_>, need: &str) -> Option<Draft> {
    let attributes = launch.launch.attributes;
    if attributes.count != 0 || attributes.address == 0 {
        return None;
    }
    let what = format!(
        "launches {} with attrs = {:#x} and numAttrs = 0, so the driver does not look at the \
         attributes; but the kernel needs {need}. The number of attributes is probably missing",
        launch.label(),
        attributes.address,
    );
    let title = "launch attributes with a count of zero";
    Some(launch.draft(rules::LAUNCH_CONFIG_ATTRIBUTES_DANGLING, title, what))
}

/// A kernel that may overlap the one before it, whose memory it uses without a wait.
fn unsynchronised(launch: &Refused<'_, '_>) -> Option<Draft> {
    let check = launch.check;
    let (before, shared) = check.state.overlapped_kernel(check.plan, check.call)?;
    let pair = (before.site.index, check.call.index);
    if let Some(evidence) = check.state.proven.get(&pair) {
        let what = format!(
            "launches {} with programmatic stream serialization after {} ({}), which lets it start \
             early (griddepcontrol.launch_dependents). Both get {}. Replayed with the attribute and \
             without it, {evidence}",
            launch.label(),
            check.label(before.function),
            at(before.site),
            check.label(shared),
        );
        let title = "kernel that overlaps its predecessor without a wait";
        let rule = rules::LAUNCH_CONFIG_SERIALIZATION_NO_GRID_SYNC;
        let draft = launch.draft(rule, title, what).proven();
        return Some(draft.object(before.function).object(shared));
    }
    let waits_for_nothing = check
        .state
        .waits_for_nothing(launch.function?, check.context);
    if waits_for_nothing != Some(true) {
        return None;
    }
    let what = format!(
        "launches {} with programmatic stream serialization after {} ({}), which lets it start \
         early (griddepcontrol.launch_dependents). Both get {}, and no code in the image of the second \
         kernel waits for the first (griddepcontrol.wait). Assumed: one of the two writes that memory",
        launch.label(),
        check.label(before.function),
        at(before.site),
        check.label(shared),
    );
    let title = "kernel that may overlap its predecessor without a wait";
    let rule = rules::LAUNCH_CONFIG_SERIALIZATION_NO_GRID_SYNC;
    let draft = launch.draft(rule, title, what).severity(Severity::Advice);
    Some(draft.object(before.function).object(shared))
}

/// A host that waits for an event which kernels trigger for each other.
pub(super) fn host_waits(check: &Check<'_, '_>) -> Option<Draft> {
    let event = check.live(Kind::Event)?;
    let launched = check.state.launches.events.get(&event)?;
    if launched.trigger != EventTrigger::Programmatic {
        return None;
    }
    let what = format!(
        "waits on the host for {}, which {} records by CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT. The \
         host may see such an event only long after its trigger; it is meant for dependencies \
         between kernels",
        check.label(event),
        at(launched.site),
    );
    let message = format!("{} {what}.", check.function());
    let title = "host waits for a programmatic event";
    let rule = rules::LAUNCH_CONFIG_EVENT_HOST_WAIT;
    Some(Draft::new(rule, title, message).object(event))
}

/// A stream that waits until a kernel has begun, but may overtake it.
pub(super) fn waits_for_begun(check: &Check<'_, '_>) -> Option<Draft> {
    let event = check.live(Kind::Event)?;
    let launched = check.state.launches.events.get(&event)?;
    if launched.trigger != EventTrigger::Begun {
        return None;
    }
    let stream = check.plan.stream(check.call)?;
    let device = check.state.device_for(check.call, Some(stream));
    let priority = check.state.priority_of(stream);
    let why = if device.is_some() && launched.device.is_some() && device != launched.device {
        "is on another device than that kernel".to_owned()
    } else if priority < launched.priority {
        format!(
            "has a greater priority than that kernel ({priority} against {}; lower is greater)",
            launched.priority,
        )
    } else {
        return None;
    };
    let message = format!(
        "{} makes a stream wait for {}, which {} records when all blocks of its kernel have begun. \
         The stream {why}. The driver does not guarantee the order: a kernel in this stream may \
         start before those blocks. Assumed: the program relies on the order. The driver returned \
         {}.",
        check.function(),
        check.label(event),
        at(launched.site),
        check.result_name(),
    );
    let title = "wait for a launch completion event that may not order the kernels";
    let rule = rules::LAUNCH_CONFIG_COMPLETION_EVENT_INVERSION;
    let draft = Draft::new(rule, title, message).severity(Severity::Advice);
    Some(draft.object(event))
}
