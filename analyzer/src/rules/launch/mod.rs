//! Launches: their shape, parameters, attributes, stream and context.
//!
//! Where the driver refuses a launch, a rule says why: which limit it broke, what the call gave,
//! and where the limit comes from.

mod attributes;
mod cluster;
mod context;
mod cooperative;
mod multi_device;
mod parameters;
mod shape;
mod window;

use cutape_model::ObjectId;
use cutape_registry::{
    EventOp, Family, GraphOp, Kind, LaunchOp, NodeKind, OccupancyOp, StreamOp, rules,
};

use super::{Check, Draft, Rule, When, code};
use crate::context::device_attribute;
use crate::launch::Launch;

/// The rules about launches, and what is said of them elsewhere.
pub(super) fn rules_of(family: Family) -> &'static [(When, Rule)] {
    use Rule::{Cause, Consequence};
    use When::{Always, KernelUses, LaunchEvents, PassesAttributes, PassesExtra, Wrong};
    match family {
        Family::Launch(LaunchOp::Arguments(_)) => &[
            (PassesExtra, Cause(parameters::extra)),
            (KernelUses, Cause(cooperative::by_use)),
            (Wrong, Consequence(refused)),
        ],
        Family::Launch(LaunchOp::Config(_)) => &[
            (PassesExtra, Cause(parameters::extra)),
            (PassesAttributes, Cause(attributes::passed)),
            (KernelUses, Cause(cooperative::by_use)),
            (Wrong, Consequence(refused)),
        ],
        Family::Launch(LaunchOp::MultiDevice { .. }) => &[(Always, Cause(multi_device::check))],
        Family::Launch(LaunchOp::Legacy { .. }) => &[(Always, Cause(parameters::overwritten))],
        Family::Graph(
            GraphOp::AddNode(node) | GraphOp::SetNode(node) | GraphOp::SetExecNode(node),
        ) if matches!(node.kind, NodeKind::Kernel | NodeKind::Any) => {
            &[(Wrong, Consequence(refused))]
        }
        Family::Graph(GraphOp::SetKernelAttribute { .. }) => {
            &[(Wrong, Consequence(attributes::on_node))]
        }
        Family::Stream(StreamOp::SetAttribute { .. }) => {
            &[(Always, Consequence(attributes::on_stream))]
        }
        Family::Stream(StreamOp::WaitEvent) => {
            &[(LaunchEvents, Consequence(attributes::waits_for_begun))]
        }
        Family::Event(EventOp::Synchronize | EventOp::Query) => {
            &[(LaunchEvents, Consequence(attributes::host_waits))]
        }
        Family::Occupancy(OccupancyOp::Config { .. }) => &[(Wrong, Consequence(cluster::question))],
        _ => &[],
    }
}

/// What these checks decide.
pub(super) const DECIDES: super::decides::Decides = &[
    (
        Rule::Consequence(refused),
        &[
            rules::EXEC_ATTRIBUTE_CLUSTER_PARTIAL,
            rules::EXEC_ATTRIBUTE_VALUE_DOMAIN,
            rules::EXEC_EXTRA_SIZE_MISMATCH,
            rules::EXEC_NULL_STREAM_CONTEXT,
            rules::EXEC_PARAMS_ARRAY_SHAPE,
            rules::EXEC_PARAMS_BOTH_SET,
            rules::EXEC_PARAMS_NO_METADATA,
            rules::EXEC_STREAM_CONTEXT_MISMATCH,
            rules::LAUNCH_CONFIG_ACCESS_POLICY_WINDOW,
            rules::LAUNCH_CONFIG_ATTRIBUTES_DANGLING,
            rules::LAUNCH_CONFIG_ATTRIBUTES_NULL,
            rules::LAUNCH_CONFIG_ATTRIBUTE_NOT_FOR_LAUNCH,
            rules::LAUNCH_CONFIG_BLOCK_OVER_FUNCTION_LIMIT,
            rules::LAUNCH_CONFIG_CLUSTER_NONPORTABLE,
            rules::LAUNCH_CONFIG_CLUSTER_NOT_DIVISOR,
            rules::LAUNCH_CONFIG_CLUSTER_REQUIRED,
            rules::LAUNCH_CONFIG_COOPERATIVE_TOO_LARGE,
            rules::LAUNCH_CONFIG_COOPERATIVE_UNSUPPORTED,
            rules::LAUNCH_CONFIG_DEVICE_UPDATABLE_NOT_CAPTURING,
            rules::LAUNCH_CONFIG_DEVICE_UPDATABLE_VALUE,
            rules::LAUNCH_CONFIG_DIMENSION_OUT_OF_RANGE,
            rules::LAUNCH_CONFIG_DYNAMIC_SMEM_LIMIT,
            rules::LAUNCH_CONFIG_EVENT_KIND,
            rules::LAUNCH_CONFIG_EVENT_TIMING_ENABLED,
            rules::LAUNCH_CONFIG_PREFERRED_CLUSTER_ALONE,
            rules::LAUNCH_CONFIG_PREFERRED_CLUSTER_SHAPE,
            rules::LAUNCH_CONFIG_REQNTID_MISMATCH,
        ],
    ),
    (
        Rule::Consequence(attributes::host_waits),
        &[rules::LAUNCH_CONFIG_EVENT_HOST_WAIT],
    ),
    (
        Rule::Consequence(attributes::on_node),
        &[
            rules::LAUNCH_CONFIG_ACCESS_POLICY_WINDOW,
            rules::LAUNCH_CONFIG_ATTRIBUTE_NOT_FOR_LAUNCH,
            rules::LAUNCH_CONFIG_DEVICE_UPDATABLE_VALUE,
        ],
    ),
    (
        Rule::Consequence(attributes::on_stream),
        &[
            rules::LAUNCH_CONFIG_ACCESS_POLICY_WINDOW,
            rules::LAUNCH_CONFIG_ATTRIBUTE_NOT_FOR_LAUNCH,
        ],
    ),
    (
        Rule::Cause(attributes::passed),
        &[
            rules::LAUNCH_CONFIG_ACCESS_POLICY_WINDOW,
            rules::LAUNCH_CONFIG_SERIALIZATION_NO_GRID_SYNC,
        ],
    ),
    (
        Rule::Consequence(attributes::waits_for_begun),
        &[rules::LAUNCH_CONFIG_COMPLETION_EVENT_INVERSION],
    ),
    (
        Rule::Consequence(cluster::question),
        &[
            rules::LAUNCH_CONFIG_ATTRIBUTES_DANGLING,
            rules::EXEC_ATTRIBUTE_CLUSTER_PARTIAL,
            rules::LAUNCH_CONFIG_CLUSTER_REQUIRED,
        ],
    ),
    (
        Rule::Cause(cooperative::by_use),
        &[
            rules::LAUNCH_CONFIG_ATTRIBUTES_DANGLING,
            rules::LAUNCH_CONFIG_COOPERATIVE_DYNAMIC_PARALLELISM,
            rules::LAUNCH_CONFIG_COOPERATIVE_MISSING,
        ],
    ),
    (
        Rule::Cause(multi_device::check),
        &[
            rules::LAUNCH_CONFIG_MULTI_DEVICE_DEFAULT_STREAM,
            rules::LAUNCH_CONFIG_MULTI_DEVICE_DUPLICATE,
            rules::LAUNCH_CONFIG_MULTI_DEVICE_GLOBALS,
            rules::LAUNCH_CONFIG_MULTI_DEVICE_KERNEL_DIFFERS,
            rules::LAUNCH_CONFIG_MULTI_DEVICE_SHAPE_DIFFERS,
            rules::LAUNCH_CONFIG_MULTI_DEVICE_UNSUPPORTED,
        ],
    ),
    (
        Rule::Cause(parameters::extra),
        &[
            rules::EXEC_EXTRA_MALFORMED,
            rules::EXEC_EXTRA_SIZE_MISMATCH,
            rules::EXEC_EXTRA_UNTERMINATED,
            rules::LAUNCH_CONFIG_COOPERATIVE_EXTRA,
        ],
    ),
    (
        Rule::Cause(parameters::overwritten),
        &[rules::EXEC_LEGACY_LAUNCH_STATE_LOST],
    ),
];

/// Why the driver refused a launch, or why the program died in it. The checks of each result come
/// in the order in which one mistake causes the next.
fn refused(check: &Check<'_, '_>) -> Option<Draft> {
    let launches = Launch::of(check.family(), check.call);
    let mut refused = launches.iter().map(|launch| Refused::new(check, launch));
    refused.find_map(|launch| launch.why())
}

/// A launch that the driver refused, with what is known of its function and device.
struct Refused<'c, 't> {
    check: &'c Check<'c, 't>,
    launch: &'c Launch<'t>,
    function: Option<ObjectId>,
    device: Option<i32>,
}

impl<'c, 't> Refused<'c, 't> {
    fn new(check: &'c Check<'c, 't>, launch: &'c Launch<'t>) -> Self {
        let objects = &check.state.objects;
        Self {
            check,
            launch,
            function: objects.resolve(Kind::Function, launch.function).live(),
            device: check.state.device_for(check.call, launch.stream),
        }
    }

    fn why(&self) -> Option<Draft> {
        match self.check.call.result() {
            None => parameters::unreadable(self),
            Some(code::INVALID_VALUE) => parameters::both_forms(self)
                .or_else(|| parameters::missing(self))
                .or_else(|| attributes::uncounted(self))
                .or_else(|| shape::dimensions(self))
                .or_else(|| shape::required_block(self))
                .or_else(|| shape::threads(self))
                .or_else(|| shape::shared_memory(self))
                .or_else(|| parameters::wrong_size(self))
                .or_else(|| cluster::misconfigured(self))
                .or_else(|| cooperative::unsupported(self))
                .or_else(|| attributes::refused(self)),
            Some(code::INVALID_CLUSTER_SIZE) => cluster::misconfigured(self),
            Some(code::NOT_SUPPORTED) => {
                attributes::refused(self).or_else(|| cooperative::unsupported(self))
            }
            Some(code::COOPERATIVE_LAUNCH_TOO_LARGE) => Some(cooperative::too_large(self)),
            Some(code::LAUNCH_OUT_OF_RESOURCES) => {
                shape::threads(self).or_else(|| parameters::wrong_size(self))
            }
            Some(code::INVALID_CONTEXT | code::INVALID_HANDLE) => context::elsewhere(self),
            Some(code::INVALID_IMAGE) => parameters::no_metadata(self),
            Some(_) => None,
        }
    }

    /// The value of a device attribute, and what a message says of it.
    fn limit(&self, name: &str) -> Option<(u64, String)> {
        let device = self.device?;
        let value = device_attribute(self.check.context, device, name)?;
        let source = format!("CU_DEVICE_ATTRIBUTE_{name} of device {device}");
        Some((u64::try_from(value).ok()?, source))
    }

    /// A fact of the function's image.
    fn image_fact<T: PartialEq>(
        &self,
        fact: impl Fn(&cutape_image::Function) -> Option<T>,
    ) -> Option<T> {
        let check = self.check;
        let function = self.function?;
        check
            .state
            .image_fact(function, check.call.thread, check.context, fact)
    }

    /// The value of a function attribute that was set last.
    fn set_attribute(&self, attribute: i32) -> Option<(i64, cutape_model::Site)> {
        let device = self.device.unwrap_or(0);
        self.check
            .state
            .set_attribute_of(self.function?, attribute, device)
    }

    /// The value of a function attribute that the program asked for.
    fn queried_attribute(&self, attribute: i32) -> Option<i64> {
        let device = self.device.unwrap_or(0);
        self.check
            .state
            .queried_attribute_of(self.function?, attribute, device)
    }

    /// What a message calls the function.
    fn label(&self) -> String {
        match self.function {
            Some(id) => self.check.label(id),
            None => format!("the function {:#x}", self.launch.function),
        }
    }

    /// A draft about the launch and its function.
    fn draft(&self, rule: &'static str, title: &str, what: impl std::fmt::Display) -> Draft {
        let draft = self.check.draft(rule, title, what);
        match self.function {
            Some(id) => draft.object(id),
            None => draft,
        }
    }
}
