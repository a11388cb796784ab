//! Option arrays of the JIT compiler and the linker: numbers, values, and the buffers that some
//! values point to.

use cutape_driver::types::CUjit_option_enum as Jit;
use cutape_format::layout::field;
use cutape_registry::OptionArray;

use super::visitor::Visitor;
use crate::hot::frame::Frame;
use crate::hot::thread::Draft;
use crate::process::memory;
use crate::snapshot;

/// More options than exist; a larger count is a mistake of the program.
const MOST: u64 = 256;
/// Longer logs are cut.
const LONGEST_LOG: u64 = 1 << 20;
/// Most symbols for the linker; more are cut.
const MOST_SYMBOLS: u64 = 4096;

/// Address and length of the log buffers for information and for errors.
pub(super) type Logs = [Option<(u64, u64)>; 2];

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
        let mut bytes = [0u8; MOST as usize * 8];
        let place = bytes.get_mut(..count as usize * 4)?;
        memory::read_all(numbers, place).then_some(())?;
        let numbers = place.as_chunks().0.iter();
        let numbers = numbers.map(|word| u32::from_le_bytes(*word)).collect();
        let place = bytes.get_mut(..count as usize * 8)?;
        memory::read_all(values, place).then_some(())?;
        let values = place.as_chunks().0.iter();
        let values = values.map(|word| u64::from_le_bytes(*word)).collect();
        Some(Self { numbers, values })
    }

    /// The value of an option.
    pub(super) fn value(&self, option: Jit) -> Option<u64> {
        let at = self.numbers.iter().position(|&number| number == option.0)?;
        self.values.get(at).copied()
    }

    /// The log buffers: that for information, that for errors.
    pub(super) fn logs(&self) -> Logs {
        [
            (
                Jit::CU_JIT_INFO_LOG_BUFFER,
                Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            ),
            (
                Jit::CU_JIT_ERROR_LOG_BUFFER,
                Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            ),
        ]
        .map(|(buffer, size)| {
            let address = self.value(buffer).filter(|&address| address != 0)?;
            let length = u64::from(self.value(size)? as u32).min(LONGEST_LOG);
            Some((address, length))
        })
    }

    /// The log buffers with the lengths that `save_log_lengths` has saved.
    pub(super) fn saved_logs(&self, frame: &Frame) -> Logs {
        let [info, error] = self.logs();
        let [info_length, error_length, ..] = frame.saved;
        [(info, info_length), (error, error_length)].map(|(log, length)| Some((log?.0, length)))
    }
}

pub(super) fn visit<V: Visitor>(visitor: V, array: OptionArray) -> V {
    visitor
        .owns(owned(array))
        .put_pre_call(move |draft, frame| put_pre_call(draft, frame, array))
        .pre_call(move |_, frame| save_log_lengths(frame, array))
        .put_post_call(move |draft, frame| put_post_call(draft, frame, array))
}

/// The parameters of both arrays, a bit for each.
pub(super) fn owned(array: OptionArray) -> u16 {
    1 << array.options | 1 << array.values
}

/// Writes both arrays and the symbols that they name.
fn put_pre_call(draft: &mut Draft<'_>, frame: &Frame, array: OptionArray) -> Option<()> {
    put_arrays(draft, frame, array, field::OPTIONS, field::OPTION_VALUES)?;
    match Options::read(frame, array) {
        Some(options) => symbols(draft, array.values, &options),
        None => Some(()),
    }
}

/// Writes the numbers and the values of options.
pub(super) fn put_arrays(
    draft: &mut Draft<'_>,
    frame: &Frame,
    array: OptionArray,
    numbers: u8,
    values: u8,
) -> Option<()> {
    let count = u64::from(frame.word(array.count) as u32).min(MOST);
    for (at, field, bytes) in [(array.options, numbers, 4), (array.values, values, 8)] {
        let address = frame.word(at);
        if address != 0 && count > 0 {
            snapshot::bytes(draft, at, field, address, count * bytes)?;
        }
    }
    Some(())
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
fn save_log_lengths(frame: &mut Frame, array: OptionArray) {
    if let Some(options) = Options::read(frame, array) {
        for (saved, log) in frame.saved.iter_mut().zip(options.logs()) {
            *saved = log.map_or(0, |(_, length)| length);
        }
    }
}

/// Writes the values and the logs after the call.
fn put_post_call(draft: &mut Draft<'_>, frame: &Frame, array: OptionArray) -> Option<()> {
    let Some(options) = Options::read(frame, array) else {
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
    put_logs(draft, array.values, options.saved_logs(frame))
}

/// Writes the texts in log buffers.
pub(super) fn put_logs(draft: &mut Draft<'_>, parameter: u8, logs: Logs) -> Option<()> {
    for (field, log) in [field::INFO_LOG, field::ERROR_LOG].into_iter().zip(logs) {
        let Some((address, length @ 1..)) = log else {
            continue;
        };
        let used = memory::string_length(address, length as usize).unwrap_or(length as usize);
        snapshot::bytes(draft, parameter, field, address, used as u64)?;
    }
    Some(())
}
