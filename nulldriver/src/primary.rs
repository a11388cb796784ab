//! Primary Context Management: one shared, counted context a device.

use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_CONTEXT};
use crate::argument::Out;
use crate::context::{Context, check_flags};
use crate::dispatch::{Entry, bind};
use crate::state::{State, check_device, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuDevicePrimaryCtxRetain", bind(retain)),
    ("cuDevicePrimaryCtxRelease", bind(release)),
    ("cuDevicePrimaryCtxReset", bind(reset)),
    ("cuDevicePrimaryCtxSetFlags", bind(set_flags)),
    ("cuDevicePrimaryCtxGetState", bind(get_state)),
];

/// What is kept for a device whether its primary context is active or not.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// The same for the whole life of the process.
    handle: Option<u64>,
    references: u32,
    flags: u32,
    /// The pool that `cuDeviceSetMemPool` chose.
    pub(crate) pool: Option<u64>,
}

impl State {
    fn primary(&mut self, device: i32) -> Answer<&mut Primary> {
        check_device(device)?;
        Ok(&mut self.primaries[device as usize])
    }

    fn end_primary(&mut self, device: i32) -> Answer {
        let primary = self.primary(device)?;
        primary.references = 0;
        if let Some(handle) = primary.handle {
            self.destroy_context(handle);
        }
        Ok(())
    }
}

fn retain(context: Out<u64>, device: i32) -> Answer {
    let mut state = lock();
    context.check()?;
    let handle = match state.primary(device)?.handle {
        Some(handle) => handle,
        None => state.make(Kind::Context)?,
    };
    let primary = state.primary(device)?;
    primary.handle = Some(handle);
    primary.references += 1;
    let (flags, is_new) = (primary.flags, primary.references == 1);
    if is_new {
        let object = Context::new(&mut state, device, flags, true, 3020);
        state.contexts.insert(handle, object);
    }
    context.set(handle)
}

fn release(device: i32) -> Answer {
    let mut state = lock();
    let primary = state.primary(device)?;
    match primary.references {
        0 => Err(INVALID_CONTEXT),
        1 => state.end_primary(device),
        _ => {
            primary.references -= 1;
            Ok(())
        }
    }
}

fn reset(device: i32) -> Answer {
    lock().end_primary(device)
}

fn set_flags(device: i32, flags: u32) -> Answer {
    let mut state = lock();
    check_flags(flags)?;
    let primary = state.primary(device)?;
    primary.flags = flags;
    if let Some(handle) = primary.handle
        && let Some(context) = state.contexts.get_mut(&handle)
    {
        context.flags = flags;
    }
    Ok(())
}

fn get_state(device: i32, flags: Out<u32>, active: Out<i32>) -> Answer {
    let mut state = lock();
    let primary = state.primary(device)?;
    flags.check()?;
    active.check()?;
    flags.set_if(primary.flags);
    active.set(i32::from(primary.references > 0))
}
