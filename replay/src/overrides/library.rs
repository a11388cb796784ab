//! Libraries: the options of their own.

use cutape_format::layout::field;
use cutape_registry::OptionArray;

use crate::api::buffer::{Buffer, number, word};
use crate::calls::frame::Presets;
use crate::objects::skip::{Skip, skip};
use crate::player::Job;

/// CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: points at tables of the recorded program.
const HOST_TABLE: u32 = 0;
/// Rebuilds the library options of a load.
pub(crate) fn library_options(
    job: &mut Job<'_, '_>,
    array: OptionArray,
    presets: &mut Presets,
) -> Result<(), Skip> {
    let argument = |position: u8| job.call.argument(usize::from(position));
    let piece = |position: u8, name| job.piece(usize::from(position), name);
    let count = argument(array.count);
    if count == 0 || argument(array.options) == 0 {
        presets.set(array.options, 0);
        presets.set(array.values, 0);
        presets.set(array.count, count);
        return Ok(());
    }
    let Some(options) = piece(array.options, field::LIBRARY_OPTIONS) else {
        return skip("the trace does not have its library options");
    };
    let values = piece(array.values, field::LIBRARY_OPTION_VALUES);
    let (mut kept_options, mut kept_values) = (Vec::new(), Vec::new());
    for (index, option) in options.chunks_exact(4).enumerate() {
        let option = number(option) as u32;
        let value = values
            .as_deref()
            .map_or(0, |values| word(values, index * 8));
        if option == HOST_TABLE && value != 0 {
            job.report.note(
                "library option CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE left out: its tables are the program's",
            );
            continue;
        }
        kept_options.extend(option.to_le_bytes());
        kept_values.push(value);
    }
    let (has_values, count) = (argument(array.values) != 0, kept_values.len());
    presets.set(array.count, count as u64);
    match count {
        0 => presets.set(array.options, 0),
        _ => presets.point(array.options, Buffer::of(&kept_options)),
    }
    match has_values && count > 0 {
        true => presets.point(array.values, Buffer::of_words(&kept_values)),
        false => presets.set(array.values, 0),
    }
    Ok(())
}
