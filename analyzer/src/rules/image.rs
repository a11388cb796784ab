//! What a load is given: the right kind of image, whole, for this device, with nothing missing.

use cutape_format::layout::{field, snapshot_flag};
use cutape_format::{Bytes, Snapshot};
use cutape_image::{CodeKind, Entry, Image, ImageKind, runs_on};
use cutape_registry::ImageSource;

use super::{Check, Draft, code};
use crate::context::bytes_of;
use crate::finding::Severity;
use crate::state::{image_snapshot, numbers32, options};

/// Rules about the image of a module or library load.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.call.result() == Some(code::FILE_NOT_FOUND) {
        return file_not_found(check, drafts);
    }
    if !drafts.is_empty() {
        return;
    }
    let file = check.plan.file.is_some();
    let position = check.plan.image;
    if !file && position.is_some_and(|position| check.call.argument(position) == 0) {
        return unrecognised(check, drafts, "a NULL pointer");
    }
    let Some(snapshot) = image_snapshot(check.plan, check.call) else {
        return;
    };
    if snapshot.bytes == Bytes::Unreadable {
        if check.went_wrong() {
            unrecognised(check, drafts, "a pointer to memory that cannot be read");
        }
        return;
    }
    let bytes = bytes_of(check.context, snapshot.bytes);
    let Some(bytes) = bytes.as_deref() else {
        return failed(check, drafts, None);
    };
    let kind = cutape_image::kind(bytes);
    if kind == ImageKind::Ptx && !file {
        unterminated(check, drafts, bytes, snapshot);
    }
    if matches!(check.plan.source, Some(ImageSource::FatBinary(_)))
        && matches!(kind, ImageKind::Cubin | ImageKind::Ptx)
    {
        let what = name_of(kind);
        let message = format!(
            "cuModuleLoadFatBinary is given {what}, not a fat binary object. {}",
            if check.went_wrong() {
                check.answer()
            } else {
                "This driver takes it all the same; the manual does not say so.".to_owned()
            },
        );
        drafts.push(Draft::new(
            "module-fatbinary-wrong-kind",
            "cuModuleLoadFatBinary is given another kind of image",
            message,
        ));
    }
    if !drafts.is_empty() {
        return;
    }
    let loadable = matches!(
        kind,
        ImageKind::Cubin | ImageKind::Fatbin | ImageKind::FatbinWrapper | ImageKind::Ptx
    );
    let compiler_spoke = matches!(
        check.call.result(),
        Some(code::INVALID_PTX | code::UNSUPPORTED_PTX_VERSION)
    ) && looks_like_text(bytes);
    // A kind that we do not know and the driver takes is newer than we are.
    if !loadable && check.went_wrong() && !compiler_spoke {
        let start: Vec<String> = bytes
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let what = match kind {
            ImageKind::Unknown => format!("data that begin with {}", start.join(" ")),
            kind => name_of(kind).to_owned(),
        };
        return unrecognised(check, drafts, &what);
    }
    let parsed = || cutape_image::parse(bytes).ok();
    match check.call.result() {
        Some(0) if kind == ImageKind::Ptx => {
            if let Some(image) = parsed() {
                unresolved(check, drafts, &image);
            }
        }
        Some(0) | None => {}
        Some(_) => failed(check, drafts, parsed().as_ref()),
    }
}

/// An input of a link that was refused for what the image is.
pub(super) fn failed_input(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    match check.call.result() {
        Some(code::FILE_NOT_FOUND) => file_not_found(check, drafts),
        Some(code::NO_BINARY_FOR_GPU) if drafts.is_empty() => {
            let data = check
                .plan
                .at("data")
                .and_then(|p| check.call.snapshot(p, field::POINTEE));
            let snapshot = data.or_else(|| image_snapshot(check.plan, check.call));
            let bytes = snapshot.and_then(|snapshot| bytes_of(check.context, snapshot.bytes));
            let image = bytes.and_then(|bytes| cutape_image::parse(&bytes).ok());
            failed(check, drafts, image.as_ref());
        }
        Some(_) if drafts.is_empty() => failed(check, drafts, None),
        _ => {}
    }
}

fn name_of(kind: ImageKind) -> &'static str {
    match kind {
        ImageKind::Cubin => "a cubin",
        ImageKind::Fatbin => "a fatbin",
        ImageKind::FatbinWrapper => "a fatbin wrapper",
        ImageKind::Ptx => "PTX text",
        ImageKind::HostObject => "an ELF file for the host",
        ImageKind::HostArchive => "an archive of host objects",
        ImageKind::NvvmBitcode => "compiler bitcode, which only a linker reads",
        ImageKind::Unknown => "data of no known kind",
    }
}

pub(super) fn looks_like_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(64)];
    let head = head.strip_suffix(&[0]).unwrap_or(head);
    !head.is_empty()
        && head
            .iter()
            .all(|&byte| (0x20..0x7f).contains(&byte) || (9..=13).contains(&byte))
}

fn unrecognised(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, what: &str) {
    let message = format!(
        "{} is given {what}: neither a cubin, nor a fatbin, nor PTX text. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "module-image-unrecognised",
        "what is loaded is no module image",
        message,
    ));
}

fn file_not_found(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(position) = check.plan.file else {
        return;
    };
    let path = check
        .call
        .string(position)
        .unwrap_or_else(|| "(unreadable)".to_owned());
    let directory = check
        .call
        .snapshot(position, field::DIRECTORY)
        .and_then(|snapshot| snapshot.bytes.inline())
        .map(|bytes| {
            String::from_utf8_lossy(bytes)
                .trim_end_matches('\0')
                .to_owned()
        });
    let place = match directory {
        Some(directory) if !path.starts_with('/') => {
            format!(" The path is relative and was resolved in the working directory, {directory}.")
        }
        _ => String::new(),
    };
    let message = format!(
        "{} did not find the file \"{path}\" and no later call of it succeeded.{place}",
        check.plan.function.name,
    );
    let mut draft = Draft::new(
        "module-file-not-found",
        "a file that is to be loaded does not exist",
        message,
    )
    .subject(check.site.index);
    // A program that tries several paths does nothing wrong.
    draft.deferred = true;
    drafts.push(draft);
}

fn unterminated(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    bytes: &[u8],
    snapshot: Snapshot<'_>,
) {
    let truncated_by_us = snapshot.flags & snapshot_flag::TRUNCATED != 0
        && bytes.last().is_some_and(|&byte| byte != 0);
    let reason = if bytes.last() != Some(&0) {
        if truncated_by_us && check.call.succeeded() {
            return;
        }
        format!("the memory ends after {} bytes without one", bytes.len())
    } else if let Some(at) = junk_behind(bytes) {
        format!("at byte {at}, behind the end of the program text, other data follow")
    } else {
        return;
    };
    let message = format!(
        "{} is given PTX text, which must end in a NUL byte because no size is passed, but {reason}. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "module-ptx-unterminated",
        "PTX text without its NUL byte",
        message,
    ));
}

/// Where bytes that are no text follow the last brace or semicolon of a text.
fn junk_behind(bytes: &[u8]) -> Option<usize> {
    let text = bytes.split(|&byte| byte == 0).next()?;
    let end = text
        .iter()
        .rposition(|&byte| byte == b'}' || byte == b';')?
        + 1;
    let tail = &text[end..];
    let control = tail
        .iter()
        .position(|&byte| byte < 9 || (14..32).contains(&byte) || byte == 127);
    let broken = std::str::from_utf8(tail)
        .err()
        .map(|error| error.valid_up_to());
    Some(end + control.or(broken)?)
}

/// A load failed: why, as far as the result and the image say.
fn failed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, image: Option<&Image>) {
    let Some(result) = check.call.result() else {
        return;
    };
    match result {
        code::NO_BINARY_FOR_GPU => no_binary(check, drafts, image),
        code::INVALID_PTX
        | code::UNSUPPORTED_PTX_VERSION
        | code::JIT_COMPILER_NOT_FOUND
        | code::JIT_COMPILATION_DISABLED => {
            if let Some(image) = image
                && result == code::INVALID_PTX
                && image
                    .entries
                    .iter()
                    .any(|e| e.content.as_ref().is_ok_and(|c| !c.undefined.is_empty()))
            {
                unresolved(check, drafts, image);
            }
            if drafts.is_empty() {
                jit_failure(check, drafts, image);
            }
        }
        code::SYMBOL_NOT_FOUND | code::INIT_FAILED => {
            let names = image.map(undefined_names).unwrap_or_default();
            unresolved_names(check, drafts, &names);
        }
        _ => {}
    }
}

fn no_binary(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, image: Option<&Image>) {
    let capability = check.state.capability(check.call.thread, check.context);
    let device = match capability {
        Some((major, minor)) => format!("a device of compute capability {major}.{minor}"),
        None => "this device".to_owned(),
    };
    let holds = match image {
        None => String::new(),
        Some(image) => {
            let list: Vec<String> = image
                .entries
                .iter()
                .map(|e| entry_text(e, capability))
                .collect();
            format!(" The image holds {}.", list.join("; "))
        }
    };
    let message = format!(
        "{} was given an image without code for {device}.{holds} Machine code runs on devices of the same major and no \
         lower minor capability; PTX is compiled for any device that is not older. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "module-no-binary-for-device",
        "no code for this device",
        message,
    ));
}

fn entry_text(entry: &Entry, capability: Option<(u16, u16)>) -> String {
    let code = match entry.code {
        CodeKind::Elf => "machine code",
        CodeKind::Ptx => "PTX",
        CodeKind::LtoIr => "code for link-time optimisation",
        CodeKind::Other(_) => "code of a kind that is not known",
    };
    let target = entry
        .target
        .map_or("an unnamed target".to_owned(), |target| target.to_string());
    let fits = match (entry.target, capability) {
        (Some(target), Some(device)) if !runs_on(target, entry.code, device) => {
            ", which does not fit"
        }
        _ => "",
    };
    format!("{code} for {target}{fits}")
}

fn jit_failure(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, image: Option<&Image>) {
    let version = image.and_then(|image| {
        image
            .entries
            .iter()
            .find_map(|entry| entry.content.as_ref().ok()?.ptx_version)
    });
    let driver = check
        .context
        .meta("driver.version")
        .and_then(|text| text.parse::<u32>().ok());
    let why = match check.call.result() {
        Some(code::UNSUPPORTED_PTX_VERSION) => {
            let version = version.map_or(String::new(), |(a, b)| format!(" ({a}.{b})"));
            let driver = driver.map_or(String::new(), |v| {
                format!(", CUDA {}.{}", v / 1000, v % 1000 / 10)
            });
            format!("The PTX version{version} is newer than what the driver{driver} compiles.")
        }
        Some(code::JIT_COMPILER_NOT_FOUND) => {
            "The driver's PTX compiler library is not installed.".to_owned()
        }
        Some(code::JIT_COMPILATION_DISABLED) => "Compilation of PTX is disabled.".to_owned(),
        _ => "The driver's compiler refuses the PTX text.".to_owned(),
    };
    let log = error_log(check).map_or(String::new(), |log| format!(" Its error log says: {log}"));
    let message = format!(
        "{} failed with {}. {why}{log}",
        check.plan.function.name,
        check.result_name()
    );
    drafts.push(Draft::new(
        "module-ptx-jit-failure",
        "PTX could not be compiled",
        message,
    ));
}

/// The text in the error log that the call was given.
fn error_log(check: &Check<'_, '_>) -> Option<String> {
    let leave = check.call.leave?;
    let snapshot = leave
        .snapshots()
        .find(|snapshot| snapshot.field == field::ERROR_LOG)?;
    let bytes = snapshot.bytes.inline()?;
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end.min(600)])
        .trim()
        .to_owned();
    (!text.is_empty()).then_some(text)
}

fn undefined_names(image: &Image) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for content in image
        .entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok())
    {
        for name in &content.undefined {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// External symbols that nothing defines, less those that the options supply.
fn unresolved(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, image: &Image) {
    let mut names = undefined_names(image);
    if let Some(shape) = check.plan.options {
        let given = numbers32(check.call.snapshot(shape.numbers, field::OPTIONS));
        if given.contains(&options::SYMBOL_NAMES) {
            let snapshot = check.call.snapshot(shape.values, field::SYMBOL_NAMES);
            let Some(bytes) = snapshot.and_then(|snapshot| snapshot.bytes.inline()) else {
                return;
            };
            let supplied: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
            names.retain(|name| !supplied.contains(&name.as_bytes()));
        }
    }
    if !names.is_empty() {
        unresolved_names(check, drafts, &names);
    }
}

fn unresolved_names(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, names: &[String]) {
    let list = match names {
        [] => "symbols that the image does not name".to_owned(),
        names => names
            .iter()
            .take(8)
            .map(|name| format!("\"{name}\""))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let answer = if check.went_wrong() {
        check.answer()
    } else {
        "The driver's compiler let it pass and made definitions of its own, which are not the ones that were meant."
            .to_owned()
    };
    let message = format!(
        "{} is given code that declares {list} as defined elsewhere, but a module that is loaded directly is linked with \
         nothing. {answer}",
        check.plan.function.name,
    );
    let mut draft = Draft::new(
        "module-unresolved-symbol",
        "external symbols stay undefined",
        message,
    );
    if !check.went_wrong() {
        draft = draft.severity(Severity::Warning);
    }
    drafts.push(draft);
}
