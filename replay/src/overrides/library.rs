//! Libraries: an image, JIT options, and library options.

use cutape_format::layout::field;

use crate::buffer::{Buffer, number};
use crate::issue::player::{Job, Played};
use crate::issue::skip::{Skip, skip};
use crate::overrides::{jit, module};

/// CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: points at tables of the recorded program.
const HOST_TABLE: u32 = 0;
/// Parameters of both functions.
const SOURCE: usize = 1;
const LIBRARY_OPTIONS: usize = 5;
const LIBRARY_OPTION_VALUES: usize = 6;
const LIBRARY_OPTION_COUNT: usize = 7;

/// cuLibraryLoadData.
pub(crate) fn load_data(job: &mut Job<'_, '_>) -> Played {
    let image = module::image(job, SOURCE)?;
    load(job, image.address, image.buffers)
}

/// cuLibraryLoadFromFile.
pub(crate) fn load_file(job: &mut Job<'_, '_>) -> Played {
    if job.call.argument(SOURCE) == 0 {
        return load(job, 0, Vec::new());
    }
    let file = module::file(job, SOURCE)?;
    load(job, file.path.address(), Vec::new())
}

fn load(job: &mut Job<'_, '_>, source: u64, image: Vec<Buffer>) -> Played {
    let mut presets = vec![(SOURCE, source)];
    let mut buffers = Vec::new();
    if let Some(positions) = module::option_positions(job.function) {
        let options = jit::options(job, positions)?;
        presets.extend(options.presets(positions));
        buffers.extend(options.buffers);
    }
    presets.extend(library_options(job, &mut buffers)?);
    // With CU_LIBRARY_BINARY_IS_PRESERVED the driver may read the image for as long as the library
    // lives.
    job.lent.kept.extend(image);
    job.reissue_presets(&presets, buffers)
}

fn library_options(
    job: &mut Job<'_, '_>,
    buffers: &mut Vec<Buffer>,
) -> Result<[(usize, u64); 3], Skip> {
    let count = job.call.argument(LIBRARY_OPTION_COUNT);
    if count == 0 || job.call.argument(LIBRARY_OPTIONS) == 0 {
        return Ok([
            (LIBRARY_OPTIONS, 0),
            (LIBRARY_OPTION_VALUES, 0),
            (LIBRARY_OPTION_COUNT, count),
        ]);
    }
    let Some(options) = module::piece(job, LIBRARY_OPTIONS, field::LIBRARY_OPTIONS) else {
        return skip("its library options could not be read when it was recorded");
    };
    let values = module::piece(job, LIBRARY_OPTION_VALUES, field::LIBRARY_OPTION_VALUES);
    let (mut kept_options, mut kept_values) = (Vec::new(), Vec::new());
    for (index, option) in options.chunks_exact(4).enumerate() {
        let option = number(option) as u32;
        let value = values
            .as_deref()
            .and_then(|values| values.get(index * 8..index * 8 + 8))
            .map_or(0, number);
        if option == HOST_TABLE && value != 0 {
            job.report.note(
                "library option CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE left out: its tables are the program's",
            );
            continue;
        }
        kept_options.extend(option.to_le_bytes());
        kept_values.push(value);
    }
    let count = kept_values.len() as u64;
    if count == 0 {
        return Ok([
            (LIBRARY_OPTIONS, 0),
            (LIBRARY_OPTION_VALUES, 0),
            (LIBRARY_OPTION_COUNT, 0),
        ]);
    }
    let (options, kept) = (Buffer::of(&kept_options), Buffer::of_words(&kept_values));
    let values = if job.call.argument(LIBRARY_OPTION_VALUES) == 0 {
        0
    } else {
        kept.address()
    };
    let presets = [
        (LIBRARY_OPTIONS, options.address()),
        (LIBRARY_OPTION_VALUES, values),
        (LIBRARY_OPTION_COUNT, count),
    ];
    buffers.extend([options, kept]);
    Ok(presets)
}
