//! Primary Context Management: one shared context a device, with a reference count.

use crate::call::answer::{Answer, INVALID_CONTEXT, reject_if};
use crate::call::argument::{Out, OutRef};
use crate::call::entry::entries;
use crate::object::context::{Primary, check_flags};
use crate::object::device::check_device;
use crate::section::private_tables::context_storage::run_destructors;
use crate::state::{Locked, State, lock};

entries! {
    cuDevicePrimaryCtxRetain: retain;
    cuDevicePrimaryCtxRelease: release;
    cuDevicePrimaryCtxReset: reset;
    cuDevicePrimaryCtxSetFlags: set_flags;
    cuDevicePrimaryCtxGetState: get_state;
}

fn primary(state: &mut State, device: i32) -> Answer<&mut Primary> {
    check_device(device)?;
    Ok(&mut state.primaries[device as usize])
}

/// The device's primary context if it exists now.
fn active(state: &mut State, device: i32) -> Answer<Option<u64>> {
    let handle = primary(state, device)?.handle;
    Ok(handle.filter(|handle| state.contexts.contains_key(handle)))
}

fn destroy(mut state: Locked, device: i32) -> Answer {
    if let Some(handle) = active(&mut state, device)? {
        state.destroy_context(handle);
    }
    run_destructors(state)
}

fn retain(mut state: Locked, context: OutRef<u64>, device: i32) -> Answer {
    check_device(device)?;
    let handle = state.primary_handle(device)?;
    let primary = primary(&mut state, device)?;
    primary.references += 1;
    let flags = primary.flags;
    if active(&mut state, device)?.is_none() {
        let object = state.new_context(device, flags, true);
        state.contexts.insert(handle, object);
    }
    context.set(handle)
}

fn release(mut state: Locked, device: i32) -> Answer {
    let primary = primary(&mut state, device)?;
    reject_if(primary.references == 0, INVALID_CONTEXT)?;
    primary.references -= 1;
    match primary.references {
        0 => destroy(state, device),
        _ => Ok(()),
    }
}

/// A reset is no release: every retain may still be released (cuDevicePrimaryCtxReset).
fn reset(device: i32) -> Answer {
    destroy(lock(), device)
}

fn set_flags(mut state: Locked, device: i32, flags: u32) -> Answer {
    check_flags(flags)?;
    let primary = primary(&mut state, device)?;
    primary.flags = flags;
    if let Some(handle) = primary.handle
        && let Some(context) = state.contexts.get_mut(&handle)
    {
        context.flags = flags;
    }
    Ok(())
}

fn get_state(mut state: Locked, device: i32, flags: Out<u32>, active: Out<i32>) -> Answer {
    let is_active = self::active(&mut state, device)?.is_some();
    flags.check()?;
    active.check()?;
    flags.set_if(primary(&mut state, device)?.flags);
    active.set(is_active.into())
}
