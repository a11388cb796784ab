//! Selects and names what to measure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;

use cutape_analyzer::decode::function_of;
use cutape_analyzer::suggestion::did_you_mean;
use cutape_format::Trace;
use cutape_registry::{Family, StreamOp};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::matrix::WHOLE_TRACE;
use crate::replacement::{self, ReplaceOption};
use crate::settings::{Comparison, Settings, folder_of};
use cutape_analyzer::demangle::{demangle, last_name};
use cutape_calls::{CallSet, Chooser, no_kernel};
use cutape_model::{LaunchShape, Scope, TraceState};

/// The longest part of a name that comes from a kernel or a set.
const LONGEST: usize = 36;

/// What to measure.
#[derive(Debug, Default)]
pub struct Selection {
    /// The selected calls, by index.
    pub(crate) calls: BTreeSet<u64>,
    /// With `--each-kernel` the launches, else one entry for all calls.
    pub(crate) subjects: Vec<Subject>,
    /// By kernel: launches of kernels that are launched only in stream captures.
    pub(crate) captured: BTreeMap<String, u64>,
    /// The replacements of kernels, by index of the launch.
    pub(crate) replacements: HashMap<u64, cutape_replay::Replacement>,
}

/// One benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// Index of the launch, or of the first selected call.
    pub call: u64,
    /// Also the name of the benchmark's folder.
    pub name: String,
    /// The kernel's name as in the source.
    pub kernel: Option<String>,
    /// The number of this launch among those of the kernel and shape, from 1.
    pub number: u64,
    /// The number of such launches, or of selected calls.
    pub count: u64,
}

impl Selection {
    /// Selects the calls, and reads the images of `--replace`.
    ///
    /// # Errors
    /// If no call matches, or a kernel or file of `--replace` does not fit.
    pub fn of(trace: &Trace, settings: &Settings) -> Result<Self, Error> {
        let set = settings.calls.as_deref();
        let set = set
            .map(|text| CallSet::for_trace(text, trace))
            .transpose()?;
        replacement::tolerance(settings.tolerance.as_deref())?;
        let mut options = replacement::parse("--replace", &settings.replace)?;
        let mut selection = match settings.by_kernel() {
            true => launches(trace, set.as_ref(), &mut options, settings.launches.max(1))?,
            false => together(trace, set.as_ref(), settings.calls.as_deref()),
        };
        if let Some(unused) = options.iter().find(|option| !option.is_used) {
            return Err(Error(format!(
                "--replace {}: {}",
                unused.glob,
                match set {
                    Some(_) => "no such kernel is launched among --calls".to_owned(),
                    None => no_kernel(&unused.glob, trace),
                }
            )));
        }
        if selection.calls.is_empty() {
            if let (Some(text), Some(set)) = (&settings.calls, &set) {
                set.some_calls(text, trace)?;
            }
            let what = match (&settings.calls, settings.by_kernel()) {
                (Some(text), true) => format!("--calls {text}: no launch of the trace matches"),
                (Some(text), false) => format!("--calls {text}: no call of the trace matches"),
                (None, true) => format!(
                    "{}: the trace launches no kernel outside stream captures",
                    trace.path().display()
                ),
                (None, false) => format!("{}: the trace has no calls", trace.path().display()),
            };
            return Err(Error(what));
        }
        number_duplicates(&mut selection.subjects);
        Ok(selection)
    }

    /// Whether a trace launches a kernel that can be measured separately.
    pub fn has_kernels(trace: &Trace) -> bool {
        launches(trace, None, &mut [], 1).is_ok_and(|selection| !selection.calls.is_empty())
    }

    /// Rejects a missing baseline before anything is measured.
    ///
    /// # Errors
    /// If none of the subjects has been measured under that name.
    pub fn expect_baseline(&self, settings: &Settings) -> Result<(), Error> {
        let Comparison::Against(baseline) = &settings.comparison else {
            return Ok(());
        };
        let exists = self.subjects.iter().any(|subject| {
            settings.clocks.iter().any(|&clock| {
                let folder = settings.output.join(folder_of(clock)).join(&subject.name);
                folder.join(baseline).join("estimates.json").is_file()
            })
        });
        if exists {
            return Ok(());
        }
        let saved = self.saved_baselines(settings);
        Err(Error(format!(
            "--baseline {baseline}: not found in {} for these measurements; measure once with \
             --save-baseline {baseline}{}",
            settings.output.display(),
            did_you_mean(baseline, saved.iter().map(String::as_str))
        )))
    }

    /// The names of earlier measurements of these subjects.
    fn saved_baselines(&self, settings: &Settings) -> BTreeSet<String> {
        let folders = settings.clocks.iter().flat_map(|&clock| {
            let folder = settings.output.join(folder_of(clock));
            let subjects = self.subjects.iter();
            subjects.map(move |subject| folder.join(&subject.name))
        });
        let entries =
            folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let saved = entries.filter(|entry| entry.path().join("estimates.json").is_file());
        let names = saved.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // criterion's own: the latest measurement, the one before, their comparison.
        names
            .filter(|name| !["new", "base", "change"].contains(&name.as_str()))
            .collect()
    }
}

/// All selected calls as one subject.
fn together(trace: &Trace, set: Option<&CallSet>, text: Option<&str>) -> Selection {
    let calls: BTreeSet<u64> = match set {
        Some(set) => set.calls(trace).collect(),
        None => trace.calls().map(|call| call.index).collect(),
    };
    let name = text.map_or_else(
        || WHOLE_TRACE.to_owned(),
        |text| format!("calls {}", distinct(text, text)),
    );
    let subjects = calls.first().map(|&call| Subject {
        call,
        name,
        kernel: None,
        number: 1,
        count: calls.len() as u64,
    });
    Selection {
        subjects: subjects.into_iter().collect(),
        calls,
        ..Selection::default()
    }
}

/// The first `most` launches of each kernel in each shape.
fn launches(
    trace: &Trace,
    set: Option<&CallSet>,
    options: &mut [ReplaceOption],
    most: usize,
) -> Result<Selection, Error> {
    let mut state = TraceState::new(Scope::Kernels);
    let mut chooser = set.map(|set| Chooser::new(set, trace));
    let mut selection = Selection::default();
    let mut known: HashMap<(String, String), u64> = HashMap::new();
    let mut capturing = HashSet::new();
    let mut keys = Vec::new();
    for call in trace.calls() {
        state.observe(&call);
        if let Some(chooser) = &mut chooser {
            chooser.observe(&call);
        }
        let Some(function) = function_of(call.signature) else {
            continue;
        };
        let op = match function.family {
            Family::Launch(op) => op,
            Family::Stream(StreamOp::BeginCapture) if call.succeeded() => {
                capturing.insert(call.argument(0));
                continue;
            }
            Family::Stream(StreamOp::EndCapture) => {
                capturing.remove(&call.argument(0));
                continue;
            }
            _ => continue,
        };
        if op.function().is_none() || !call.succeeded() {
            continue;
        }
        let kernel = state.launched_kernel(&call);
        if chooser
            .as_ref()
            .is_some_and(|chooser| !chooser.contains(&call, kernel))
        {
            continue;
        }
        let kernel = kernel.unwrap_or("unnamed").to_owned();
        let replacement = match options.is_empty() {
            true => None,
            false => match replacement::for_kernel(options, &kernel)? {
                Some(found) => Some(found),
                None => continue,
            },
        };
        if !capturing.is_empty() {
            *selection.captured.entry(demangle(&kernel)).or_default() += 1;
            continue;
        }
        let shape = shape_text(&LaunchShape::of(function, &call));
        let number = known.entry((kernel.clone(), shape.clone())).or_default();
        *number += 1;
        if *number > most as u64 {
            continue;
        }
        let number = *number;
        let readable = demangle(&kernel);
        selection.calls.insert(call.index);
        selection
            .replacements
            .extend(replacement.map(|found| (call.index, found)));
        selection.subjects.push(Subject {
            call: call.index,
            name: format!("{}[{shape}]", short(&kernel, &readable)),
            kernel: Some(readable),
            number,
            count: 0,
        });
        keys.push((kernel, shape));
    }
    for (subject, key) in selection.subjects.iter_mut().zip(&keys) {
        subject.count = known.get(key).copied().unwrap_or(0);
    }
    let measured = |kernel: &String| {
        let mut subjects = selection.subjects.iter();
        subjects.any(|subject| subject.kernel.as_ref() == Some(kernel))
    };
    let captured = std::mem::take(&mut selection.captured).into_iter();
    let captured = captured.filter(|(kernel, _)| !measured(kernel)).collect();
    selection.captured = captured;
    Ok(selection)
}

/// A readable and unique name of a kernel, for a folder.
fn short(kernel: &str, readable: &str) -> String {
    distinct(&last_name(readable), kernel)
}

/// A readable part for a folder's name, and a hash of the whole if that is more: it tells overloads,
/// instances of templates and long sets apart.
fn distinct(readable: &str, whole: &str) -> String {
    let plain = safe(readable);
    match plain == whole {
        true => plain,
        false => format!("{plain}-{:08x}", hash(whole)),
    }
}

/// FNV-1a: the same in every build.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// A text cut and reduced to characters that are safe in a folder's name.
fn safe(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ',' | '=');
    text.chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .take(LONGEST)
        .collect()
}

/// Grid, block, dynamic shared memory: `4x2,256` or `4,16x16,s1024`.
fn shape_text(shape: &LaunchShape) -> String {
    let extent = |sizes: Option<[u64; 3]>| {
        let sizes = sizes.unwrap_or_default();
        let last = sizes.iter().rposition(|&size| size != 1).unwrap_or(0);
        let words: Vec<String> = sizes.iter().take(last + 1).map(u64::to_string).collect();
        words.join("x")
    };
    let shared = match shape.shared {
        None | Some(0) => String::new(),
        Some(bytes) => format!(",s{bytes}"),
    };
    format!("{},{}{shared}", extent(shape.grid), extent(shape.block))
}

/// A name short enough for criterion, which cuts names at 64 bytes.
fn fitting(name: &str) -> String {
    const LONGEST: usize = 58;
    match name.len() > LONGEST {
        // Names are ASCII.
        true => format!("{}-{:08x}", &name[..LONGEST - 9], hash(name)),
        false => name.to_owned(),
    }
}

/// Appends numbers to duplicate names.
fn number_duplicates(subjects: &mut [Subject]) {
    let mut seen: HashMap<String, u32> = HashMap::new();
    for subject in subjects {
        subject.name = fitting(&subject.name);
        let times = seen.entry(subject.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            subject.name += &format!("-{times}");
        }
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, TraceBuilder};

    use super::*;
    use cutape_render::test_trace;

    #[test]
    fn names_are_safe_and_unique() {
        for (kernel, readable, begin) in [
            ("saxpy", "saxpy", "saxpy"),
            (
                "_Z5saxpyifPfS_",
                "saxpy(int, float, float*, float*)",
                "saxpy-",
            ),
            (
                "_ZN2at6native3addIfEEvT_",
                "void at::native::add<float>(float)",
                "add-",
            ),
            (
                "_ZN2at6native43_GLOBAL__N__x25multi_tensor_apply_kernelIfEEvT_",
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::Adam<4> >(float)",
                "multi_tensor_apply_kernel-",
            ),
            (
                "_ZN8internal5gemvx6kernelIfEENSt9enable_ifIXntLb0EEvE4typeET_",
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<float> (float)",
                "kernel-",
            ),
            ("a/b", "a/b", "a_b-"),
        ] {
            let name = short(kernel, readable);
            assert!(name.starts_with(begin), "{name}");
            assert!(!name.contains(['/', '<', '(', ' ', ':']), "{name}");
        }
        assert_ne!(
            short(
                "_ZN2at6native3addIfEEvT_",
                "void at::native::add<float>(float)"
            ),
            short(
                "_ZN2at6native3addIdEEvT_",
                "void at::native::add<double>(double)"
            )
        );
        assert_eq!(distinct("100..200", "100..200"), "100..200");
        let glob = "100..200,kernel:a*";
        assert!(distinct(glob, glob).starts_with("100..200,kernel_a_-"));
        let long = |end: &str| format!("kernel:{}{end}", "x".repeat(40));
        let [one, two] = ["1", "2"].map(|end| distinct(&long(end), &long(end)));
        assert_ne!(one, two);
        for (name, kept) in [("x".repeat(58), true), ("x".repeat(59), false)] {
            assert_eq!(fitting(&name) == name, kept);
            assert_eq!(fitting(&name).len(), 58);
        }
    }

    #[test]
    fn the_first_launches_of_each_kernel_and_shape() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        test_trace::get_function(&mut builder, 0x51, "fill"); // 0
        test_trace::get_function(&mut builder, 0x52, "copy"); // 1
        for (handle, grid) in [
            (0x51, [4, 1, 1]), // 2
            (0x51, [4, 1, 1]), // 3
            (0x52, [4, 1, 1]), // 4
            (0x51, [2, 2, 1]), // 5
            (0x51, [4, 1, 1]), // 6
        ] {
            test_trace::launch(&mut builder, handle, grid);
        }
        let stream = |builder: &mut TraceBuilder, name, arguments: &[u64]| {
            builder
                .call(NewCall {
                    name,
                    arguments,
                    ..NewCall::default()
                })
                .leave(0, 0, &[]);
        };
        stream(&mut builder, "cuStreamBeginCapture_v2", &[0x9, 0]); // 7
        test_trace::get_function(&mut builder, 0x53, "inside"); // 8
        test_trace::launch(&mut builder, 0x53, [1, 1, 1]); // 9
        test_trace::launch(&mut builder, 0x51, [4, 1, 1]); // 10
        stream(&mut builder, "cuStreamEndCapture", &[0x9, 0x7000]); // 11
        let trace = test_trace::open(&builder, "bench-subjects");
        for (most, expected) in [
            (1, &[(2, 1, 3), (4, 1, 1), (5, 1, 1)][..]),
            (2, &[(2, 1, 3), (3, 2, 3), (4, 1, 1), (5, 1, 1)]),
            (9, &[(2, 1, 3), (3, 2, 3), (4, 1, 1), (5, 1, 1), (6, 3, 3)]),
        ] {
            let selection = launches(&trace, None, &mut [], most).unwrap();
            let found: Vec<_> = selection
                .subjects
                .iter()
                .map(|subject| (subject.call, subject.number, subject.count))
                .collect();
            assert_eq!(found, expected, "{most}");
            let captured: Vec<_> = selection.captured.into_iter().collect();
            assert_eq!(
                captured,
                [("inside".to_owned(), 1)],
                "fill is measured elsewhere"
            );
        }
        let set = CallSet::parse("kernel:copy").unwrap();
        let selection = launches(&trace, Some(&set), &mut [], 1).unwrap();
        assert_eq!(selection.calls.into_iter().collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn duplicate_names_get_numbers() {
        let subject = |call, name: &str| Subject {
            call,
            name: name.to_owned(),
            kernel: None,
            number: 1,
            count: 1,
        };
        let mut subjects = [subject(1, "a"), subject(2, "b"), subject(3, "a")];
        number_duplicates(&mut subjects);
        let names: Vec<&str> = subjects.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "a-2"]);
    }
}
