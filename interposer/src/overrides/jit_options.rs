//! Option arrays of the JIT compiler and the linker: numbers, values, and the buffers that some
//! values point to.

use cutape_driver::types::CUjit_option_enum as Jit;
use cutape_format::layout::field;
use cutape_registry::OptionArray;

use crate::hot::frame::Frame;
use crate::hot::thread::Draft;
use crate::process::memory;
use crate::snapshot;

/// More options than exist; a larger count is a mistake of the program.
pub(super) const MOST: u64 = 256;
/// Longer logs are cut.
const LONGEST_LOG: u64 = 1 << 20;
/// Most symbols for the linker; more are cut.
const MOST_SYMBOLS: u64 = 4096;

/// The two arrays.
pub(super) struct Options {
    pub(super) numbers: Vec<u32>,
    pub(super) values: Vec<u64>,
}

impl Options {
    /// Reads a call's arrays; `None` if there are none or they cannot be read.
    pub(super) fn read(frame: &Frame, array: OptionArray) -> Option<Self> {
        let count = u64::from(frame.word(array.count) as u32);
        let numbers = frame.word(array.options);
        let values = frame.word(array.values);
        if count == 0 || count > MOST || numbers == 0 || values == 0 {
            return None;
        }
        let mut options = Self {
            numbers: vec![0; count as usize],
            values: vec![0; count as usize],
        };
        let mut bytes = [0u8; MOST as usize * 8];
        let place = bytes.get_mut(..count as usize * 4)?;
        if !memory::read_all(numbers, place) {
            return None;
        }
        for (number, word) in options.numbers.iter_mut().zip(place.as_chunks().0) {
            *number = u32::from_le_bytes(*word);
        }
        let place = bytes.get_mut(..count as usize * 8)?;
        if !memory::read_all(values, place) {
            return None;
        }
        for (value, word) in options.values.iter_mut().zip(place.as_chunks().0) {
            *value = u64::from_le_bytes(*word);
        }
        Some(options)
    }

    /// The value of an option.
    pub(super) fn value(&self, option: Jit) -> Option<u64> {
        let at = self.numbers.iter().position(|&number| number == option.0)?;
        self.values.get(at).copied()
    }

    /// A log buffer: address and length.
    fn buffer(&self, buffer: Jit, size: Jit) -> Option<(u64, u64)> {
        let address = self.value(buffer).filter(|&address| address != 0)?;
        Some((
            address,
            u64::from(self.value(size)? as u32).min(LONGEST_LOG),
        ))
    }

    /// The buffer for information.
    pub(super) fn info_log(&self) -> Option<(u64, u64)> {
        self.buffer(
            Jit::CU_JIT_INFO_LOG_BUFFER,
            Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        )
    }

    /// The buffer for errors.
    pub(super) fn error_log(&self) -> Option<(u64, u64)> {
        self.buffer(
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        )
    }
}

/// Writes both arrays and the symbols that they name.
pub(super) fn put_pre_call(draft: &mut Draft<'_>, frame: &Frame, array: OptionArray) -> Option<()> {
    let count = u64::from(frame.word(array.count) as u32).min(MOST);
    if count == 0 {
        return Some(());
    }
    for (at, field, bytes) in [
        (array.options, field::OPTIONS, 4),
        (array.values, field::OPTION_VALUES, 8),
    ] {
        let address = frame.word(at);
        if address != 0 {
            snapshot::bytes(draft, at, field, address, count * bytes)?;
        }
    }
    match Options::read(frame, array) {
        Some(options) => symbols(draft, array.values, &options),
        None => Some(()),
    }
}

fn symbols(draft: &mut Draft<'_>, parameter: u8, options: &Options) -> Option<()> {
    let Some(count) = options.value(Jit::CU_JIT_GLOBAL_SYMBOL_COUNT) else {
        return Some(());
    };
    let count = u64::from(count as u32).min(MOST_SYMBOLS);
    if let Some(addresses) = options.value(Jit::CU_JIT_GLOBAL_SYMBOL_ADDRESSES)
        && addresses != 0
    {
        snapshot::bytes(
            draft,
            parameter,
            field::SYMBOL_ADDRESSES,
            addresses,
            count * 8,
        )?;
    }
    let Some(names) = options
        .value(Jit::CU_JIT_GLOBAL_SYMBOL_NAMES)
        .filter(|&names| names != 0)
    else {
        return Some(());
    };
    let mut text = Vec::new();
    for index in 0..count {
        let Some(name) = memory::word(names.wrapping_add(index * 8)) else {
            break;
        };
        let Some(length) = memory::string_length(name, 1 << 16) else {
            break;
        };
        let start = text.len();
        text.resize(start + length, 0);
        if !memory::read_all(name, text.get_mut(start..)?) {
            text.truncate(start);
            break;
        }
    }
    snapshot::own(draft, parameter, field::SYMBOL_NAMES, &text)
}

/// Saves how long the log buffers are, since the call overwrites their lengths.
pub(super) fn save_log_lengths(frame: &mut Frame, array: Option<OptionArray>) {
    if let Some(options) = array.and_then(|array| Options::read(frame, array)) {
        frame.saved[0] = options.info_log().map_or(0, |log| log.1);
        frame.saved[1] = options.error_log().map_or(0, |log| log.1);
    }
}

/// Writes the values and the logs after the call.
pub(super) fn put_post_call(
    draft: &mut Draft<'_>,
    frame: &Frame,
    array: Option<OptionArray>,
) -> Option<()> {
    let Some((array, options)) =
        array.and_then(|array| Some((array, Options::read(frame, array)?)))
    else {
        return Some(());
    };
    let address = frame.word(array.values);
    snapshot::bytes(
        draft,
        array.values,
        field::OPTION_VALUES,
        address,
        options.values.len() as u64 * 8,
    )?;
    let info = options.info_log().map(|log| (log.0, frame.saved[0]));
    let error = options.error_log().map(|log| (log.0, frame.saved[1]));
    logs(draft, array.values, info, error)
}

/// Writes the texts in log buffers, given by address and length.
pub(super) fn logs(
    draft: &mut Draft<'_>,
    parameter: u8,
    info: Option<(u64, u64)>,
    error: Option<(u64, u64)>,
) -> Option<()> {
    for (field, log) in [(field::INFO_LOG, info), (field::ERROR_LOG, error)] {
        let Some((address, length)) = log else {
            continue;
        };
        if length == 0 {
            continue;
        }
        let used = memory::string_length(address, length as usize).unwrap_or(length as usize);
        snapshot::bytes(draft, parameter, field, address, used as u64)?;
    }
    Some(())
}
