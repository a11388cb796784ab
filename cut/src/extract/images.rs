//! `extract --images`: every image once, fatbins unpacked, machine code disassembled.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cutape_analyzer::decode::image_word;
use cutape_analyzer::demangle::demangle;
use cutape_format::Trace;
use cutape_image::{CodeKind, Entry, ImageKind};
use cutape_render::text::without_middle;
use cutape_render::{Completeness, quantity};
use serde::Serialize;

use crate::error::Error;
use crate::extract::folder::OutputFolder;
use crate::image_files::{RecordedImage, RecordedImages};

/// Longer names of kernels are cut in index.txt.
const LONGEST_NAME: usize = 160;

/// The images that were written.
#[derive(Debug, Default, Serialize)]
pub struct ImageIndex {
    images: Vec<Image>,
    /// Calls that load an image whose bytes are not in the trace.
    missing: Vec<Missing>,
    /// Which program disassembled machine code.
    disassembler: Option<PathBuf>,
    #[serde(flatten)]
    state: Completeness,
}

impl ImageIndex {
    /// What was written, in a few lines.
    pub fn summary(&self, folder: &Path) -> String {
        let entries = self.images.iter().flat_map(|image| &image.entries);
        let count = |code: &str| entries.clone().filter(|entry| entry.code == code).count() as u64;
        let kernels: usize = entries.clone().map(|entry| entry.kernels.len()).sum();
        let mut text = format!(
            "{}: {} with {}, {} and {} in all; index.txt lists them\n",
            folder.display(),
            quantity::count(self.images.len() as u64, "image"),
            quantity::count(count("cubin"), "cubin"),
            quantity::count(count("PTX"), "PTX text"),
            quantity::count(kernels as u64, "kernel"),
        );
        let sass = entries.clone().filter(|entry| entry.sass.is_some()).count() as u64;
        match &self.disassembler {
            Some(tool) => {
                let files = quantity::count(sass, "cubin");
                let _ = writeln!(text, "{files} disassembled with {}", tool.display());
            }
            None if count("cubin") > 0 => {
                text += "no disassembly: neither nvdisasm nor cuobjdump is on the search path\n";
            }
            None => {}
        }
        if !self.missing.is_empty() {
            let loads = quantity::count(self.missing.len() as u64, "load");
            let _ = writeln!(text, "the images of {loads} are not in the trace");
        }
        text
    }
}

#[derive(Debug, Serialize)]
struct Missing {
    call: u64,
    why: String,
}

#[derive(Debug, Serialize)]
struct Image {
    file: String,
    image: &'static str,
    bytes: u64,
    /// The first call that loads it, and its function.
    call: u64,
    function: String,
    uses: u64,
    problem: Option<String>,
    entries: Vec<Code>,
}

/// One cubin or PTX text.
#[derive(Debug, Serialize)]
struct Code {
    file: Option<String>,
    code: String,
    target: Option<String>,
    bytes: u64,
    kernels: Vec<Kernel>,
    variables: Vec<String>,
    sass: Option<String>,
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Kernel {
    name: String,
    demangled: String,
    registers: Option<u32>,
    shared_bytes: u64,
    local_bytes: u64,
    parameter_bytes: u32,
}

/// Writes the images of a trace to a folder.
///
/// # Errors
/// If the trace has none, or a file cannot be written.
pub fn write_images(trace: &Trace, folder: &OutputFolder<'_>) -> Result<ImageIndex, Error> {
    let images = RecordedImages::read(trace, |_| true);
    if images.list.is_empty() {
        let why = match images.missing.is_empty() {
            true => "no call of the trace loads device code".to_owned(),
            false => format!(
                "the images of its {} are not in the trace; record with --payloads all",
                quantity::count(images.missing.len() as u64, "load")
            ),
        };
        return Err(Error::Unusable(format!(
            "{}: {why}",
            trace.path().display()
        )));
    }
    let disassembler = find_disassembler();
    let mut index = ImageIndex {
        state: Completeness::of(trace),
        ..ImageIndex::default()
    };
    for image in &images.list {
        let image = write_image(folder, image, disassembler.as_deref())?;
        index.images.push(image);
    }
    index.disassembler = disassembler;
    let missing = images.missing.into_iter();
    index.missing = missing.map(|(call, why)| Missing { call, why }).collect();
    index.missing.sort_by_key(|missing| missing.call);
    let json = serde_json::to_string_pretty(&index).unwrap_or_default() + "\n";
    folder.write("index.json", json)?;
    folder.write("index.txt", listing(&index))?;
    Ok(index)
}

fn write_image(
    folder: &OutputFolder<'_>,
    recorded: &RecordedImage,
    disassembler: Option<&Path>,
) -> Result<Image, Error> {
    let number = recorded.number;
    let file = format!("{number:03}.{}", recorded.ending());
    folder.write(&file, &recorded.bytes)?;
    let mut image = Image {
        file: file.clone(),
        image: image_word(recorded.kind),
        bytes: recorded.bytes.len() as u64,
        call: recorded.call,
        function: recorded.function.clone(),
        uses: recorded.uses,
        problem: None,
        entries: Vec::new(),
    };
    let parsed = match cutape_image::parse(&recorded.bytes) {
        Ok(parsed) => parsed,
        Err(problem) => {
            image.problem = Some(problem.to_string());
            return Ok(image);
        }
    };
    image.entries = parsed.entries.iter().map(Code::of).collect();
    let mut written = Ok(());
    let unpacked = cutape_image::unpack(&recorded.bytes, |place, bytes| {
        let (Some(code), Some(entry)) = (image.entries.get_mut(place), parsed.entries.get(place))
        else {
            return;
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(problem) => {
                code.problem = Some(problem.to_string());
                return;
            }
        };
        code.bytes = bytes.len() as u64;
        if recorded.kind == ImageKind::Fatbin {
            let target = entry.target.map(|target| format!(".{target}"));
            let ending = match entry.code {
                CodeKind::Elf => "cubin",
                CodeKind::Ptx => "ptx",
                CodeKind::LtoIr => "ltoir",
                CodeKind::Other(_) => "bin",
            };
            let name = format!("{number:03}.{place}{}.{ending}", target.unwrap_or_default());
            if written.is_ok() {
                written = folder.write(&name, bytes);
            }
            code.file = Some(name);
        } else {
            code.file = Some(file.clone());
        }
        if let (CodeKind::Elf, Some(tool), Some(file)) = (entry.code, disassembler, &code.file) {
            match disassemble(tool, folder, file) {
                Ok(name) => code.sass = Some(name),
                Err(why) => code.problem = Some(why),
            }
        }
    });
    written?;
    if let Err(problem) = unpacked {
        image.problem = Some(problem.to_string());
    }
    Ok(image)
}

impl Code {
    fn of(entry: &Entry) -> Self {
        let mut code = Self {
            file: None,
            code: match entry.code {
                CodeKind::Elf => "cubin".to_owned(),
                CodeKind::Ptx => "PTX".to_owned(),
                CodeKind::LtoIr => "LTO IR".to_owned(),
                CodeKind::Other(number) => format!("kind {number}"),
            },
            target: entry.target.map(|target| target.to_string()),
            bytes: entry.size.unwrap_or(0),
            kernels: Vec::new(),
            variables: Vec::new(),
            sass: None,
            problem: None,
        };
        match &entry.content {
            Ok(content) => {
                let kernels = content
                    .functions
                    .iter()
                    .filter(|function| function.is_entry);
                code.kernels = kernels
                    .map(|kernel| Kernel {
                        name: kernel.name.clone(),
                        demangled: demangle(&kernel.name),
                        registers: kernel.registers,
                        shared_bytes: kernel.shared_bytes,
                        local_bytes: kernel.local_bytes,
                        parameter_bytes: kernel
                            .parameters
                            .iter()
                            .map(|parameter| parameter.offset.saturating_add(parameter.size))
                            .max()
                            .unwrap_or(0),
                    })
                    .collect();
                let globals = content.globals.iter();
                code.variables = globals.map(|global| global.name.clone()).collect();
            }
            Err(problem) => code.problem = Some(problem.to_string()),
        }
        code
    }
}

/// `nvdisasm` or `cuobjdump`, if one of them is on the search path.
fn find_disassembler() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    ["nvdisasm", "cuobjdump"].into_iter().find_map(|name| {
        let places = env::split_paths(&path).map(|folder| folder.join(name));
        places.into_iter().find(|place| place.is_file())
    })
}

/// Writes the machine code of a cubin as text; returns the name of the file, or what failed.
fn disassemble(tool: &Path, folder: &OutputFolder<'_>, cubin: &str) -> Result<String, String> {
    let name = format!("{}.sass", cubin.strip_suffix(".cubin").unwrap_or(cubin));
    let mut command = Command::new(tool);
    if tool.ends_with("cuobjdump") {
        command.arg("-sass");
    }
    command.arg(folder.path(cubin)).stdin(Stdio::null());
    let failed = |why: String| format!("{} failed: {why}", tool.display());
    let output = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().next().unwrap_or_default().to_owned();
        return Err(failed(format!("{}: {first}", output.status)));
    }
    folder
        .write(&name, &output.stdout)
        .map_err(|error| error.to_string())?;
    Ok(name)
}

/// All images with their kernels, for people.
fn listing(index: &ImageIndex) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    for image in &index.images {
        line(format_args!(
            "{}: {}, {}, {} at call {}{}",
            image.file,
            image.image,
            quantity::bytes(image.bytes),
            image.function,
            image.call,
            match image.uses {
                1 => String::new(),
                uses => format!(" and {}", quantity::count(uses - 1, "other call")),
            }
        ));
        if let Some(problem) = &image.problem {
            line(format_args!("  cannot be read: {problem}"));
        }
        for code in &image.entries {
            let file = code.file.as_deref().unwrap_or("not unpacked");
            let target = code.target.as_deref().unwrap_or("no target");
            let size = quantity::bytes(code.bytes);
            line(format_args!("  {file}: {} for {target}, {size}", code.code));
            if let Some(problem) = &code.problem {
                line(format_args!("    {problem}"));
            }
            for kernel in &code.kernels {
                let registers = kernel.registers.map(|count| format!(", {count} registers"));
                line(format_args!(
                    "    kernel {}{}, {} bytes of shared memory",
                    without_middle(&kernel.demangled, LONGEST_NAME),
                    registers.unwrap_or_default(),
                    kernel.shared_bytes
                ));
            }
            for variable in &code.variables {
                line(format_args!("    variable {variable}"));
            }
        }
    }
    for missing in &index.missing {
        line(format_args!(
            "call {}: its image is not in the trace: {}",
            missing.call, missing.why
        ));
    }
    text
}
