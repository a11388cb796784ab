//! What the driver exports, and what it says about itself.

use std::io::Write;
use std::path::Path;

use cutape_analyzer::decode::text;
use cutape_driver::Driver;
use cutape_recording::forward;
use cutape_registry::id;
use cutape_terminal::failure::Failure;

use crate::checklist::Checklist;

/// How many functions missing from an older driver are listed.
const SHOWN_MISSING: usize = 20;

/// Compares the driver's exported functions with the registry.
pub(crate) fn exports(
    checks: &mut Checklist<impl Write>,
    path: &Path,
    interposer: Option<&Path>,
) -> Result<(), Failure> {
    let names = match forward::exported(path) {
        Ok(names) => names,
        Err(why) => return checks.line("exports", format!("cannot be read: {why}")),
    };
    let (known, unknown): (Vec<&str>, Vec<&str>) = names
        .iter()
        .map(String::as_str)
        .partition(|name| forward::is_known(name));
    let missing: Vec<&str> = cutape_registry::FUNCTIONS
        .iter()
        .map(|function| function.name)
        .filter(|name| known.binary_search(name).is_err())
        .collect();
    let obstacle = match interposer {
        _ if unknown.is_empty() => None,
        Some(path) => forward::interposer(path)
            .err()
            .or_else(|| forward::obstacle(&std::env::temp_dir())),
        None => Some("the interposer is missing".to_owned()),
    };
    let forwarded = match obstacle {
        None => unknown.len(),
        Some(_) => 0,
    };
    let (all, recorded) = (names.len(), known.len());
    let covered = recorded + forwarded;
    let counts = format!("{recorded} recorded, {forwarded} forwarded");
    checks.line(
        "exports",
        format!("{covered} of {all} functions covered: {counts}"),
    )?;
    // Forwarded functions work as without cutape; the trace names their first call.
    match obstacle {
        None => list(checks, "forwarded", &unknown, usize::MAX)?,
        Some(why) => {
            let names = unknown.join(" ");
            checks.advise("not found", &format!("{why}: {names}"))?;
        }
    }
    list(checks, "missing", &missing, SHOWN_MISSING)
}

fn list(
    checks: &mut Checklist<impl Write>,
    what: &str,
    names: &[&str],
    most: usize,
) -> Result<(), Failure> {
    let mut words: Vec<String> = names.iter().take(most).map(|&name| name.into()).collect();
    if names.len() > most {
        words.push(format!("and {} more", names.len() - most));
    }
    match words.is_empty() {
        true => Ok(()),
        false => checks.paragraph(what, &words.join(" ")),
    }
}

/// The driver's version, if it can be asked, and the compute capabilities of its devices.
pub(crate) type Devices = (Option<i32>, Vec<Option<(u16, u16)>>);

/// Initialises the driver and lists its devices.
pub(crate) fn devices(checks: &mut Checklist<impl Write>, path: &Path) -> Result<Devices, Failure> {
    let mut capabilities = Vec::new();
    let driver = match Driver::open(path) {
        Ok(driver) => driver,
        Err(error) => {
            checks.fail("loading", format!("FAILS: {error}"))?;
            return Ok((None, capabilities));
        }
    };
    let ask = |function: u16, arguments: &[u64]| -> String {
        // SAFETY: the calls below pass the arguments that these functions take; their outputs are
        // valid for writes.
        match unsafe { driver.call(function, arguments) } {
            Ok(0) => String::new(),
            Ok(code) => {
                cutape_registry::result_name(code).map_or_else(|| code.to_string(), str::to_owned)
            }
            Err(error) => error.to_string(),
        }
    };
    let (mut version, mut count) = (0i32, 0i32);
    let answer = ask(id::cuDriverGetVersion, &[(&raw mut version) as u64]);
    let known = answer.is_empty().then_some(version);
    let shown = match known {
        Some(version) => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        None => answer,
    };
    checks.line("version", shown)?;
    let answer = ask(id::cuInit, &[0]);
    if !answer.is_empty() {
        checks.fail("cuInit", format!("FAILS: {answer}"))?;
        return Ok((known, capabilities));
    }
    ask(id::cuDeviceGetCount, &[(&raw mut count) as u64]);
    for ordinal in 0..count.clamp(0, 64) {
        let mut name = [0u8; 256];
        let (mut memory, mut major, mut minor) = (0u64, 0i32, 0i32);
        let device = ordinal as u64;
        ask(
            id::cuDeviceGetName,
            &[name.as_mut_ptr() as u64, name.len() as u64, device],
        );
        ask(id::cuDeviceTotalMem_v2, &[(&raw mut memory) as u64, device]);
        for (attribute, value) in [(75, &raw mut major), (76, &raw mut minor)] {
            ask(id::cuDeviceGetAttribute, &[value as u64, attribute, device]);
        }
        let capability = u16::try_from(major).ok().zip(u16::try_from(minor).ok());
        capabilities.push(capability.filter(|capability| capability.0 > 0));
        let name = text(&name);
        let gigabytes = memory as f64 / f64::from(1 << 30);
        checks.line(
            &format!("device {ordinal}"),
            format!("{name}, compute capability {major}.{minor}, {gigabytes:.1} GiB"),
        )?;
    }
    Ok((known, capabilities))
}

#[cfg(test)]
mod tests {
    use cutape_terminal::output::Format;

    use super::*;

    #[test]
    fn lists_are_wrapped_and_end() {
        let long = "x".repeat(90);
        let many = vec!["cuMemcpyHtoDAsync_v2_ptsz"; 50];
        for (names, most, text) in [
            (vec![], 2, Some(String::new())),
            (vec!["cuA"], 2, Some("names         cuA\n".to_owned())),
            (
                vec!["cuA", "cuB", "cuC"],
                2,
                Some("names         cuA cuB and 1 more\n".to_owned()),
            ),
            (
                vec!["cuA", &long],
                2,
                Some(format!("names         cuA\n              {long}\n")),
            ),
            (many, usize::MAX, None),
        ] {
            let mut out = Vec::new();
            let mut checks = Checklist::new(Format::Text, &mut out);
            list(&mut checks, "names", &names, most).unwrap();
            assert_eq!(checks.finish().unwrap(), 0);
            let written = String::from_utf8(out).unwrap();
            match text {
                Some(text) => assert_eq!(written, text),
                None => assert!(written.lines().all(|line| line.len() <= 80), "{written}"),
            }
        }
    }
}
