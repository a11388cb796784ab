//! Context-local storage: values by context and key. Libraries keep there what must end with the
//! context.

use std::ffi::c_void;

use super::slot::{Slot, answer, unsized_table};
use crate::call::answer::{Answer, CUresult, INVALID_HANDLE, require};
use crate::call::argument::Out;
use crate::object::context::StoredValue;
use crate::state::{Locked, State, lock};

/// Slots 0 to 2 put, delete and get; slot 3 is unknown. There is no size.
pub(super) static TABLE: [Slot; 4] = unsized_table::<0xc693_336e, 4>(&[
    (0, Slot::of(put as *const c_void)),
    (1, Slot::of(delete as *const c_void)),
    (2, Slot::of(get as *const c_void)),
]);

/// `(CUcontext)-1`, which stands for the current context like NULL (lupinemachines/lupine, issue
/// 427).
const CURRENT: u64 = u64::MAX;

/// The context of a handle.
fn context_of(state: &State, context: u64) -> Answer<u64> {
    let context = if context == CURRENT { 0 } else { context };
    state.check_context(context)?;
    if context == 0 {
        state.current()
    } else {
        Ok(context)
    }
}

/// A destructor is NULL or a function of the context, the key and the value.
extern "C" fn put(context: u64, key: u64, value: u64, destructor: u64) -> CUresult {
    answer(|| {
        let mut state = lock();
        let context = context_of(&state, context)?;
        let stored = StoredValue { value, destructor };
        state.context_storage.insert((context, key), stored);
        Ok(())
    })
}

/// The destructor does not run.
extern "C" fn delete(context: u64, key: u64) -> CUresult {
    answer(|| {
        let mut state = lock();
        let context = context_of(&state, context)?;
        let removed = state.context_storage.remove(&(context, key));
        require(removed.is_some(), INVALID_HANDLE)
    })
}

/// Without such a context there is no value either: after a reset the runtime retains the primary
/// context again only if it is told so.
extern "C" fn get(value: Out<u64>, context: u64, key: u64) -> CUresult {
    answer(|| {
        let state = lock();
        let context = context_of(&state, context).map_err(|_| INVALID_HANDLE)?;
        let stored = state.context_storage.get(&(context, key));
        value.set(stored.ok_or(INVALID_HANDLE)?.value)
    })
}

/// Unlocks the state and runs the destructors of values whose context has ended. They may call the
/// driver.
pub(crate) fn run_destructors(mut state: Locked) -> Answer {
    let ended = std::mem::take(&mut state.ended_storage);
    drop(state);
    for ((context, key), StoredValue { value, destructor }) in ended {
        // SAFETY: the program has put it there as such a function, and not NULL.
        let destructor: extern "C" fn(u64, u64, u64) =
            unsafe { std::mem::transmute(destructor as *const ()) };
        destructor(context, key, value);
    }
    Ok(())
}
