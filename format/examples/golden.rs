//! Writes the sample of the newest version of the format into `tests/golden/`, as it is and packed. The
//! files of earlier versions stay.

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sample, name, _) = sample::SAMPLES.last().ok_or("no sample")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(format!("{name}.cutape"));
    sample().write(&path)?;
    let packed = folder.join(format!("{name}-packed.cutape"));
    cutape_format::pack(&cutape_format::Trace::open(&path)?, &packed, &[], &[])?;
    Ok(())
}
