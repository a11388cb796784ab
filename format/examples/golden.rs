//! Writes the sample of the tests to the given path, and beside it the packed file and a
//! description. Run when the format gets a new version; the files of earlier ones stay.

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::path::PathBuf::from(std::env::args_os().nth(1).ok_or("which file?")?);
    let builder = sample::nested_call_sample();
    builder.write(&path)?;
    let name = path.file_stem().ok_or("which file?")?.to_string_lossy();
    let packed = path.with_file_name(format!("{name}-packed.cutape"));
    let trace = cutape_format::Trace::open(&path)?;
    cutape_format::pack(&trace, &packed, &[], &[])?;
    std::fs::write(
        path.with_extension("txt"),
        sample::describe(&trace).join("\n") + "\n",
    )?;
    Ok(())
}
