//! What on this machine stands in the way of recording and replaying, and what to do about it.
//!
//! Invariant: it leaves nothing changed on the machine. What is unusual comes with advice; only what
//! keeps cutape from working has failed.

mod checklist;
mod driver;
mod errata;
mod surroundings;
mod system;

use std::io::Write;
use std::path::Path;

use cutape_recording::why_no_audit_here;
use cutape_registry::DriverVersion;
use cutape_terminal::failure::Failure;
use cutape_terminal::library;

pub use crate::checklist::Checklist;
use crate::surroundings::{DriverFacts, Surroundings};

/// Checks the installation, the driver (`None`: this machine's) and what is around them, and which
/// of the driver's published defects a recorded program meets.
///
/// # Errors
/// If the list cannot be written, or the trace cannot be read.
pub fn examine(
    checks: &mut Checklist<impl Write>,
    driver: Option<&Path>,
    trace: Option<&Path>,
) -> Result<(), Failure> {
    checks.line("cutape", env!("CARGO_PKG_VERSION"))?;
    let interposer = checks.path("interposer", library::interposer())?;
    match library::audit() {
        Ok(path) => {
            checks.line("audit library", path.display().to_string())?;
            if let Some(why) = why_no_audit_here() {
                let text = format!("record uses --backend preload: {why}");
                checks.advise("audit backend", &text)?;
            }
        }
        Err(_) => checks.advise("audit library", "missing: record uses --backend preload")?,
    }
    let null = checks.path("null driver", library::null_driver())?;
    let mut facts = None;
    let mut defective = None;
    if let Some(path) = checks.path("driver", library::driver(driver))? {
        driver::exports(checks, &path, interposer.as_deref())?;
        let (version, capabilities) = driver::devices(checks, &path)?;
        if null.as_ref() != Some(&path) {
            let cuda = version.and_then(|version| u32::try_from(version).ok());
            defective = cuda.map(|cuda| cutape_analyzer::DriverWithDevices {
                version: DriverVersion::of(cuda, &path.to_string_lossy()),
                capabilities,
            });
            facts = Some(DriverFacts { path, version });
        }
    }
    errata::check(checks, defective.as_ref(), trace)?;
    system::check(checks)?;
    let temporary = std::env::temp_dir();
    let around = Surroundings {
        root: Path::new("/"),
        variable: &|name| std::env::var(name).ok(),
        free: system::free_bytes(&temporary),
        temporary: &temporary,
        driver: facts.as_ref(),
    };
    if let Some(limits) = around.limits() {
        checks.paragraph("limits", &limits)?;
    }
    for advice in around.advice() {
        checks.advise(advice.label, &advice.text)?;
    }
    Ok(())
}
