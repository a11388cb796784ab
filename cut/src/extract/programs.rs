//! `extract --launch` and `--all`: launches as programs that check themselves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use cutape_analyzer::demangle::demangle;
use cutape_format::{Call, Trace};
use cutape_model::function_of;
use cutape_registry::Family;
use cutape_render::{Completeness, quantity};
use cutape_replay::{ExchangeCounts, Moments, Observation, Observed, ObservedCall, Reach, Report};
use serde::Serialize;

use crate::Observe;
use crate::error::Error;
use crate::extract::description::{Files, describe};
use crate::extract::folder::OutputFolder;
use crate::extract::readme;
use crate::extract::selection::{Launch, Number};
use crate::image_files::{ImageFacts, RecordedImage, RecordedImages};

/// One file for the user, in pieces by subject.
const SOURCE: &str = concat!(
    include_str!("program/launch/driver.cpp"),
    include_str!("program/launch/description.cpp"),
    include_str!("program/launch/memory.cpp"),
    include_str!("program/launch/module.cpp"),
    include_str!("program/launch/texture.cpp"),
    include_str!("program/launch/compare.cpp"),
    include_str!("program/launch/run.cpp"),
);
const SCRIPT: &str = include_str!("program/launch.py");
const RUNNER: &str = include_str!("program/run_all.py");
const CMAKE: &str = include_str!("program/CMakeLists.txt");
/// With a sample, a launched graph gives at most this part of it.
const NODES: usize = 4;
/// The file of contents.
const CONTENTS: &str = "memory.bin";

/// What was extracted.
#[derive(Debug, Default, Serialize)]
pub struct LaunchIndex {
    /// The trace.
    trace: String,
    /// Divergences of the replay that gave the contents of memory.
    divergences: u64,
    /// What that replay left out because other ranks are not here, and put back.
    exchanges: ExchangeCounts,
    /// Bytes of the file of contents.
    contents_bytes: u64,
    launches: Vec<Extracted>,
    /// Calls of launches that were not extracted, by reason.
    left_out: BTreeMap<String, Vec<u64>>,
    /// Launches that are captured into graphs.
    captured: u64,
    #[serde(flatten)]
    state: Completeness,
    #[serde(skip)]
    notes: String,
}

/// An extracted launch.
#[derive(Debug, Serialize)]
pub struct Extracted {
    /// Its description.
    file: String,
    call: u64,
    /// Which kernel node of the graph that the call launches.
    node: Option<u32>,
    /// As in the source.
    kernel: String,
    /// Bytes of memory that it can reach.
    memory_bytes: u64,
}

/// What launches are extracted from, and how much of it.
pub struct Extraction<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// Of longer allocations, that many bytes are taken from each address.
    pub longest: u64,
    /// The most bytes of memory contents; launches that do not fit are left out.
    pub most_bytes: u64,
    /// The number of launches, if they are a sample.
    pub sample: Option<usize>,
    /// The replay is on the null driver, which runs no kernels.
    pub is_null_driver: bool,
    /// Replays the trace.
    pub observe: &'a Observe<'a>,
}

/// A replay around launches, and the images that they need.
struct Material {
    observed: Observed,
    images: RecordedImages,
    /// Of each image, by its number.
    facts: Vec<ImageFacts>,
    /// What the reader must know of the replay, a line each.
    notes: String,
}

/// Replays, and reads the memory of launches.
fn gather(
    extraction: &Extraction<'_>,
    launches: &[Launch],
    folder: &OutputFolder<'_>,
) -> Result<Material, Error> {
    let last = launches.last().map_or(0, |launch| launch.call);
    let loads = |call: &Call<'_>| {
        let family = function_of(call.signature).map(|function| function.family);
        let loads = matches!(family, Some(Family::ModuleLoad(_) | Family::LibraryLoad(_)));
        loads && call.succeeded() && call.index < last
    };
    let images = RecordedImages::read(extraction.trace, loads);
    let facts: Vec<ImageFacts> = images.list.iter().map(RecordedImage::facts).collect();
    let of_image = |image: &RecordedImage| Some(facts.get(image.number)?.variables.clone());
    let moments = |launch: &Launch| Moments {
        reach: Reach::Launch,
        before: true,
        after: true,
        node: launch.node,
    };
    let observation = Observation {
        calls: launches
            .iter()
            .map(|launch| (launch.call, moments(launch)))
            .collect(),
        variables: images
            .calls()
            .filter_map(|(call, image)| Some((call, of_image(image)?)))
            .filter(|(_, names)| !names.is_empty())
            .collect(),
        contents: folder.path(CONTENTS),
        longest: extraction.longest,
        most_nodes: extraction.sample.map(|most| (most / NODES).max(1)),
        most_bytes: extraction.most_bytes,
        ..Observation::default()
    };
    let observed = (extraction.observe)(&observation).map_err(Error::Unusable)?;
    let notes = notes(extraction.is_null_driver, &observed.report);
    Ok(Material {
        observed,
        images,
        facts,
        notes,
    })
}

/// The image that a call loads, or why the trace does not have it, in a phrase.
fn image_of(images: &RecordedImages, loaded: u64) -> Result<&RecordedImage, String> {
    images.of_call(loaded).ok_or_else(|| {
        let why = images.missing.get(&loaded);
        let why = why.map_or("it is loaded from a private table", String::as_str);
        format!("the image that call {loaded} loads is not in the trace: {why}")
    })
}

/// The description of a launch, and the images that it names. `name` gives the file of an image.
fn described<'m>(
    trace: &Trace,
    material: &'m Material,
    observed: &ObservedCall,
    contents: &str,
    name: &dyn Fn(&RecordedImage) -> String,
) -> Result<(String, Vec<&'m RecordedImage>), String> {
    if let Some(why) = &observed.refused {
        return Err(why.clone());
    }
    let loaded = observed.launch.as_ref().and_then(|launch| launch.loaded);
    let image = loaded.and_then(|loaded| material.images.of_call(loaded));
    let facts = image.and_then(|image| material.facts.get(image.number));
    if facts.is_some_and(|facts| facts.uses_heap) {
        let why = "its image calls malloc or free: the heap of the device is not extracted";
        return Err(why.to_owned());
    }
    let used = RefCell::default();
    let image = |loaded| {
        let image = image_of(&material.images, loaded)?;
        BTreeMap::insert(&mut used.borrow_mut(), image.number, image);
        Ok(name(image))
    };
    let files = Files {
        contents,
        image: &image,
    };
    let text = describe(observed, &source_text(trace, observed), &files)?;
    Ok((text, used.into_inner().into_values().collect()))
}

fn source_text(trace: &Trace, observed: &ObservedCall) -> String {
    let name = trace.path().file_name().unwrap_or_default();
    let name = name.to_string_lossy().replace(char::is_control, "?");
    let call = observed.call;
    match observed.node {
        None => format!("call {call} of {name}"),
        Some(node) => format!("kernel node {node} of the graph of call {call} of {name}"),
    }
}

/// Writes the programs, which are the same for all launches.
fn write_programs(folder: &OutputFolder<'_>) -> Result<(), Error> {
    folder.write("launch.cpp", SOURCE)?;
    folder.write("CMakeLists.txt", CMAKE)?;
    folder.write_script("launch.py", SCRIPT)
}

impl Extraction<'_> {
    /// Extracts one launch. Returns what was written, and says so in a few lines.
    ///
    /// # Errors
    /// If it cannot be extracted; errors of writing.
    pub fn one(
        &self,
        launch: &Launch,
        folder: &OutputFolder<'_>,
    ) -> Result<(Extracted, String), Error> {
        let number = Number {
            call: launch.call,
            node: launch.node,
        };
        let material = gather(self, std::slice::from_ref(launch), folder)?;
        let refused = |why: String| {
            Error::Unusable(format!("--launch {number}: it cannot be extracted: {why}"))
        };
        let Some(observed) = material.observed.calls.first() else {
            return Err(refused(match launch.node {
                Some(_) => "the graph has no kernel node of that number".to_owned(),
                None => "the replay does not issue it".to_owned(),
            }));
        };
        if observed.is_captured {
            let why = "it is captured into a graph, and runs when the graph is launched";
            return Err(refused(why.to_owned()));
        }
        if let Some(with) = &observed.exchanges_with {
            return Err(Error::Unusable(format!(
                "--launch {number}: it exchanges data with {with}, so that it cannot be made without \
                 other processes; extract launches that use only memory of their own rank, as --all \
                 does"
            )));
        }
        let loaded = observed.launch.as_ref().and_then(|launch| launch.loaded);
        let own = loaded.and_then(|loaded| material.images.of_call(loaded));
        let name = |image: &RecordedImage| {
            let (number, ending) = (image.number, image.ending());
            match own.is_some_and(|own| own.number == number) {
                true => format!("kernel.{ending}"),
                false => format!("module-{number:03}.{ending}"),
            }
        };
        let text = described(self.trace, &material, observed, CONTENTS, &name);
        let (text, used) = text.map_err(refused)?;
        for image in used {
            folder.write(&name(image), &image.bytes)?;
        }
        folder.write("launch.txt", text)?;
        write_programs(folder)?;
        let summary = readme::Summary::of(self.trace, &material.observed, observed);
        folder.write(
            "README.md",
            readme::of_launch(&summary, &own.map(name).unwrap_or_default()),
        )?;
        let target = folder.target.display();
        let text = format!(
            "{target}: {} of call {number}, {} of memory in {} ({} in {CONTENTS})\n\
             {}run it with `python3 {target}/launch.py`; {target}/README.md says more\n",
            summary.kernel,
            quantity::bytes(summary.memory_bytes),
            quantity::count(observed.memory.len() as u64, "range"),
            quantity::bytes(material.observed.bytes),
            material.notes,
        );
        let extracted = Extracted {
            file: "launch.txt".to_owned(),
            call: launch.call,
            node: launch.node,
            memory_bytes: summary.memory_bytes,
            kernel: summary.kernel,
        };
        Ok((extracted, text))
    }

    /// Extracts launches into one folder.
    ///
    /// # Errors
    /// If none can be extracted; errors of replaying and writing.
    pub fn all(
        &self,
        launches: &[Launch],
        folder: &OutputFolder<'_>,
    ) -> Result<LaunchIndex, Error> {
        let material = gather(self, launches, folder)?;
        let trace = self.trace;
        folder.make_folder("images")?;
        folder.make_folder("launches")?;
        let mut index = LaunchIndex {
            trace: trace.path().display().to_string(),
            state: Completeness::of(trace),
            divergences: material.observed.report.divergence_count,
            exchanges: material.observed.report.exchanges.clone(),
            contents_bytes: material.observed.bytes,
            notes: material.notes.clone(),
            ..LaunchIndex::default()
        };
        let mut written = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for observed in &material.observed.calls {
            seen.insert(observed.call);
            if observed.is_captured {
                index.captured += 1;
                continue;
            }
            let name =
                |image: &RecordedImage| format!("images/{:03}.{}", image.number, image.ending());
            let beside = |image: &RecordedImage| format!("../{}", name(image));
            let contents = format!("../{CONTENTS}");
            match described(trace, &material, observed, &contents, &beside) {
                Ok((text, used)) => {
                    for image in used {
                        if written.insert(image.number) {
                            folder.write(&name(image), &image.bytes)?;
                        }
                    }
                    let node = observed.node.map(|node| format!(".{node}"));
                    let name = format!("{:06}{}", observed.call, node.unwrap_or_default());
                    let file = format!("launches/{name}.txt");
                    folder.write(&file, text)?;
                    let kernel = observed
                        .launch
                        .as_ref()
                        .map(|launch| demangle(&launch.kernel));
                    index.launches.push(Extracted {
                        file,
                        call: observed.call,
                        node: observed.node,
                        kernel: kernel.unwrap_or_default(),
                        memory_bytes: observed.memory.iter().map(|memory| memory.length).sum(),
                    });
                }
                Err(why) => index.leave_out(&why, observed.call),
            }
        }
        for launch in launches
            .iter()
            .filter(|launch| !seen.contains(&launch.call))
            // A graph may have no kernel nodes.
            .filter(|launch| !launch.is_graph)
        {
            index.leave_out("the replay does not issue it", launch.call);
        }
        write_programs(folder)?;
        folder.write_script("run_all.py", RUNNER)?;
        let json = serde_json::to_string_pretty(&index).unwrap_or_default() + "\n";
        folder.write("index.json", json)?;
        let replay = readme::Replay::of(trace, &material.observed);
        folder.write(
            "README.md",
            readme::of_all(&replay, &launches_text(index.launches.len())),
        )?;
        index.check()?;
        Ok(index)
    }
}

/// What the reader must know of a replay.
fn notes(is_null_driver: bool, report: &Report) -> String {
    let mut notes = String::new();
    if is_null_driver {
        notes += "note: the null driver runs no kernels, so memory is expected to stay as it is; \
                  extract on a machine with a GPU\n";
    }
    if report.divergence_count > 0 {
        let count = quantity::count(report.divergence_count, "divergence");
        let _ = writeln!(
            notes,
            "note: the replay that gave the memory has {count}; `cutape replay` lists them"
        );
    }
    for cause in &report.consequences {
        let _ = writeln!(
            notes,
            "note: calls from {} on were not re-issued because of {}: memory may not be what it \
             was",
            cause.first, cause.cause
        );
    }
    notes + &of_exchanges(&report.exchanges)
}

/// What the replay left out because other ranks are not here.
fn of_exchanges(exchanges: &ExchangeCounts) -> String {
    let mut notes = String::new();
    let count: u64 = exchanges.left_out.iter().map(|left| left.count).sum();
    if count > 0 {
        let _ = writeln!(
            notes,
            "note: {} with other ranks left out; what they changed was put back: {}",
            quantity::count(count, "exchange"),
            quantity::count(exchanges.bytes_put, "byte")
        );
    }
    if let Some(first) = &exchanges.first_missing {
        let _ = writeln!(
            notes,
            "note: what call {} changed is missing: {}; from there on memory is not what the program had",
            first.call, first.why
        );
    }
    notes
}

/// `1 launch`, `1,234 launches`.
fn launches_text(count: usize) -> String {
    match count {
        1 => "1 launch".to_owned(),
        count => format!("{} launches", quantity::grouped(count as u64)),
    }
}

impl LaunchIndex {
    /// Groups a reason with those of other launches that differ in addresses only.
    fn leave_out(&mut self, why: &str, call: u64) {
        const MEMORY: &str = "memory is left out: ";
        let reason = match why.strip_prefix(MEMORY) {
            Some(which) => format!("{MEMORY}{}", which.rsplit(": ").next().unwrap_or(which)),
            None => why.to_owned(),
        };
        self.left_out.entry(reason).or_default().push(call);
    }

    /// The error if nothing was extracted.
    fn check(&self) -> Result<(), Error> {
        if !self.launches.is_empty() {
            return Ok(());
        }
        let reason = self.left_out.iter().next().map(|(why, calls)| {
            let first = calls.first().copied().unwrap_or_default();
            format!(": call {first}: {why}")
        });
        let reason = reason.unwrap_or_else(|| match self.captured {
            0 => ": the graphs have no kernel nodes".to_owned(),
            _ => ": all are captured into graphs".to_owned(),
        });
        Err(Error::Unusable(format!(
            "none of the launches can be extracted{reason}"
        )))
    }

    /// What was written, in a few lines.
    pub fn summary(&self, folder: &Path) -> String {
        let folder = folder.display();
        let mut text = format!(
            "{folder}: {}, {} in {CONTENTS}\n",
            launches_text(self.launches.len()),
            quantity::bytes(self.contents_bytes)
        );
        text += &self.notes;
        for (reason, calls) in &self.left_out {
            let first = calls.first().copied().unwrap_or_default();
            let count = calls.len();
            let _ = writeln!(
                text,
                "left out: {count}, the first at call {first}: {reason}"
            );
        }
        if self.captured > 0 {
            let _ = writeln!(text, "captured into graphs: {}", self.captured);
        }
        let _ = writeln!(text, "run them with `python3 {folder}/run_all.py`");
        text
    }
}
