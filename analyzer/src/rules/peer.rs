//! Memory of other devices: whether access is enabled, and the contexts of peer copies.

use cutape_model::ObjectId;
use cutape_registry::{ContextOp, Family, Kind, is_default_stream, rules};

use super::{Check, Draft, at, code, created_at};
use crate::finding::Severity;
use crate::layouts::parameters_of_eight;
use crate::state::data::{Data, MemoryOrigin};
use crate::state::ordering::memory_origin;

/// The device of a context, if that is certain.
fn device_of(check: &Check<'_, '_>, context: ObjectId) -> Option<i32> {
    match check.object(context)?.data {
        Data::Context(data) if check.owns_content(context) => Some(data.device),
        _ => None,
    }
}

/// Access that was enabled twice, disabled twice, or cannot be.
pub(super) fn enable_state(check: &Check<'_, '_>) -> Option<Draft> {
    let peer = check.live(Kind::Context);
    let current = check.state.contexts.current(check.call.thread);
    let label = peer.map_or_else(|| "a context".to_owned(), |peer| check.label(peer));
    let enables = check.family() == Family::Context(ContextOp::EnablePeer);
    let devices = peer.zip(current.object);
    let devices =
        devices.map(|(peer, current)| (device_of(check, peer), device_of(check, current)));
    let (severity, what) = match (check.call.result()?, devices) {
        (code::PEER_ACCESS_ALREADY_ENABLED, _) => {
            let key = (current.handle, check.call.argument(0));
            let first = check.state.peers.get(&key).map(|&site| at(site));
            let first = first.map_or(String::new(), |first| format!(", by {first}"));
            let what = format!("enables access to {label}, which is enabled already{first}");
            (Severity::Advice, what)
        }
        (code::PEER_ACCESS_NOT_ENABLED, _) => {
            let what = format!("disables access to {label}, which is not enabled");
            (Severity::Warning, what)
        }
        (_, Some((Some(peer), Some(current)))) if enables && peer == current => {
            let what = format!(
                "enables access to {label}, which is on the same device as the current context, \
                 device {current}. Contexts of one device have access without it"
            );
            (Severity::Warning, what)
        }
        (code::PEER_ACCESS_UNSUPPORTED, _) => {
            let what = format!(
                "enables access to {label}, which these devices do not support. \
                 cuDeviceCanAccessPeer tells"
            );
            (Severity::Advice, what)
        }
        _ => return None,
    };
    let title = "peer access enabled or disabled out of order";
    let draft = check.draft(rules::PEER_ENABLE_STATE, title, what);
    let draft = draft.severity(severity);
    Some(peer.into_iter().fold(draft, Draft::object))
}

/// A launch with memory of another device that the launching context cannot access.
pub(super) fn access_missing(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if drafts.is_empty() {
        drafts.extend(inaccessible(check));
    }
}

fn inaccessible(check: &Check<'_, '_>) -> Option<Draft> {
    let stream = check.plan.stream(check.call).unwrap_or(0);
    let target = if is_default_stream(stream) {
        check.state.contexts.current(check.call.thread).object
    } else {
        let live = check.state.objects.live(Kind::Stream, stream);
        live.and_then(|id| check.object(id)?.context)
    };
    let target = target?;
    let device = device_of(check, target)?;
    let (layout, bytes) = (check.launch_layout()?, check.launch_parameters()?);
    parameters_of_eight(layout, bytes).find_map(|(number, address)| {
        let id = check.state.memory_at(address)?;
        let object = check.object(id)?;
        let home = object.context?;
        let other = device_of(check, home).filter(|&other| other != device)?;
        // Managed memory is accessible everywhere; of a pool the trace does not tell the device.
        if memory_origin(object) != Some(MemoryOrigin::Device) {
            return None;
        }
        let handle = |context| check.object(context).map_or(0, |object| object.handle);
        let (here, there) = (handle(target), handle(home));
        if check.state.peers.contains_key(&(here, there)) {
            return None;
        }
        let reverse = match check.state.peers.get(&(there, here)) {
            Some(&site) => format!(" {} enabled the reverse direction only.", at(site)),
            None => String::new(),
        };
        let message = format!(
            "{} passes {address:#x} as parameter {number} of a kernel on device {device}. That is \
             {}, which {} allocated on device {other}, and no call has enabled access from {} to \
             {}.{reverse} {}",
            check.function(),
            check.label(id),
            created_at(check.state, id),
            check.label(target),
            check.label(home),
            check.answer(),
        );
        let title = "memory of another device without access to it";
        let draft = Draft::new(rules::PEER_ACCESS_MISSING, title, message);
        Some(draft.object(id).object(home).object(target))
    })
}

/// A peer copy that names another context than that of the memory.
pub(super) fn copy_context(check: &Check<'_, '_>) -> Option<Draft> {
    let mut sides = [("dstDevice", "dstContext"), ("srcDevice", "srcContext")].into_iter();
    sides.find_map(|(address, context)| {
        let id = check.state.memory_at(check.argument(address)?)?;
        let target = check.argument(context)?;
        let target = check.state.objects.live(Kind::Context, target)?;
        let object = check.object(id)?;
        let home = object.context.filter(|&home| home != target)?;
        if memory_origin(object)? == MemoryOrigin::Managed
            || !check.owns_content(home)
            || !check.owns_content(target)
        {
            return None;
        }
        let what = format!(
            "gets {} as `{context}`, but the memory at `{address}`, {}, belongs to {}: {} \
             allocated it there",
            check.label(target),
            check.label(id),
            check.label(home),
            created_at(check.state, id),
        );
        let title = "peer copy with the context of other memory";
        let draft = check.draft(rules::PEER_COPY_CONTEXT_MISMATCH, title, what);
        let draft = draft.object(id).object(home).object(target);
        Some(match check.went_wrong() {
            true => draft,
            false => draft.severity(Severity::Warning),
        })
    })
}
