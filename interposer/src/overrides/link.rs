//! Links: inputs, options, and the cubin that comes out. The arrays given at the start are the driver's to write to until
//! the state is destroyed, so they are looked at again after every step.

use cutape_format::layout::field;
use cutape_format::write::Record;

use super::image;
use super::jit_options::{self, Options, Places};
use crate::call::Frame;
use crate::process_lock::ProcessLock;
use crate::{memory, snapshot};

/// Where `cuLinkCreate`, `cuLinkAddData` and `cuLinkAddFile` have their options.
pub(super) const CREATE: Places = Places {
    count: 0,
    numbers: 1,
    values: 2,
};
pub(super) const ADD_DATA: Places = Places {
    count: 5,
    numbers: 6,
    values: 7,
};
pub(super) const ADD_FILE: Places = Places {
    count: 3,
    numbers: 4,
    values: 5,
};
/// The data of `cuLinkAddData`.
pub(super) const DATA: u8 = 2;
const DATA_SIZE: usize = 3;
const CREATED_STATE: usize = 3;
const CUBIN: usize = 1;
const CUBIN_SIZE: usize = 2;
/// A cubin that claims to be longer than this is not believed.
const LONGEST_CUBIN: u64 = 4 << 30;

/// What the driver may write to while a state lives.
struct State {
    handle: u64,
    values: u64,
    count: u64,
    info_log: Option<(u64, u64)>,
    error_log: Option<(u64, u64)>,
}

static STATES: ProcessLock<Vec<State>> = ProcessLock::new();

/// In a forked child: the parent's states are not this process's.
pub(super) fn forget() {
    STATES.forget();
}

/// Remembers the arrays of a new state.
pub(super) fn created(frame: &Frame) {
    if frame.result as i32 != 0 || frame.words[CREATED_STATE] == 0 {
        return;
    }
    let Some(options) = Options::read(frame, CREATE) else {
        return;
    };
    let Some(handle) = memory::word(frame.words[CREATED_STATE]) else {
        return;
    };
    let log = |log: Option<(u64, u64)>, length| log.map(|log| (log.0, length));
    let state = State {
        handle,
        values: frame.words[usize::from(CREATE.values)],
        count: options.values.len() as u64,
        info_log: log(options.info_log(), frame.kept[0]),
        error_log: log(options.error_log(), frame.kept[1]),
    };
    let mut states = STATES.lock();
    states.retain(|other| other.handle != handle);
    states.push(state);
}

/// Forgets a state.
pub(super) fn destroyed(frame: &Frame) {
    if frame.result as i32 == 0 {
        STATES.lock().retain(|state| state.handle != frame.words[0]);
    }
}

/// `cuLinkAddData(state, type, data, size, name, numOptions, options, optionValues)`.
pub(super) fn before_add_data(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    let (address, length) = (frame.words[usize::from(DATA)], frame.words[DATA_SIZE]);
    if address != 0 {
        image::bytes(record, DATA, field::POINTEE, address, length)?;
        // Whether text ends in a NUL that its size leaves out.
        snapshot::bytes(
            record,
            DATA,
            field::BYTE_BEHIND,
            address.wrapping_add(length),
            1,
        )?;
    }
    jit_options::before(record, frame, ADD_DATA)?;
    state_arrays(record, frame)
}

/// `cuLinkAddFile(state, type, path, numOptions, options, optionValues)`.
pub(super) fn before_add_file(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    image::file(record, frame, 2)?;
    jit_options::before(record, frame, ADD_FILE)?;
    state_arrays(record, frame)
}

/// `cuLinkComplete` and `cuLinkDestroy`: the state's own arrays as they stand when the driver comes to write to them.
pub(super) fn before_end(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    state_arrays(record, frame)
}

/// Puts the options of an added input, and the state's own arrays, as the call has left them.
pub(super) fn after_add(record: &mut Record<'_>, frame: &Frame, places: Places) -> Option<()> {
    jit_options::after(record, frame, places)?;
    state_arrays(record, frame)
}

/// `cuLinkComplete(state, cubinOut, sizeOut)`: the cubin's bytes stand on `cubinOut`.
pub(super) fn after_complete(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    if frame.result as i32 == 0
        && let Some(cubin) = memory::word(frame.words[CUBIN]).filter(|&cubin| cubin != 0)
        && let Some(size) = memory::word(frame.words[CUBIN_SIZE])
        && size <= LONGEST_CUBIN
    {
        snapshot::bytes(record, CUBIN as u8, field::FILE, cubin, size)?;
    }
    state_arrays(record, frame)
}

/// The arrays may be gone by now, which is an error of the program's that the trace is to show.
fn state_arrays(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    let (values, count, info, error) = {
        let states = STATES.lock();
        let Some(state) = states.iter().find(|state| state.handle == frame.words[0]) else {
            return Some(());
        };
        (state.values, state.count, state.info_log, state.error_log)
    };
    snapshot::bytes(record, 0, field::OPTION_VALUES, values, count * 8)?;
    jit_options::logs(record, 0, info, error)
}
