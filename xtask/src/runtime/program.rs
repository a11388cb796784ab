//! One program: compiled, linked, and run on the null driver.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::toolkit::Toolkit;
use crate::null_driver::{Outcome, Program, Tools, succeeded};
use crate::{Failure, files};

/// Compiles a program once, and tries it with the static and with the shared runtime.
pub(super) fn test(tools: &Tools, folder: &Path, source: &Path, toolkit: &Toolkit) -> Vec<Outcome> {
    let program = files::name(source).replace(".cu", "");
    let name = format!("{program}-{}", toolkit.name);
    let object = folder.join(format!("{name}.o"));
    let mut start = Instant::now();
    let compiled = options_of(source).and_then(|options| {
        if !is_newer(&object, source) {
            let mut compile = toolkit.compiler();
            compile.arg("-c").arg(source).arg("-o").arg(&object);
            succeeded(compile.args(&options))?;
        }
        Ok(options)
    });
    ["static", "shared"]
        .map(|runtime| {
            let name = format!("{name}-{runtime}");
            let program = match &compiled {
                Ok(options) => link(toolkit, runtime, &object, options, folder.join(&name)),
                Err(failure) if runtime == "static" => Err(failure!("{failure}")),
                Err(_) => Err(Failure::new("as with the static runtime")),
            };
            // The time of the first has that of compiling.
            let outcome = tools.test(name, start, program);
            start = Instant::now();
            outcome
        })
        .into()
}

fn link<'a>(
    toolkit: &'a Toolkit,
    runtime: &str,
    object: &Path,
    options: &[String],
    program: PathBuf,
) -> Result<Program<'a>, Failure> {
    if !is_newer(&program, object) {
        let mut link = toolkit.compiler();
        link.args(["-cudart", runtime]).arg(object).arg("-o");
        succeeded(link.arg(&program).args(options))?;
    }
    Ok(Program {
        words: vec![program],
        variables: vec![
            ("LD_LIBRARY_PATH", toolkit.libraries.as_os_str()),
            ("CUTAPE_NULL_VERSION", toolkit.driver_version.as_ref()),
        ],
    })
}

/// The options for nvcc in a source's first line.
fn options_of(source: &Path) -> Result<Vec<String>, Failure> {
    let text = files::read(source)?;
    let first = text.lines().next().unwrap_or_default();
    let options = first.strip_prefix("// nvcc:").unwrap_or_default();
    Ok(options.split_whitespace().map(str::to_owned).collect())
}

/// Whether a file is there and newer than what it is made from.
fn is_newer(made: &Path, from: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    time(made).is_some_and(|made| Some(made) > time(from))
}
