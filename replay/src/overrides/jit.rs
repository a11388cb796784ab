//! JIT option arrays: numbers as recorded, buffers and tables in memory of the replayer's own.

use cutape_format::layout::field;

use crate::buffer::{Buffer, lend, number};
use crate::compare::payload::Payload;
use crate::issue::player::Job;
use crate::issue::skip::{Skip, skip};

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

/// Where the three parameters of an option array stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    pub count: usize,
    pub options: usize,
    pub values: usize,
}

/// An option array as the driver gets it, with all that it points at.
#[derive(Debug, Default)]
pub(crate) struct JitOptions {
    /// Arguments: array of options, array of values.
    pub options: u64,
    pub values: u64,
    /// To be kept as long as the driver may write into the logs.
    pub buffers: Vec<Buffer>,
}

impl JitOptions {
    /// As presets for `marshal`.
    pub(crate) fn presets(&self, positions: Positions) -> [(usize, u64); 2] {
        [
            (positions.options, self.options),
            (positions.values, self.values),
        ]
    }
}

/// Rebuilds the option array of a call. Texts in the logs are not compared: they contain versions,
/// times and addresses.
pub(crate) fn options(job: &mut Job<'_, '_>, positions: Positions) -> Result<JitOptions, Skip> {
    let mut built = JitOptions::default();
    let count = job.call.argument(positions.count);
    if job.call.argument(positions.options) == 0
        || job.call.argument(positions.values) == 0
        || count == 0
    {
        // NULL stays NULL, so that the driver says the same about it.
        let mut stub = |position| match job.call.argument(position) {
            0 => 0,
            _ => lend(&mut built.buffers, Buffer::zeroed(4096)),
        };
        let (options, values) = (stub(positions.options), stub(positions.values));
        if count > 512 {
            return skip("more JIT options than there can be");
        }
        return Ok(JitOptions {
            options,
            values,
            buffers: built.buffers,
        });
    }
    let words = |bytes: &[u8], width| bytes.chunks_exact(width).map(number).collect::<Vec<u64>>();
    let piece = |position, name| {
        let capture = job.call.snapshot(position, name)?;
        match job.payload(&capture) {
            Payload::Here(bytes) => Some(bytes.into_owned()),
            _ => None,
        }
    };
    let numbers = piece(positions.options, field::OPTIONS).map(|bytes| words(&bytes, 4));
    let values = piece(positions.values, field::OPTION_VALUES).map(|bytes| words(&bytes, 8));
    let (Some(numbers), Some(mut values)) = (numbers, values) else {
        return skip("its JIT options could not be read when it was recorded");
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
                *value = lend(&mut built.buffers, Buffer::zeroed(size as usize));
            }
            GLOBAL_SYMBOL_NAMES => {
                let Some(names) = piece(positions.values, field::SYMBOL_NAMES) else {
                    return skip("JIT symbol names are not in the trace");
                };
                let names = lend(&mut built.buffers, Buffer::of(&names)) as usize;
                let texts = built
                    .buffers
                    .last()
                    .map(|buffer| buffer.bytes().to_vec())
                    .unwrap_or_default();
                let mut at = 0;
                let mut pointers = Vec::new();
                for text in texts.split_inclusive(|&byte| byte == 0) {
                    pointers.push((names + at) as u64);
                    at += text.len();
                }
                *value = lend(&mut built.buffers, Buffer::of_words(&pointers));
            }
            GLOBAL_SYMBOL_ADDRESSES => {
                let Some(addresses) = piece(positions.values, field::SYMBOL_ADDRESSES) else {
                    return skip("JIT symbol addresses are not in the trace");
                };
                let live: Vec<u64> = words(&addresses, 8)
                    .into_iter()
                    .map(|address| job.ranges.translate(address))
                    .collect();
                *value = lend(&mut built.buffers, Buffer::of_words(&live));
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
    built.options = lend(&mut built.buffers, Buffer::of(&numbers));
    built.values = lend(&mut built.buffers, Buffer::of_words(&values));
    Ok(built)
}
