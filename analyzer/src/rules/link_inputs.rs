//! What a link is given: the declared kind, whole, relocatable, 64 bits wide, and options that have an effect.

use cutape_format::Bytes;
use cutape_format::layout::field;
use cutape_image::{CodeKind, Content, Extent, Image, ImageKind, runs_on};
use cutape_registry::{Family, Kind, LinkOp};

use super::image::looks_like_text;
use super::{Check, Draft, at, code};
use crate::context::bytes_of;
use crate::finding::Severity;
use crate::state::data::LinkInput;
use crate::state::image_snapshot;
use crate::state::links::link_input;

/// CUjitInputType.
mod input {
    pub(super) const CUBIN: u64 = 0;
    pub(super) const PTX: u64 = 1;
    pub(super) const FATBINARY: u64 = 2;
    pub(super) const OBJECT: u64 = 3;
    pub(super) const LIBRARY: u64 = 4;
    pub(super) const NVVM: u64 = 5;
}

/// Rules about the inputs of a link.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    match check.plan.function.family {
        Family::Link(LinkOp::AddData { .. }) => added(check, drafts, false),
        Family::Link(LinkOp::AddFile { .. }) => added(check, drafts, true),
        Family::Link(LinkOp::Complete { .. }) => completed(check, drafts),
        _ => {}
    }
}

fn added(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, file: bool) {
    let Some(declared) = check.argument("type") else {
        return;
    };
    if check.call.result() == Some(code::FILE_NOT_FOUND) || !drafts.is_empty() {
        return;
    }
    let size = check.argument("size");
    let data = check.plan.at("data");
    if !file {
        let null = data.is_some_and(|position| check.call.argument(position) == 0);
        if null || size == Some(0) {
            let what = if null {
                "a NULL pointer"
            } else {
                "a size of 0"
            };
            return mismatch(check, drafts, declared, what);
        }
    }
    let snapshot = match data {
        Some(position) => check.call.snapshot(position, field::POINTEE),
        None => image_snapshot(check.plan, check.call),
    };
    let Some(snapshot) = snapshot else { return };
    if snapshot.bytes == Bytes::Unreadable {
        if check.went_wrong() {
            mismatch(check, drafts, declared, "memory that cannot be read");
        }
        return;
    }
    let bytes = bytes_of(check.context, snapshot.bytes);
    let Some(bytes) = bytes.as_deref() else {
        return;
    };
    let kind = cutape_image::kind(bytes);
    if declared == input::PTX && !file && !bytes.contains(&0) {
        unterminated(check, drafts, bytes.len());
        if !drafts.is_empty() {
            return;
        }
    }
    if !fits(declared, kind) {
        wrong_kind(check, drafts, declared, kind, bytes);
        return;
    }
    if let (input::CUBIN | input::FATBINARY, Extent::Known(length)) =
        (declared, cutape_image::extent(bytes))
        && length > bytes.len() as u64
    {
        let what = format!("{} bytes of an image of {length} bytes", bytes.len());
        return mismatch(check, drafts, declared, &what);
    }
    let image = cutape_image::parse(bytes).ok();
    address_size(check, drafts, image.as_ref(), bytes);
    lto(check, drafts, declared, image.as_ref());
    if drafts.is_empty() {
        without_effect(check, drafts, declared, image.as_ref());
    }
    if drafts.is_empty() {
        not_relocatable(check, drafts, image.as_ref());
    }
    if drafts.is_empty() && check.went_wrong() {
        duplicate(check, drafts);
    }
}

fn type_name(check: &Check<'_, '_>, declared: u64) -> String {
    let table = check.context.signatures().enumeration("CUjitInputType");
    let known = table.and_then(|table| table.name_of(declared as i64));
    known.map_or_else(|| format!("input type {declared}"), str::to_owned)
}

fn fits(declared: u64, kind: ImageKind) -> bool {
    match declared {
        input::CUBIN => kind == ImageKind::Cubin,
        input::PTX => kind == ImageKind::Ptx,
        input::FATBINARY => matches!(kind, ImageKind::Fatbin | ImageKind::FatbinWrapper),
        // Objects with device code come from the host's and from NVIDIA's tools.
        input::OBJECT => matches!(
            kind,
            ImageKind::HostObject | ImageKind::Cubin | ImageKind::Fatbin
        ),
        input::LIBRARY => kind == ImageKind::HostArchive,
        input::NVVM => matches!(kind, ImageKind::NvvmBitcode | ImageKind::Fatbin),
        _ => true,
    }
}

fn mismatch(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, declared: u64, what: &str) {
    let message = format!(
        "{} is told to expect {} and is given {what}. {}",
        check.plan.function.name,
        type_name(check, declared),
        check.answer(),
    );
    drafts.push(Draft::new(
        "link-input-type-mismatch",
        "an input is not what its type says",
        message,
    ));
}

fn wrong_kind(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    declared: u64,
    kind: ImageKind,
    bytes: &[u8],
) {
    let unknown = kind == ImageKind::Unknown;
    // What we do not know and the driver takes may be newer than we are.
    if unknown && !check.went_wrong() {
        return;
    }
    // Text that the compiler refuses is bad PTX, not another kind of thing.
    if unknown && declared == input::PTX && looks_like_text(bytes) {
        return;
    }
    let what = match kind {
        ImageKind::Cubin => "a cubin",
        ImageKind::Fatbin | ImageKind::FatbinWrapper => "a fatbin",
        ImageKind::Ptx => "PTX text",
        ImageKind::HostObject => "a host object",
        ImageKind::HostArchive => "an archive",
        ImageKind::NvvmBitcode => "compiler bitcode",
        ImageKind::Unknown => "data of no known kind",
    };
    mismatch(check, drafts, declared, what);
}

fn unterminated(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, length: usize) {
    let position = check.plan.at("data").unwrap_or(1);
    let behind = check.call.snapshot(position, field::BYTE_BEHIND);
    let found = match behind.map(|snapshot| snapshot.bytes) {
        Some(Bytes::Unreadable) => "cannot be read".to_owned(),
        Some(Bytes::Inline([byte, ..])) if *byte != 0 => format!("is {byte:#04x}"),
        // A zero stands right behind: the text is terminated.
        Some(_) => return,
        None => return,
    };
    let message = format!(
        "{} is given {length} bytes of PTX text without a NUL byte, and the byte behind them {found}. PTX must be terminated \
         although its size is passed. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "link-ptx-unterminated",
        "PTX text without its NUL byte",
        message,
    ));
}

fn contents(image: &Image) -> impl Iterator<Item = &Content> {
    image
        .entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok())
}

fn address_size(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    image: Option<&Image>,
    bytes: &[u8],
) {
    let Some(image) = image else { return };
    let narrow =
        image.entries.iter().all(|entry| entry.address_bits == 32) && !image.entries.is_empty();
    // Without the directive the PTX manual says 32 bits; that alone is no mistake that the driver minds.
    let said =
        image.kind != ImageKind::Ptx || bytes.windows(13).any(|window| window == b".address_size");
    if !narrow || (!said && !check.went_wrong()) {
        return;
    }
    let message = format!(
        "{} is given code for addresses of 32 bits, but the linked code has the pointer size of this process, 64 bits. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "link-address-size-mismatch",
        "an input is built for 32-bit addresses",
        message,
    ));
}

fn lto(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, declared: u64, image: Option<&Image>) {
    let entry = image.is_some_and(|image| image.entries.iter().any(|e| e.code == CodeKind::LtoIr));
    if (declared != input::NVVM && !entry) || !drafts.is_empty() {
        return;
    }
    let failed = check.went_wrong();
    // A fatbin may carry such code beside other code that serves.
    if declared != input::NVVM && !failed {
        return;
    }
    let message = format!(
        "{} is given code for link-time optimisation. The driver's linker takes it only from toolkits before CUDA 12.0, and \
         that is deprecated. {}",
        check.plan.function.name,
        check.answer(),
    );
    let draft = Draft::new(
        "link-lto-ir-too-new",
        "code for link-time optimisation in the driver's linker",
        message,
    );
    drafts.push(if failed {
        draft
    } else {
        draft.severity(Severity::Advice)
    });
}

fn without_effect(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    declared: u64,
    image: Option<&Image>,
) {
    let Some(shape) = check.plan.options else {
        return;
    };
    if check.call.argument(shape.count) & 0xffff_ffff == 0 {
        return;
    }
    let machine_code_only = match declared {
        input::CUBIN => true,
        input::FATBINARY => image.is_some_and(|image| {
            let device = check.state.capability(check.call.thread, check.context);
            let fits = |target| device.is_some_and(|device| runs_on(target, CodeKind::Elf, device));
            image
                .entries
                .iter()
                .all(|entry| entry.code == CodeKind::Elf)
                && image
                    .entries
                    .iter()
                    .any(|entry| entry.target.is_some_and(fits))
        }),
        _ => false,
    };
    if !machine_code_only {
        return;
    }
    let message = format!(
        "{} is given compiler options for machine code ({}), which is not compiled any more: they can do nothing. {}",
        check.plan.function.name,
        type_name(check, declared),
        if check.went_wrong() {
            check.answer()
        } else {
            String::new()
        },
    );
    drafts.push(Draft::new(
        "link-option-without-effect",
        "compiler options for machine code",
        message.trim_end(),
    ));
}

fn not_relocatable(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, image: Option<&Image>) {
    let Some(image) = image else { return };
    if image.kind != ImageKind::Cubin || contents(image).any(|content| content.relocatable) {
        return;
    }
    let message = format!(
        "{} is given a cubin that is fully linked (ELF type ET_EXEC), but inputs of a link are taken as relocatable code. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "link-non-relocatable-input",
        "a finished cubin is given to a link",
        message,
    ));
}

/// The input defines a kernel that an earlier one defines.
fn duplicate(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(link) = check.state.objects.live(Kind::Link, check.call.argument(0)) else {
        return;
    };
    let Some(data) = check.state.link_data(link) else {
        return;
    };
    let new = link_input(check.plan, check.call, check.context, check.site);
    let Some((name, first)) = clash(&data.inputs, &new) else {
        return;
    };
    let message = format!(
        "{} adds an input that defines \"{name}\", which the input of {} defines already. {}",
        check.plan.function.name,
        at(first.site),
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "link-non-relocatable-input",
            "two inputs define the same symbol",
            message,
        )
        .object(link),
    );
}

fn clash<'a>(inputs: &'a [LinkInput], new: &'a LinkInput) -> Option<(&'a str, &'a LinkInput)> {
    new.defines.iter().find_map(|name| {
        let first = inputs.iter().find(|input| input.defines.contains(name))?;
        Some((name.as_str(), first))
    })
}

/// A completion that failed: what the inputs lack or have twice.
fn completed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(link) = check.state.objects.live(Kind::Link, check.call.argument(0)) else {
        return;
    };
    let Some(data) = check.state.link_data(link) else {
        return;
    };
    if !drafts.is_empty() || matches!(check.call.result(), None | Some(0)) {
        return;
    }
    for (position, input) in data.inputs.iter().enumerate() {
        if let Some((name, first)) = clash(&data.inputs[..position], input) {
            let message = format!(
                "cuLinkComplete failed: \"{name}\" is defined by the inputs of {} and of {}. {}",
                at(first.site),
                at(input.site),
                check.answer(),
            );
            drafts.push(
                Draft::new(
                    "link-non-relocatable-input",
                    "two inputs define the same symbol",
                    message,
                )
                .object(link),
            );
            return;
        }
    }
    let missing = data.inputs.iter().all(|input| input.known).then(|| {
        data.inputs
            .iter()
            .flat_map(|input| &input.needs)
            .find(|name| {
                !data
                    .inputs
                    .iter()
                    .any(|input| input.provides.contains(name) || input.defines.contains(name))
            })
    });
    let by_result = matches!(
        check.call.result(),
        Some(code::SYMBOL_NOT_FOUND | code::INIT_FAILED)
    );
    let name = missing.flatten();
    if name.is_none() && !by_result {
        return;
    }
    // The program may have supplied the symbol itself.
    if data
        .options
        .numbers
        .contains(&crate::state::options::SYMBOL_NAMES)
        && !by_result
    {
        return;
    }
    let what = name.map_or("a symbol".to_owned(), |name| format!("\"{name}\""));
    let message = format!(
        "cuLinkComplete failed: {what} is declared as external and no input of the link defines it. {}",
        check.answer(),
    );
    drafts.push(
        Draft::new(
            "module-unresolved-symbol",
            "external symbols stay undefined",
            message,
        )
        .object(link),
    );
}
