//! The inputs of a link: of the declared kind, whole, relocatable, for 64-bit addresses, with
//! options that have an effect.

use cutape_format::Bytes;
use cutape_format::layout::field;
use cutape_image::{CodeKind, Extent, Image, ImageKind, runs_on};
use cutape_registry::{Family, Kind, LinkOp, rules};

use super::image::{contents, kind_name, looks_like_text};
use super::jit_options::option_count;
use super::{Check, Deferral, Draft, at, code, result_name};
use crate::context::bytes_of;
use crate::finding::Severity;
use crate::state::data::LinkInput;
use crate::state::image_snapshot;
use crate::state::links::link_input;
use crate::state::options::SYMBOL_NAMES;

/// CUjitInputType.
mod input {
    pub(super) const CUBIN: u64 = 0;
    pub(super) const PTX: u64 = 1;
    pub(super) const FATBINARY: u64 = 2;
    pub(super) const OBJECT: u64 = 3;
    pub(super) const LIBRARY: u64 = 4;
    pub(super) const NVVM: u64 = 5;
}

/// An input in memory or in a file.
pub(super) fn added(check: &Check<'_, '_>) -> Option<Draft> {
    let declared = check.argument("type")?;
    let data = match check.family() {
        Family::Link(LinkOp::AddData { data, .. }) => Some(usize::from(data)),
        _ => None,
    };
    if check.call.result() == Some(code::FILE_NOT_FOUND) {
        return None;
    }
    if data.is_some_and(|position| check.call.argument(position) == 0) {
        return mismatch(check, declared, "a NULL pointer");
    }
    if data.is_some() && check.argument("size") == Some(0) {
        return mismatch(check, declared, "a size of 0");
    }
    let snapshot = match data {
        Some(position) => check.call.snapshot(position, field::POINTEE),
        None => image_snapshot(check.plan, check.call),
    };
    let snapshot = snapshot?;
    if snapshot.bytes == Bytes::Unreadable {
        let failed = check.went_wrong();
        return failed.then(|| mismatch(check, declared, "memory that cannot be read"))?;
    }
    let bytes = bytes_of(check.context, snapshot.bytes);
    let bytes = bytes.as_deref()?;
    let kind = cutape_image::kind(bytes);
    if let Some(position) = data
        && declared == input::PTX
        && !bytes.contains(&0)
        && let Some(draft) = unterminated(check, position, bytes.len())
    {
        return Some(draft);
    }
    if !fits(declared, kind) {
        return wrong_kind(check, declared, kind, bytes);
    }
    if let (input::CUBIN | input::FATBINARY, Extent::Known(length)) =
        (declared, cutape_image::extent(bytes))
        && length > bytes.len() as u64
    {
        let what = format!("{} bytes of an image of {length} bytes", bytes.len());
        return mismatch(check, declared, &what);
    }
    let image = cutape_image::parse(bytes).ok();
    let image = image.as_ref();
    (image.and_then(|image| address_size(check, image, bytes)))
        .or_else(|| link_time_code(check, declared, image))
        .or_else(|| without_effect(check, declared, image))
        .or_else(|| not_relocatable(check, image?))
        .or_else(|| duplicate(check))
}

fn type_name(check: &Check<'_, '_>, declared: u64) -> String {
    check.enum_name("CUjitInputType", declared as i64, "input type")
}

fn fits(declared: u64, kind: ImageKind) -> bool {
    match declared {
        input::CUBIN => kind == ImageKind::Cubin,
        input::PTX => kind == ImageKind::Ptx,
        input::FATBINARY => matches!(kind, ImageKind::Fatbin | ImageKind::FatbinWrapper),
        // Both the host's tools and NVIDIA's write objects with device code.
        input::OBJECT => matches!(
            kind,
            ImageKind::HostObject | ImageKind::Cubin | ImageKind::Fatbin
        ),
        input::LIBRARY => kind == ImageKind::HostArchive,
        input::NVVM => matches!(kind, ImageKind::NvvmBitcode | ImageKind::Fatbin),
        _ => true,
    }
}

fn mismatch(check: &Check<'_, '_>, declared: u64, what: &str) -> Option<Draft> {
    let what = format!("gets {what}, declared as {}", type_name(check, declared),);
    let title = "input of another kind than declared";
    Some(check.draft(rules::LINK_INPUT_TYPE_MISMATCH, title, what))
}

fn wrong_kind(
    check: &Check<'_, '_>,
    declared: u64,
    kind: ImageKind,
    bytes: &[u8],
) -> Option<Draft> {
    let unknown = kind == ImageKind::Unknown;
    // An unknown kind that the driver accepts belongs to a newer toolkit than ours.
    if unknown && !check.went_wrong() {
        return None;
    }
    // Text that the compiler rejects is bad PTX, not another kind of input.
    if unknown && declared == input::PTX && looks_like_text(bytes) {
        return None;
    }
    mismatch(check, declared, kind_name(kind))
}

fn unterminated(check: &Check<'_, '_>, position: usize, length: usize) -> Option<Draft> {
    let behind = check.call.snapshot(position, field::BYTE_BEHIND);
    let found = match behind.map(|snapshot| snapshot.bytes) {
        Some(Bytes::Unreadable) => "cannot be read".to_owned(),
        Some(Bytes::Inline([byte, ..])) if *byte != 0 => format!("is {byte:#04x}"),
        // A zero right behind terminates the text.
        Some(_) | None => return None,
    };
    let what = format!(
        "gets {length} bytes of PTX text without a NUL byte, and the byte behind them {found}. PTX \
         must be terminated although its size is passed"
    );
    let title = "PTX text without a terminating NUL byte";
    Some(check.draft(rules::LINK_PTX_UNTERMINATED, title, what))
}

fn address_size(check: &Check<'_, '_>, image: &Image, bytes: &[u8]) -> Option<Draft> {
    let narrow =
        image.entries.iter().all(|entry| entry.address_bits == 32) && !image.entries.is_empty();
    // PTX without the directive has 32-bit addresses by its manual, but the driver accepts it.
    let is_declared =
        image.kind != ImageKind::Ptx || bytes.windows(13).any(|window| window == b".address_size");
    if !narrow || (!is_declared && !check.went_wrong()) {
        return None;
    }
    let what = "gets code for 32-bit addresses, but the linked code has the pointer size of this process, \
         64 bits";
    let title = "input for 32-bit addresses";
    Some(check.draft(rules::LINK_ADDRESS_SIZE_MISMATCH, title, what))
}

fn link_time_code(check: &Check<'_, '_>, declared: u64, image: Option<&Image>) -> Option<Draft> {
    let is_bitcode = declared == input::NVVM;
    let mut entries = image.into_iter().flat_map(|image| &image.entries);
    let has_entry = entries.any(|entry| entry.code == CodeKind::LtoIr);
    let failed = check.went_wrong();
    // A fatbin may carry such code beside other code that the driver uses.
    if !(is_bitcode || (has_entry && failed)) {
        return None;
    }
    let what = "gets code for link-time optimization. The driver's linker accepts it only from toolkits \
         before CUDA 12.0, and that is deprecated";
    let title = "code for link-time optimization given to the driver's linker";
    let draft = check.draft(rules::LINK_LTO_IR_TOO_NEW, title, what);
    Some(match failed {
        true => draft,
        false => draft.severity(Severity::Advice),
    })
}

fn without_effect(check: &Check<'_, '_>, declared: u64, image: Option<&Image>) -> Option<Draft> {
    if option_count(check, check.plan.options?) == 0 {
        return None;
    }
    let machine_code_only = match declared {
        input::CUBIN => true,
        input::FATBINARY => image.is_some_and(|image| {
            let device = check.state.capability(check.call.thread, check.context);
            let fits = |target| device.is_some_and(|device| runs_on(target, CodeKind::Elf, device));
            let mut entries = image.entries.iter();
            let is_elf = entries.all(|entry| entry.code == CodeKind::Elf);
            is_elf && (image.entries.iter()).any(|entry| entry.target.is_some_and(fits))
        }),
        _ => false,
    };
    if !machine_code_only {
        return None;
    }
    let message = format!(
        "{} gets compiler options for machine code ({}), which is not compiled: the options have \
         no effect. {}",
        check.function(),
        type_name(check, declared),
        check.answer_or(""),
    );
    let title = "compiler options for machine code";
    Some(Draft::new(
        rules::LINK_OPTION_WITHOUT_EFFECT,
        title,
        message,
    ))
}

fn not_relocatable(check: &Check<'_, '_>, image: &Image) -> Option<Draft> {
    if image.kind != ImageKind::Cubin || contents(image).any(|content| content.relocatable) {
        return None;
    }
    let message = format!(
        "{} gets a cubin that is fully linked (ELF type ET_EXEC), but a link takes relocatable \
         code. {}",
        check.function(),
        check.answer(),
    );
    let title = "fully linked cubin given to a link";
    Some(Draft::new(
        rules::LINK_NON_RELOCATABLE_INPUT,
        title,
        message,
    ))
}

/// The rejected input defines a kernel that an earlier one defines.
fn duplicate(check: &Check<'_, '_>) -> Option<Draft> {
    let link = check.live(Kind::Link).filter(|_| check.went_wrong())?;
    let data = check.state.link_data(link)?;
    let new = link_input(check.plan, check.call, check.context, check.site);
    let (name, first) = clash(&data.inputs, &new)?;
    let message = format!(
        "{} adds an input that defines \"{name}\", which the input of {} already defines. {}",
        check.function(),
        at(first.site),
        check.answer(),
    );
    Some(Draft::new(rules::LINK_NON_RELOCATABLE_INPUT, CLASH, message).object(link))
}

const CLASH: &str = "symbol defined by two inputs";

fn clash<'a>(inputs: &'a [LinkInput], new: &'a LinkInput) -> Option<(&'a str, &'a LinkInput)> {
    new.defines.iter().find_map(|name| {
        let first = inputs.iter().find(|input| input.defines.contains(name))?;
        Some((name.as_str(), first))
    })
}

/// A completion that failed: which symbol the inputs lack or define twice.
pub(super) fn completed(check: &Check<'_, '_>) -> Option<Draft> {
    if check.state.refused_input(check.plan, check.call).is_some() {
        return lacking(check);
    }
    let link = check.live(Kind::Link)?;
    let data = check.state.link_data(link)?;
    check.call.result()?;
    for (position, input) in data.inputs.iter().enumerate() {
        if let Some((name, first)) = clash(&data.inputs[..position], input) {
            let message = format!(
                "cuLinkComplete failed: the inputs of {} and of {} both define \"{name}\". {}",
                at(first.site),
                at(input.site),
                check.answer(),
            );
            return Some(
                Draft::new(rules::LINK_NON_RELOCATABLE_INPUT, CLASH, message).object(link),
            );
        }
    }
    let defined = |name: &String| {
        let mut inputs = data.inputs.iter();
        inputs.any(|input| input.provides.contains(name) || input.defines.contains(name))
    };
    let all_known = data.inputs.iter().all(|input| input.known);
    let mut needed = data.inputs.iter().flat_map(|input| &input.needs);
    let missing = needed.find(|name| !defined(name)).filter(|_| all_known);
    let by_result = matches!(
        check.call.result(),
        Some(code::SYMBOL_NOT_FOUND | code::INIT_FAILED)
    );
    // The program may have supplied the symbol itself.
    let supplied = data.options.numbers.contains(&SYMBOL_NAMES);
    if !by_result && (missing.is_none() || supplied) {
        return None;
    }
    let what = missing.map_or("a symbol".to_owned(), |name| format!("\"{name}\""));
    let message = format!(
        "cuLinkComplete failed: {what} is declared as external, and no input of the link defines \
         it. {}",
        check.answer(),
    );
    let title = "external symbol without a definition";
    Some(Draft::new(rules::MODULE_UNRESOLVED_SYMBOL, title, message).object(link))
}

/// A link, or a lookup in what it made, that fails for an input which the link refused.
pub(super) fn lacking(check: &Check<'_, '_>) -> Option<Draft> {
    let refused = check.state.refused_input(check.plan, check.call)?;
    let result = result_name(refused.site.result);
    let is_link = matches!(check.family(), Family::Link(_));
    if refused.reported || !(is_link || check.call.result() == Some(code::NOT_FOUND)) {
        return None;
    }
    let message = format!(
        "{} failed with {result}, and the program went on without that input: {} fails for what it \
         would have added. {}",
        at(refused.site),
        check.function(),
        check.answer(),
    );
    let title = "link without an input that was refused";
    let mut draft = Draft::new(rules::ERRORS_RESULT_IGNORED, title, message)
        .culprit(refused.site)
        .chain(vec![
            format!("{} failed with {result}", at(refused.site)),
            format!("{} returned {}", at(check.site), check.result_name()),
        ]);
    if !is_link {
        // The name may be optional.
        let owner = check.state.image_owner(check.plan, check.call)?;
        let name = check.call.string(check.plan.at("name")?)?;
        draft.deferral = Some(Deferral::Lookup(owner, name));
    }
    Some(draft)
}
