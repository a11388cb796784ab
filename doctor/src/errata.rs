//! Published defects of the driver: those that this machine's driver has, and those of them that a
//! recorded program would meet.

use std::io::Write;
use std::path::Path;

use cutape_analyzer::{Analyzer, DriverWithDevices, Finding};
use cutape_registry::{ERRATA, Erratum, erratum};
use cutape_terminal::failure::Failure;
use cutape_terminal::input;

use crate::checklist::Checklist;

/// Lists the defects of the driver; says which of them the trace's program meets.
pub(crate) fn check(
    checks: &mut Checklist<impl Write>,
    driver: Option<&DriverWithDevices>,
    trace: Option<&Path>,
) -> Result<(), Failure> {
    let Some(driver) = driver else {
        return match trace {
            Some(_) => checks.line(
                "errata",
                "not looked for: no driver of NVIDIA, or no version",
            ),
            None => Ok(()),
        };
    };
    let known: Vec<&str> = known(driver).map(|defect| defect.rule).collect();
    match known.as_slice() {
        [] => checks.line("errata", "no published defect is known of this driver")?,
        _ => {
            let known = known.join(" ");
            let text =
                format!("published defects of this driver, if a program meets them: {known}");
            checks.paragraph("errata", &text)?;
        }
    }
    let Some(path) = trace else { return Ok(()) };
    let found = met(driver.clone(), path)?;
    if found.is_empty() {
        let text = format!(
            "{} meets no published defect of this driver",
            path.display()
        );
        return checks.paragraph("program", &text);
    }
    for finding in found {
        let call = finding.call.as_ref();
        let call = call.map_or(0, |call| call.index);
        let text = format!(
            "{}: call {call} of {}: {}: {} {} Source: {}",
            finding.rule,
            path.display(),
            finding.title,
            finding.message,
            finding.advice,
            finding.manual
        );
        checks.advise("defect", &text)?;
    }
    Ok(())
}

/// The defects that the driver has with one of its devices.
fn known(driver: &DriverWithDevices) -> impl Iterator<Item = &'static Erratum> {
    ERRATA.iter().filter(|defect| {
        let mut devices = driver.capabilities.iter();
        defect.affects(driver.version)
            && (defect.concerns(None) || devices.any(|&device| defect.concerns(device)))
    })
}

/// What of a trace meets a defect of this driver.
fn met(driver: DriverWithDevices, path: &Path) -> Result<Vec<Finding>, Failure> {
    let trace = input::open_for_walk(path)?;
    let mut analyzer = Analyzer::new();
    analyzer.ask_about(driver);
    let mut found = Vec::new();
    for call in trace.calls() {
        let findings = analyzer.push(&trace, &call).into_iter();
        found.extend(findings.filter(|finding| erratum(finding.rule).is_some()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, TraceBuilder};
    use cutape_registry::{DriverVersion, SIGNATURE_TEXT};
    use cutape_terminal::output::Format;

    use super::*;

    /// A driver with such devices.
    fn facts(cuda: u32, capabilities: &[(u16, u16)]) -> DriverWithDevices {
        DriverWithDevices {
            version: DriverVersion::of(cuda, "libcuda.so.1"),
            capabilities: capabilities.iter().copied().map(Some).collect(),
        }
    }

    /// Memory of a NUMA node, recorded on a driver that gave it.
    fn recorded(folder: &Path) -> std::path::PathBuf {
        let words: [u32; 8] = [1, 0, 3, 0, 0, 0, 0, 0];
        let properties: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let path = folder.join(format!("errata-{}.cutape", std::process::id()));
        let mut builder = TraceBuilder::new(SIGNATURE_TEXT);
        builder.meta("driver.version", "13020");
        builder
            .call(NewCall {
                name: "cuMemCreate",
                arguments: &[0x7000, 1 << 21, 0x7100, 0],
                snapshots: &[NewSnapshot::pointee(2, &properties)],
                ..NewCall::default()
            })
            .leave(0, 0, &[NewSnapshot::pointee(0, &0x800_u64.to_le_bytes())]);
        builder.write(&path).unwrap();
        path
    }

    #[test]
    fn defects_of_this_driver_are_told() {
        let trace = recorded(&std::env::temp_dir());
        let check = |driver: Option<&DriverWithDevices>, trace: Option<&Path>| {
            let mut out = Vec::new();
            let mut checks = Checklist::new(Format::Text, &mut out);
            super::check(&mut checks, driver, trace).unwrap();
            checks.finish().unwrap();
            let text = String::from_utf8(out).unwrap();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for (driver, given, has, lacks) in [
            (None, false, "", "errata"),
            (None, true, "errata not looked for", "published"),
            (
                Some(facts(11000, &[(8, 0)])),
                false,
                "errata no published defect",
                "driver-",
            ),
            (
                Some(facts(13000, &[(9, 0)])),
                false,
                "driver-host-numa-allocation",
                "driver-tensor-map",
            ),
            (
                Some(facts(13000, &[(9, 0), (10, 0)])),
                false,
                "driver-tensor-map-small-allocation",
                "defect ",
            ),
            (
                Some(facts(13000, &[(9, 0)])),
                true,
                "defect driver-host-numa-allocation: call 0 of",
                "meets no",
            ),
            (
                Some(facts(13020, &[(9, 0)])),
                true,
                "meets no published defect of this driver",
                "defect driver-",
            ),
        ] {
            let text = check(driver.as_ref(), given.then_some(trace.as_path()));
            assert!(text.contains(has), "{driver:?}: {text}");
            assert!(!text.contains(lacks), "{driver:?}: {text}");
        }
        std::fs::remove_file(trace).unwrap();
    }
}
