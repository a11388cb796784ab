//! Primary Context Management: one shared context a device, with a reference count.

use crate::call::answer::{Answer, INVALID_CONTEXT};
use crate::call::argument::{Out, OutRef};
use crate::call::entry::entries;
use crate::object::context::{Primary, check_flags};
use crate::object::device::check_device;
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

fn destroy(state: &mut State, device: i32) -> Answer {
    let primary = primary(state, device)?;
    primary.references = 0;
    if let Some(handle) = primary.handle {
        state.destroy_context(handle);
    }
    Ok(())
}

fn retain(mut state: Locked, context: OutRef<u64>, device: i32) -> Answer {
    let handle = match primary(&mut state, device)?.handle {
        Some(handle) => handle,
        None => state.contexts.new_handle()?,
    };
    let primary = primary(&mut state, device)?;
    primary.handle = Some(handle);
    primary.references += 1;
    let (flags, is_new) = (primary.flags, primary.references == 1);
    if is_new {
        let object = state.new_context(device, flags, true);
        state.contexts.insert(handle, object);
    }
    context.set(handle)
}

fn release(mut state: Locked, device: i32) -> Answer {
    let primary = primary(&mut state, device)?;
    match primary.references {
        0 => Err(INVALID_CONTEXT),
        1 => destroy(&mut state, device),
        _ => {
            primary.references -= 1;
            Ok(())
        }
    }
}

fn reset(device: i32) -> Answer {
    destroy(&mut lock(), device)
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
    let primary = primary(&mut state, device)?;
    flags.check()?;
    active.check()?;
    flags.set_if(primary.flags);
    active.set(i32::from(primary.references > 0))
}
