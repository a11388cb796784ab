//! JIT option arrays: numbers as recorded, buffers and tables in memory of the replayer's own.

use cutape_format::layout::field;
use cutape_registry::OptionArray;

use crate::api::buffer::{Buffer, number};
use crate::calls::frame::Presets;
use crate::objects::skip::{Skip, skip};
use crate::player::Job;

// Numbers of CUjit_option whose value is more than a number.
const INFO_LOG_BUFFER: u32 = 3;
const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
const GLOBAL_SYMBOL_NAMES: u32 = 17;
const GLOBAL_SYMBOL_ADDRESSES: u32 = 18;
const REFERENCED_KERNEL_NAMES: u32 = 25;
const REFERENCED_VARIABLE_NAMES: u32 = 27;

/// Longest log buffer that is provided.
const LONGEST_LOG: u64 = 256 << 20;

/// Rebuilds an option array of a call, with logs to be kept as long as the driver may write there.
/// Texts in the logs are not compared: they contain versions, times and addresses.
pub(crate) fn options(
    job: &mut Job<'_, '_>,
    array: OptionArray,
    presets: &mut Presets,
) -> Result<(), Skip> {
    let argument = |position: u8| job.call.argument(usize::from(position));
    let count = argument(array.count);
    if argument(array.options) == 0 || argument(array.values) == 0 || count == 0 {
        // NULL stays NULL, so that the driver says the same about it.
        for position in [array.options, array.values] {
            match argument(position) {
                0 => presets.set(position, 0),
                _ => presets.point(position, Buffer::zeroed(4096)),
            }
        }
        return match count > 512 {
            true => skip("more JIT options than there can be"),
            false => Ok(()),
        };
    }
    let words = |bytes: &[u8], width| bytes.chunks_exact(width).map(number).collect::<Vec<u64>>();
    let piece = |position: u8, name| job.piece(usize::from(position), name);
    let numbers = piece(array.options, field::OPTIONS).map(|bytes| words(&bytes, 4));
    let values = piece(array.values, field::OPTION_VALUES).map(|bytes| words(&bytes, 8));
    let (Some(numbers), Some(mut values)) = (numbers, values) else {
        return skip("the trace does not have its JIT options");
    };
    if (numbers.len() as u64) < count || (values.len() as u64) < count {
        return skip("the trace holds fewer JIT options than it counts");
    }
    let size_of = |size_option: u32| {
        numbers
            .iter()
            .position(|&option| option == u64::from(size_option))
            .and_then(|position| values.get(position).copied())
            // The size is an unsigned int in a pointer's place.
            .map_or(0, |size| size & 0xffff_ffff)
    };
    let info_bytes = size_of(INFO_LOG_BUFFER_SIZE_BYTES);
    let error_bytes = size_of(ERROR_LOG_BUFFER_SIZE_BYTES);
    for (&option, value) in numbers.iter().zip(values.iter_mut()) {
        let option = u32::try_from(option).unwrap_or(u32::MAX);
        if *value == 0 {
            continue;
        }
        match option {
            INFO_LOG_BUFFER | ERROR_LOG_BUFFER => {
                let size = match option {
                    ERROR_LOG_BUFFER => error_bytes,
                    _ => info_bytes,
                };
                if size > LONGEST_LOG {
                    return skip("a JIT log buffer longer than replay provides");
                }
                *value = presets.lend(Buffer::zeroed(size as usize));
            }
            GLOBAL_SYMBOL_NAMES => {
                let Some(names) = piece(array.values, field::SYMBOL_NAMES) else {
                    return skip("JIT symbol names are not in the trace");
                };
                let mut at = presets.lend(Buffer::of(&names));
                let mut pointers = Vec::new();
                for text in names.split_inclusive(|&byte| byte == 0) {
                    pointers.push(at);
                    at += text.len() as u64;
                }
                *value = presets.lend(Buffer::of_words(&pointers));
            }
            GLOBAL_SYMBOL_ADDRESSES => {
                let Some(addresses) = piece(array.values, field::SYMBOL_ADDRESSES) else {
                    return skip("JIT symbol addresses are not in the trace");
                };
                let live: Vec<u64> = words(&addresses, 8)
                    .into_iter()
                    .map(|address| job.ranges.translate(address))
                    .collect();
                *value = presets.lend(Buffer::of_words(&live));
            }
            REFERENCED_KERNEL_NAMES | REFERENCED_VARIABLE_NAMES => {
                return skip("lists of referenced names among its JIT options are not recorded");
            }
            _ => {}
        }
    }
    let numbers: Vec<u8> = numbers
        .iter()
        .flat_map(|&option| (option as u32).to_le_bytes())
        .collect();
    presets.point(array.options, Buffer::of(&numbers));
    presets.point(array.values, Buffer::of_words(&values));
    Ok(())
}
