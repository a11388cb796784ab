//! The image of a load: of a loadable kind, whole, for this device, with all symbols defined.

use cutape_format::layout::{field, snapshot_flag};
use cutape_format::{Bytes, Snapshot};
use cutape_image::{CodeKind, Content, Entry, Image, ImageKind, runs_on};
use cutape_registry::{Family, ImageSource, rules};

use super::{Check, Deferral, Draft, at, code, created_at};
use crate::context::bytes_of;
use crate::finding::Severity;
use crate::plan::Step;
use crate::state::{image_snapshot, numbers32, options};

/// Rules about the image of a module or library load.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.call.result() == Some(code::FILE_NOT_FOUND) {
        return drafts.extend(file_not_found(check));
    }
    if !drafts.is_empty() {
        return;
    }
    let is_file = check.plan.file.is_some();
    let position = check.plan.image;
    if !is_file && position.is_some_and(|position| check.call.argument(position) == 0) {
        if check.state.undefined_use(check.plan, check.call).is_some() {
            return;
        }
        return drafts.push(unrecognized(check, "a NULL pointer"));
    }
    let Some(snapshot) = image_snapshot(check.plan, check.call) else {
        return;
    };
    if snapshot.bytes == Bytes::Unreadable {
        if check.went_wrong() {
            drafts.push(unrecognized(
                check,
                "a pointer to memory that cannot be read",
            ));
        }
        return;
    }
    let bytes = bytes_of(check.context, snapshot.bytes);
    let Some(bytes) = bytes.as_deref() else {
        return drafts.extend(failed(check, None));
    };
    let kind = cutape_image::kind(bytes);
    if kind == ImageKind::Ptx && !is_file {
        drafts.extend(unterminated(check, bytes, snapshot));
    }
    if matches!(check.plan.source, Some(ImageSource::FatBinary(_)))
        && matches!(kind, ImageKind::Cubin | ImageKind::Ptx)
    {
        let message = format!(
            "cuModuleLoadFatBinary gets {}, not a fat binary object. {}",
            kind_name(kind),
            check.answer_or("This driver accepts it, but the manual does not say so."),
        );
        let title = "image of another kind given to cuModuleLoadFatBinary";
        let mut draft = Draft::new(rules::MODULE_FATBINARY_WRONG_KIND, title, message);
        if check.went_wrong() {
            draft = draft.severity(Severity::Warning);
        }
        drafts.push(draft);
    }
    if !drafts.is_empty() {
        return;
    }
    let is_loadable = matches!(
        kind,
        ImageKind::Cubin | ImageKind::Fatbin | ImageKind::FatbinWrapper | ImageKind::Ptx
    );
    let is_compiled = matches!(
        check.call.result(),
        Some(code::INVALID_PTX | code::UNSUPPORTED_PTX_VERSION)
    ) && looks_like_text(bytes);
    // An unknown kind that the driver accepts belongs to a newer toolkit than ours.
    if !is_loadable && check.went_wrong() && !is_compiled {
        let what = match kind {
            ImageKind::Unknown => {
                let start = bytes.iter().take(8).map(|byte| format!("{byte:02x}"));
                let start: Vec<String> = start.collect();
                format!("data that begin with {}", start.join(" "))
            }
            kind => kind_name(kind).to_owned(),
        };
        return drafts.push(unrecognized(check, &what));
    }
    let parsed = || cutape_image::parse(bytes).ok();
    drafts.extend(match check.call.result() {
        Some(0) if kind == ImageKind::Ptx => parsed().and_then(|image| unresolved(check, &image)),
        Some(0) | None => None,
        Some(_) => failed(check, parsed().as_ref()),
    });
}

/// An input of a link that the driver rejected for its image.
pub(super) fn failed_input(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.call.result() == Some(code::FILE_NOT_FOUND) {
        drafts.extend(file_not_found(check));
    } else if drafts.is_empty() && check.state.refused_input(check.plan, check.call).is_none() {
        let data = check.plan.at("data");
        let data = data.and_then(|position| check.call.snapshot(position, field::POINTEE));
        let snapshot = data.or_else(|| image_snapshot(check.plan, check.call));
        let bytes = snapshot.and_then(|snapshot| bytes_of(check.context, snapshot.bytes));
        let image = bytes.and_then(|bytes| cutape_image::parse(&bytes).ok());
        drafts.extend(failed(check, image.as_ref()));
    }
}

/// A use of a library or of a part of it for which the driver loads the image, and cannot.
pub(super) fn failed_later(check: &Check<'_, '_>) -> Option<Draft> {
    let is_of_image = matches!(
        check.call.result()?,
        code::NO_BINARY_FOR_GPU
            | code::INVALID_PTX
            | code::UNSUPPORTED_PTX_VERSION
            | code::JIT_COMPILER_NOT_FOUND
            | code::JIT_COMPILATION_DISABLED
    );
    let objects = &check.state.objects;
    let used = check.plan.steps.iter().filter(|_| is_of_image);
    let owner = used.into_iter().find_map(|&(position, step)| {
        let Step::Use(kind) = step else { return None };
        let id = objects
            .resolve(kind, check.call.argument(position))
            .live()?;
        let mut owners = std::iter::once(id).chain(objects.ancestors(id));
        owners.find(|&owner| check.state.image_data(owner).is_some())
    })?;
    let image = check.state.parsed(owner, check.context);
    let mut draft = failed(check, image.as_deref())?.object(owner);
    // Programs ask for a kernel to find out whether its code runs on the device.
    let is_launch = matches!(check.family(), Family::Launch(_));
    draft.deferral = (!is_launch).then_some(Deferral::Image(owner));
    Some(draft.chain(vec![
        format!(
            "{} loaded by {}",
            check.label(owner),
            created_at(check.state, owner)
        ),
        format!("its code needed, and rejected, in {}", at(check.site)),
    ]))
}

/// The entries of an image that could be read.
pub(super) fn contents(image: &Image) -> impl Iterator<Item = &Content> {
    let entries = image.entries.iter();
    entries.filter_map(|entry| entry.content.as_ref().ok())
}

pub(super) fn kind_name(kind: ImageKind) -> &'static str {
    match kind {
        ImageKind::Cubin => "a cubin",
        ImageKind::Fatbin => "a fatbin",
        ImageKind::FatbinWrapper => "a fatbin wrapper",
        ImageKind::Ptx => "PTX text",
        ImageKind::HostObject => "an ELF file for the host",
        ImageKind::HostArchive => "an archive of host objects",
        ImageKind::NvvmBitcode => "compiler bitcode",
        ImageKind::Unknown => "data of an unknown kind",
    }
}

pub(super) fn looks_like_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(64)];
    let head = head.strip_suffix(&[0]).unwrap_or(head);
    let is_text = |&byte: &u8| (0x20..0x7f).contains(&byte) || (9..=13).contains(&byte);
    !head.is_empty() && head.iter().all(is_text)
}

fn unrecognized(check: &Check<'_, '_>, what: &str) -> Draft {
    let what = format!("gets {what}, which is neither a cubin, nor a fatbin, nor PTX text");
    let title = "load of something that is no module image";
    check.draft(rules::MODULE_IMAGE_UNRECOGNISED, title, what)
}

fn file_not_found(check: &Check<'_, '_>) -> Option<Draft> {
    let position = check.plan.file?;
    let path = check.call.string(position);
    let path = path.unwrap_or_else(|| "(unreadable)".to_owned());
    let directory = check.call.snapshot(position, field::DIRECTORY);
    let place = match directory.and_then(|snapshot| snapshot.bytes.inline()) {
        Some(directory) if !path.starts_with('/') => {
            let directory = String::from_utf8_lossy(directory);
            let directory = directory.trim_end_matches('\0');
            format!(" The path is relative to the working directory, {directory}.")
        }
        _ => String::new(),
    };
    let message = format!(
        "{} did not find the file \"{path}\", and no later call of it succeeded.{place}",
        check.function(),
    );
    let title = "file to load does not exist";
    let draft = Draft::new(rules::MODULE_FILE_NOT_FOUND, title, message).subject(check.site.index);
    // A program may try several paths.
    Some(draft.deferred(Deferral::Call))
}

fn unterminated(check: &Check<'_, '_>, bytes: &[u8], snapshot: Snapshot<'_>) -> Option<Draft> {
    let reason = if bytes.last() != Some(&0) {
        // The recorder may have kept only the beginning of a text that the driver accepted.
        let is_cut = snapshot.flags & snapshot_flag::TRUNCATED != 0 && !bytes.is_empty();
        if is_cut && check.call.succeeded() {
            return None;
        }
        format!("the memory ends after {} bytes without one", bytes.len())
    } else {
        // Text that the driver has compiled may end in a comment in any encoding.
        let at = junk_behind(bytes).filter(|_| check.went_wrong())?;
        format!("other data follow at byte {at}, behind the end of the text")
    };
    let message = format!(
        "{} gets PTX text, which must end in a NUL byte because no size is passed, but {reason}. \
         {}",
        check.function(),
        check.answer(),
    );
    let title = "PTX text without a terminating NUL byte";
    Some(Draft::new(rules::MODULE_PTX_UNTERMINATED, title, message))
}

/// Where bytes that are no text follow the last brace or semicolon of a text.
fn junk_behind(bytes: &[u8]) -> Option<usize> {
    let text = bytes.split(|&byte| byte == 0).next()?;
    let is_end = |&byte: &u8| byte == b'}' || byte == b';';
    let end = text.iter().rposition(is_end)? + 1;
    let tail = &text[end..];
    let is_control = |&byte: &u8| byte < 9 || (14..32).contains(&byte) || byte == 127;
    let control = tail.iter().position(is_control);
    let invalid = std::str::from_utf8(tail).err();
    Some(end + control.or(invalid.map(|error| error.valid_up_to()))?)
}

/// A load failed: why, as far as the result and the image tell.
fn failed(check: &Check<'_, '_>, image: Option<&Image>) -> Option<Draft> {
    match check.call.result()? {
        code::NO_BINARY_FOR_GPU => Some(no_binary(check, image)),
        result @ (code::INVALID_PTX
        | code::UNSUPPORTED_PTX_VERSION
        | code::JIT_COMPILER_NOT_FOUND
        | code::JIT_COMPILATION_DISABLED) => {
            let rejected = image.filter(|_| result == code::INVALID_PTX);
            let unresolved = rejected.and_then(|image| unresolved(check, image));
            unresolved.or_else(|| Some(jit_failure(check, image)))
        }
        code::SYMBOL_NOT_FOUND | code::INIT_FAILED => {
            let names = image.map(undefined_names).unwrap_or_default();
            Some(unresolved_names(check, &names))
        }
        _ => None,
    }
}

fn no_binary(check: &Check<'_, '_>, image: Option<&Image>) -> Draft {
    let capability = check.state.capability(check.call.thread, check.context);
    let device = match capability {
        Some((major, minor)) => format!("a device of compute capability {major}.{minor}"),
        None => "this device".to_owned(),
    };
    let holds = image.map_or(String::new(), |image| {
        let entries = image.entries.iter();
        let list: Vec<String> = entries.map(|entry| entry_text(entry, capability)).collect();
        format!(" The image holds {}.", list.join("; "))
    });
    let what = format!(
        "needs an image with code for {device}, and this one has none.{holds} Machine code runs on \
         devices of the same major and the same or a higher minor capability; PTX is compiled for \
         its own or any newer capability"
    );
    let title = "no code for this device";
    check.draft(rules::MODULE_NO_BINARY_FOR_DEVICE, title, what)
}

fn entry_text(entry: &Entry, capability: Option<(u16, u16)>) -> String {
    let code = match entry.code {
        CodeKind::Elf => "machine code",
        CodeKind::Ptx => "PTX",
        CodeKind::LtoIr => "code for link-time optimization",
        CodeKind::Other(_) => "code of an unknown kind",
    };
    let target = entry.target.map(|target| target.to_string());
    let fits = entry.target.zip(capability);
    let fits = fits.is_none_or(|(target, device)| runs_on(target, entry.code, device));
    format!(
        "{code} for {}{}",
        target.as_deref().unwrap_or("an unnamed target"),
        if fits { "" } else { ", which does not fit" }
    )
}

fn jit_failure(check: &Check<'_, '_>, image: Option<&Image>) -> Draft {
    let why = match check.call.result() {
        Some(code::UNSUPPORTED_PTX_VERSION) => unsupported_version(check, image),
        Some(code::JIT_COMPILER_NOT_FOUND) => {
            "The driver's PTX compiler library is not installed.".to_owned()
        }
        Some(code::JIT_COMPILATION_DISABLED) => "Compilation of PTX is disabled.".to_owned(),
        _ => "The driver's compiler rejects the PTX text.".to_owned(),
    };
    let log = error_log(check).map_or(String::new(), |log| format!(" Its error log: {log}"));
    let message = format!(
        "{} failed with {}. {why}{log}",
        check.function(),
        check.result_name()
    );
    let title = "PTX could not be compiled";
    Draft::new(rules::MODULE_PTX_JIT_FAILURE, title, message)
}

/// The PTX version that is too new, who wrote it, and which driver would compile it.
fn unsupported_version(check: &Check<'_, '_>, image: Option<&Image>) -> String {
    let newest = image.and_then(|image| contents(image).max_by_key(|content| content.ptx_version));
    let version = newest.and_then(|content| content.ptx_version);
    let driver = check.context.meta("driver.version");
    let driver = driver.and_then(|text| text.parse::<i32>().ok());
    let cuda = |version: i32| format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    let driver = driver.map_or(String::new(), |version| {
        let (major, minor) = cutape_image::newest_ptx(version);
        format!(
            " This driver, {}, compiles PTX up to {major}.{minor}.",
            cuda(version)
        )
    });
    let Some((major, minor)) = version else {
        return format!("The PTX is of a version that is newer than the driver.{driver}");
    };
    let made = match newest.and_then(|content| content.producer.as_deref()) {
        Some(producer) => format!(", written by \"{producer}\""),
        None => String::new(),
    };
    let first = cutape_image::first_cuda((major, minor));
    let first = first.map_or(String::new(), |first| {
        format!(" PTX {major}.{minor} came with {}.", cuda(first))
    });
    format!("The image has PTX {major}.{minor}{made}.{first}{driver}")
}

/// The text in the error log that the call wrote.
fn error_log(check: &Check<'_, '_>) -> Option<String> {
    let mut snapshots = check.call.leave?.snapshots();
    let log = snapshots.find(|snapshot| snapshot.field == field::ERROR_LOG)?;
    let text = log.bytes.inline()?.split(|&byte| byte == 0).next()?;
    let text = String::from_utf8_lossy(&text[..text.len().min(600)]);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn undefined_names(image: &Image) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in contents(image).flat_map(|content| &content.undefined) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// External symbols without a definition, except those that the options supply.
fn unresolved(check: &Check<'_, '_>, image: &Image) -> Option<Draft> {
    let mut names = undefined_names(image);
    if let Some(shape) = check.plan.options {
        let given = numbers32(check.call.snapshot(shape.numbers, field::OPTIONS));
        if given.contains(&options::SYMBOL_NAMES) {
            let snapshot = check.call.snapshot(shape.values, field::SYMBOL_NAMES);
            let supplied: Vec<&[u8]> = snapshot?.bytes.inline()?.split(|&b| b == 0).collect();
            names.retain(|name| !supplied.contains(&name.as_bytes()));
        }
    }
    (!names.is_empty()).then(|| unresolved_names(check, &names))
}

fn unresolved_names(check: &Check<'_, '_>, names: &[String]) -> Draft {
    let quoted = names.iter().take(8).map(|name| format!("\"{name}\""));
    let list = match names {
        [] => "symbols that the image does not name".to_owned(),
        _ => quoted.collect::<Vec<_>>().join(", "),
    };
    let message = format!(
        "{} gets code that declares {list} as defined elsewhere, but the driver links a module \
         that is loaded directly with nothing. {}",
        check.function(),
        check.answer_or(
            "The driver's compiler accepted it and made definitions of its own, which are not \
             those that the code means."
        ),
    );
    let title = "external symbol without a definition";
    let draft = Draft::new(rules::MODULE_UNRESOLVED_SYMBOL, title, message);
    match check.went_wrong() {
        true => draft,
        false => draft.severity(Severity::Warning),
    }
}
