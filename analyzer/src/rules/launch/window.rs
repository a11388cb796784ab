//! Access policy windows of launches, streams and kernel nodes.

use cutape_model::Place;
use cutape_registry::rules;

use super::Check;
use crate::context::device_attribute;
use crate::finding::Severity;
use crate::launch::{u32_at, u64_at};
use crate::rules::Draft;

const WINDOW: &str = "CUaccessPolicyWindow";
const BYTES: usize = cutape_registry::layout::offset_of(WINDOW, "num_bytes");
const RATIO: usize = cutape_registry::layout::offset_of(WINDOW, "hitRatio");
const MISS: usize = cutape_registry::layout::offset_of(WINDOW, "missProp");
/// CU_ACCESS_PROPERTY_PERSISTING.
const PERSISTING: u32 = 2;

/// What is wrong with a window.
pub(super) fn check(check: &Check<'_, '_>, value: &[u8], device: i32) -> Option<Draft> {
    let (base, bytes) = (u64_at(value, 0)?, u64_at(value, BYTES)?);
    // A window of no bytes takes the last one away.
    if bytes == 0 {
        return None;
    }
    let ratio = f32::from_bits(u32_at(value, RATIO)?);
    let rule = rules::LAUNCH_CONFIG_ACCESS_POLICY_WINDOW;
    let title = "access policy window out of its limits";
    if !(0.0..=1.0).contains(&ratio) {
        let what = format!("gets an access policy window with hitRatio = {ratio}; it is 0 to 1");
        return Some(check.draft(rule, title, what));
    }
    if u32_at(value, MISS)? == PERSISTING {
        let what = "gets an access policy window with missProp = CU_ACCESS_PROPERTY_PERSISTING; \
                    misses are normal or streaming";
        return Some(check.draft(rule, title, what));
    }
    let limit = device_attribute(check.context, device, "MAX_ACCESS_POLICY_WINDOW_SIZE");
    if let Some(limit) = limit.and_then(|limit| u64::try_from(limit).ok())
        && bytes > limit
    {
        let what = format!(
            "gets an access policy window of {bytes} bytes, and the limit is {limit} \
             (CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE of device {device})"
        );
        let draft = check.draft(rule, title, what);
        return Some(match check.went_wrong() {
            true => draft,
            false => draft.severity(Severity::Warning),
        });
    }
    let Place::Freed(_, &memory) = check.state.memory.find(base) else {
        return None;
    };
    let what = format!(
        "gets an access policy window at {base:#x}, in {}, which was freed",
        check.label(memory)
    );
    let title = "access policy window over freed memory";
    Some(
        check
            .draft(rule, title, what)
            .severity(Severity::Advice)
            .object(memory),
    )
}
