//! `cutape diff --execute`: what the launches of two traces compute differently.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_diff::Aligned;
use cutape_execution_diff::Compared;
use cutape_format::Trace;

use super::execute_children::Children;
use super::{Arguments, Format};
use crate::guarded::{self, GuardedOptions};
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::library;
use cutape_terminal::output::{self, ReportFile, shown};
use cutape_terminal::private_folder::PrivateFolder;

/// The options of `--execute`.
#[derive(clap::Args)]
pub(super) struct ExecuteOptions {
    /// Replay both traces, and compare what their launches write.
    ///
    /// Names the first launch with other outputs: introduced, if its inputs are
    /// equal, or inherited. B's kernels with other code are run on A's inputs
    /// where the inputs differ. A is replayed twice: what differs in it does not
    /// count.
    #[arg(long, verbatim_doc_comment)]
    execute: bool,
    /// With --execute: compare A with A itself, with the kernels of this cubin, fatbin
    /// or PTX.
    #[arg(long, value_name = "IMAGE", requires = "execute", conflicts_with = "b")]
    #[arg(verbatim_doc_comment)]
    kernel: Option<PathBuf>,
    /// With --execute: how much numbers may differ, as for bench, e.g.
    /// f32=1e-5,f16=1e-2. Default: bytes are compared.
    #[arg(long, value_name = "TYPE=T,...", requires = "execute")]
    #[arg(verbatim_doc_comment)]
    tolerance: Option<String>,
    /// With --execute: how many launches are read in one replay, and how many of B's
    /// kernels are run on A's inputs.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "execute")]
    #[arg(verbatim_doc_comment)]
    most: usize,
    /// With --execute: the driver to replay on: a path, or `null`. Default: this
    /// machine's.
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    driver: Option<PathBuf>,
    #[command(flatten)]
    guarded: GuardedOptions,
}

impl ExecuteOptions {
    pub(super) fn is_given(&self) -> bool {
        self.execute
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let options = &arguments.execute;
    if arguments.format == Format::Junit || arguments.junit.is_some() {
        return Err(Failure::unusable(
            "--execute writes text or JSON, not JUnit",
        ));
    }
    let tolerance = cutape_measure::tolerance(options.tolerance.as_deref());
    let tolerance = tolerance.map_err(Failure::unusable)?;
    let file = arguments.report.as_deref().map(ReportFile::prepare);
    let file = file.transpose()?;
    let a = super::open(&arguments.a)?;
    let path_b = arguments.b.as_deref().unwrap_or(&arguments.a);
    let b = super::open(path_b)?;
    let folder = PrivateFolder::create("execute")?;
    let driver = library::driver(options.driver.as_deref())?;
    let mut replays = Children::new([&a, &b], driver, &options.guarded, &folder)?;
    let (aligned, image) = match &options.kernel {
        Some(path) => {
            let (image, loads) = read_image(&a, path)?;
            replays.images = loads.iter().map(|&call| (call, path.clone())).collect();
            let calls = a.calls().count() as u64;
            (Aligned::with_other_code(calls, loads), Some(image))
        }
        None => {
            let found = super::compared(arguments, [&a, &b], true)?;
            (found.aligned.unwrap_or_default(), None)
        }
    };
    let compared = Compared {
        traces: [&a, &b],
        aligned: &aligned,
        image,
        tolerance,
        most: options.most,
        folder: folder.path(""),
    };
    let report = cutape_execution_diff::compare(&compared, &mut replays);
    let report = report.map_err(Failure::unusable)?;
    let text = match arguments.format {
        Format::Json => guarded::json(&report),
        _ => {
            let path_b = options.kernel.as_deref().unwrap_or(path_b);
            let names = [shown(&arguments.a), shown(path_b)].map(|name| name.to_string());
            cutape_execution_diff::text(&report, [&names[0], &names[1]])
        }
    };
    output::write(file.as_ref(), &text)?;
    Ok(ExitCode::from(if report.differs { FOUND } else { 0 }))
}

/// An image with the name of its file, and the calls that load its kernels.
type Image = ((std::sync::Arc<[u8]>, String), Vec<u64>);

fn read_image(trace: &Trace, path: &Path) -> Result<Image, Failure> {
    let image = fs::read(path);
    let image = image.map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
    let loads = cutape_execution_diff::loads_of(trace, &image);
    if loads.is_empty() {
        return Err(Failure::unusable(format!(
            "{}: no call of {} loads a kernel that this image has; `cutape extract --images` lists \
             the kernels",
            path.display(),
            trace.path().display()
        )));
    }
    Ok(((image.into(), path.display().to_string()), loads))
}
