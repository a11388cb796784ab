//! `--set` and `--save`: host bytes that a replay takes from files and puts into files.
//!
//! `names` has the names of a trace's inputs and outputs.

mod names;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutape_format::layout::field;
use cutape_format::{Call, Snapshot, Trace};
use cutape_model::{CallArguments, function_of};
use cutape_registry::{CopyOp, Family, Function, Param, Role};
use cutape_render::npy::{Format, Header};
use cutape_render::text::shown;

use crate::options::{GivenInput, Outputs};
use crate::report::Report;

pub use names::CallsOf;
use names::{Direction, Names, Place};

/// A file for the host bytes of a call.
#[derive(Debug)]
struct HostFile {
    call: u64,
    path: PathBuf,
    /// It is one of numpy.
    npy: Option<Format>,
}

/// The files of `--set` and `--save`. Errors are one line.
#[derive(Debug, Default)]
pub struct HostFiles {
    inputs: Vec<HostFile>,
    outputs: Vec<HostFile>,
}

impl HostFiles {
    /// Parses the values of `--set` and `--save`, and checks them against the trace and the files
    /// of inputs. Names are those of the file `io`, by default of that beside the trace.
    ///
    /// # Errors
    /// If a value names no host memory of a call, or its file does not fit.
    pub fn of(
        trace: &Trace,
        set: &[String],
        save: &[String],
        io: Option<&Path>,
        calls_of: &CallsOf<'_>,
    ) -> Result<Self, String> {
        let mut files = Self::default();
        let mut names = None;
        for (option, direction, texts) in [
            ("--set", Direction::Input, set),
            ("--save", Direction::Output, save),
        ] {
            for text in texts {
                let wrong = |why: String| format!("{option} '{text}': {why}");
                let (place, path, format) = parse(text).map_err(wrong)?;
                let mut place = match place {
                    Ok(place) => place,
                    Err(name) => {
                        let names = match &names {
                            Some(names) => names,
                            None => names.insert(Names::beside(trace, io)?),
                        };
                        names.place(name, direction).map_err(wrong)?
                    }
                };
                if let Some(format) = &format {
                    place.set_format(format);
                }
                let call = place.call(trace, calls_of).map_err(wrong)?;
                let found = trace.calls().find(|found| found.index == call);
                let found = found.ok_or_else(|| {
                    wrong(format!("the trace has {} calls", trace.calls().count()))
                })?;
                let bytes = host_bytes(&found, &place.parameter, direction).map_err(wrong)?;
                place.check_length(bytes).map_err(wrong)?;
                let list = match direction {
                    Direction::Input => &mut files.inputs,
                    Direction::Output => &mut files.outputs,
                };
                if list.iter().any(|known| known.call == call) {
                    return Err(wrong(format!("call {call} is named twice")));
                }
                let npy = is_npy(&path).then(|| place.format());
                if direction == Direction::Input {
                    check_file(&path, npy.as_ref(), (call, bytes)).map_err(wrong)?;
                }
                list.push(HostFile { call, path, npy });
            }
        }
        Ok(files)
    }

    /// Checks that the outputs can be written, of each also with `may_write`.
    ///
    /// # Errors
    /// If one cannot.
    pub fn check_outputs(
        &self,
        may_write: &dyn Fn(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut seen: Vec<&Path> = Vec::new();
        for HostFile { path, .. } in &self.outputs {
            let shown = shown(path);
            may_write(path)?;
            if seen.contains(&path.as_path()) {
                return Err(format!("--save: {shown} is named twice"));
            }
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            if folder.is_some_and(|folder| !folder.is_dir()) {
                return Err(format!("--save: {shown}: no such folder"));
            }
            seen.push(path);
        }
        Ok(())
    }

    /// The bytes of the inputs, by call.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn inputs(&self) -> Result<Vec<GivenInput>, String> {
        let read = |file: &HostFile| {
            let wrong = |why: String| format!("{}: {why}", file.path.display());
            let bytes = fs::read(&file.path).map_err(|error| wrong(error.to_string()))?;
            let start = match file.npy {
                Some(_) => Header::parse(&bytes).map_err(wrong)?.length,
                None => 0,
            };
            Ok((file.call, Arc::from(bytes.get(start..).unwrap_or_default())))
        };
        self.inputs.iter().map(read).collect()
    }

    /// What takes the bytes of the outputs; the parent publishes the files, since several children
    /// may be tried.
    pub fn outputs(&self, parent: u32) -> Option<Outputs> {
        if self.outputs.is_empty() {
            return None;
        }
        let files = self.outputs.iter();
        let files: BTreeMap<u64, (PathBuf, Option<Format>)> = files
            .map(|file| (file.call, (partial(&file.path, parent), file.npy.clone())))
            .collect();
        Some(Outputs {
            calls: files.keys().copied().collect(),
            take: Arc::new(move |call, bytes| match files.get(&call) {
                Some((path, npy)) => save(path, npy.as_ref(), bytes),
                None => Ok(()),
            }),
        })
    }

    /// The folders that outputs are written to.
    pub fn output_folders(&self) -> Vec<PathBuf> {
        let paths = self.outputs.iter();
        let whole = paths.filter_map(|file| std::path::absolute(&file.path).ok());
        whole
            .filter_map(|path| path.parent().map(ToOwned::to_owned))
            .collect()
    }

    /// Removes what children have saved.
    pub fn discard(&self) {
        for file in &self.outputs {
            let _ = fs::remove_file(partial(&file.path, std::process::id()));
        }
    }

    /// Gives the saved files their names.
    ///
    /// # Errors
    /// If one is missing, or an input was not used.
    pub fn publish(&self, report: &Report, overwrites: bool) -> Result<(), String> {
        let own = std::process::id();
        let mut problems = Vec::new();
        for HostFile { call, path, .. } in &self.outputs {
            let part = partial(path, own);
            let saved = report.saved.iter().rfind(|saved| saved.call == *call);
            let problem = match saved.map(|saved| &saved.error) {
                Some(None) => name_file(&part, path, overwrites)
                    .err()
                    .map(|error| error.to_string()),
                Some(Some(error)) => Some(error.clone()),
                None => Some("the replay did not make this copy to host memory".to_owned()),
            };
            let _ = fs::remove_file(&part);
            problems.extend(
                problem.map(|why| {
                    format!("--save: call {call}: {why}; {} is not written", shown(path))
                }),
            );
        }
        for HostFile { call, path, .. } in &self.inputs {
            let used = report.replaced.iter().rfind(|used| used.call == *call);
            let problem = match used.map(|used| &used.error) {
                Some(None) => None,
                Some(Some(error)) => Some(error.clone()),
                None => Some("the replay did not make this copy".to_owned()),
            };
            problems.extend(
                problem
                    .map(|why| format!("--set: call {call}: {why}; {} is not used", shown(path))),
            );
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("; ")),
        }
    }
}

/// Gives a file its name; without `--overwrite` not over one that has appeared meanwhile.
fn name_file(part: &Path, path: &Path, overwrites: bool) -> io::Result<()> {
    if overwrites {
        return fs::rename(part, path);
    }
    match fs::hard_link(part, path) {
        // A file system without links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !path.exists() => {
            fs::rename(part, path)
        }
        linked => linked,
    }
}

/// Where a child writes what it saves for a file.
fn partial(path: &Path, parent: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{parent}.partial"))
}

/// Writes what a copy has brought.
fn save(path: &Path, npy: Option<&Format>, bytes: &[u8]) -> Result<(), String> {
    let header = npy.map(|format| format.header(bytes.len() as u64));
    let header = header.transpose()?.unwrap_or_default();
    let written = fs::File::create(path).and_then(|mut file| {
        file.write_all(&header)?;
        file.write_all(bytes)
    });
    written.map_err(|error| error.to_string())
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "npy")
}

/// What a value of `--set` or `--save` says: the place or its name, the file, and its format.
type Parsed<'t> = (Result<Place, &'t str>, PathBuf, Option<Format>);

/// Parses `call 57 srcHost=FILE`, or `NAME=FILE`; behind a `.npy` file there may be its format.
fn parse(text: &str) -> Result<Parsed<'_>, String> {
    const FORM: &str = "write 'call 57 srcHost=FILE', or NAME=FILE with a name of --io";
    let (left, file) = text.split_once('=').ok_or(FORM)?;
    if file.is_empty() {
        return Err(format!("no file after =; {FORM}"));
    }
    let words: Vec<&str> = left.split_whitespace().collect();
    let place = match words[..] {
        ["call", number, parameter] | [number, parameter] => {
            let call = number
                .parse()
                .map_err(|_| format!("{number:?} is not the number of a call; {FORM}"))?;
            Ok(Place::of_call(call, parameter))
        }
        [name] => Err(name),
        _ => return Err(FORM.to_owned()),
    };
    let (file, format) = match file.rsplit_once(".npy:") {
        Some((name, format)) => {
            let format = Format::parse(format)?;
            (PathBuf::from(format!("{name}.npy")), Some(format))
        }
        None => (PathBuf::from(file), None),
    };
    Ok((place, file, format))
}

/// How many bytes of host memory a call reads or writes through a parameter; `None` if only its
/// replay tells.
fn host_bytes(
    call: &Call<'_>,
    parameter: &str,
    direction: Direction,
) -> Result<Option<u64>, String> {
    let name = format!("call {} {}", call.index, call.signature.name);
    let nothing = match direction {
        Direction::Input => {
            "reads no host memory that is recorded; copies do, e.g. cuMemcpyHtoD_v2"
        }
        Direction::Output => "copies nothing to host memory; copies do, e.g. cuMemcpyDtoH_v2",
    };
    let function = function_of(call.signature).ok_or_else(|| format!("{name} is unknown"))?;
    let Some(known) = host_parameter(function, direction) else {
        return Err(format!("{name} {nothing}"));
    };
    if known.name != parameter {
        let verb = match direction {
            Direction::Input => "reads",
            Direction::Output => "writes",
        };
        return Err(format!(
            "{name} has no host memory {parameter:?}; it {verb} {}",
            known.name
        ));
    }
    if !call.succeeded() {
        return Err(format!("{name} failed when it was recorded"));
    }
    let evaluate = |length: cutape_registry::Length| {
        let extent = length.evaluate(function, &CallArguments(call));
        extent.map(|extent| extent.span())
    };
    match (known.role, direction) {
        (Role::HostRead(length) | Role::HostWrite(length), _) => Ok(evaluate(length)),
        (_, Direction::Input) => rows(call.snapshots())
            .map(Some)
            .ok_or_else(|| format!("{name} copies from device memory")),
        (_, Direction::Output) => Ok(call.leave.and_then(|leave| rows(leave.snapshots()))),
    }
}

/// The bytes of rows of host memory among snapshots.
fn rows<'t>(mut snapshots: impl Iterator<Item = Snapshot<'t>>) -> Option<u64> {
    let found = snapshots.find(|snapshot| snapshot.field == field::HOST_BYTES);
    found.and_then(|snapshot| snapshot.bytes.length())
}

/// The parameter through which a function reads or writes host memory that a user may give or take.
fn host_parameter(function: &Function, direction: Direction) -> Option<&Param> {
    let mut params = function.params.iter();
    match function.family {
        Family::Copy(CopyOp::Unified(transfer)) => params.nth(usize::from(match direction {
            Direction::Input => transfer.source,
            Direction::Output => transfer.target,
        })),
        Family::Copy(CopyOp::Described(_)) => params.next(),
        Family::Copy(_) => params.find(|param| match direction {
            Direction::Input => matches!(param.role, Role::HostRead(_)),
            Direction::Output => matches!(param.role, Role::HostWrite(_)),
        }),
        _ => None,
    }
}

/// Checks the file of an input.
fn check_file(
    path: &Path,
    npy: Option<&Format>,
    (call, bytes): (u64, Option<u64>),
) -> Result<(), String> {
    let shown = shown(path);
    let metadata = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{shown}: not a regular file"));
    }
    let Some(format) = npy else {
        return match bytes {
            Some(bytes) if metadata.len() != bytes => Err(format!(
                "call {call} reads {bytes} bytes, {shown} has {}",
                metadata.len()
            )),
            _ => Ok(()),
        };
    };
    let wrong = |why: String| format!("{shown}: {why}");
    let content = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let header = Header::parse(&content).map_err(wrong)?;
    header.check(format).map_err(wrong)?;
    let elements = (content.len() - header.length) as u64;
    if header.bytes() != Some(elements) {
        return Err(wrong(format!(
            "{} of shape {:?} does not have {elements} bytes",
            header.name(),
            header.shape
        )));
    }
    match bytes {
        Some(bytes) if elements != bytes => Err(format!(
            "call {call} reads {bytes} bytes, {shown} has {elements}: {} of shape {:?}",
            header.name(),
            header.shape
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (text, expected) in [
            ("call 57 srcHost=a=b", Some((Ok((57, "srcHost")), "a=b"))),
            ("57 srcHost=x", Some((Ok((57, "srcHost")), "x"))),
            ("weights=w.bin", Some((Err("weights"), "w.bin"))),
            ("weights", None),
            ("weights=", None),
            ("call srcHost=x", None),
            ("call x srcHost=y", None),
            ("call 57 srcHost more=x", None),
            ("=x", None),
        ] {
            let found = parse(text).ok().map(|(place, file, format)| {
                assert_eq!(format, None, "{text}");
                (place, file)
            });
            let expected = expected.map(|(place, file): (Result<(u64, &str), &str>, &str)| {
                let place = place.map(|(call, parameter)| Place::of_call(call, parameter));
                (place, PathBuf::from(file))
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn formats_of_numpy() {
        let (_, file, format) = parse("x=a:b/y.npy:f32[2,3]").unwrap();
        assert_eq!(file, PathBuf::from("a:b/y.npy"));
        assert_eq!(format.unwrap().shape, Some(vec![2, 3]));
        assert_eq!(parse("x=y.bin:f32").unwrap().1, PathBuf::from("y.bin:f32"));
        assert!(parse("x=y.npy:float").is_err());
    }

    #[test]
    fn parameters_of_copies() {
        use Direction::{Input, Output};
        for (function, direction, expected) in [
            ("cuMemcpyHtoD_v2", Input, Some("srcHost")),
            ("cuMemcpyHtoD_v2", Output, None),
            ("cuMemcpyDtoHAsync_v2", Output, Some("dstHost")),
            ("cuMemcpy", Input, Some("src")),
            ("cuMemcpy", Output, Some("dst")),
            ("cuMemcpy2D_v2", Input, Some("pCopy")),
            ("cuMemcpyDtoD_v2", Input, None),
            ("cuLaunchKernel", Input, None),
            ("cuMemcpyBatchAsync", Input, None),
        ] {
            let function = cutape_registry::function(function).unwrap();
            let found = host_parameter(function, direction).map(|param| param.name);
            assert_eq!(found, expected, "{} {direction:?}", function.name);
        }
    }
}
