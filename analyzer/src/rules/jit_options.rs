//! Arrays of JIT options: well-formed, with values and not addresses, set anew for every use.

use cutape_format::layout::field;
use cutape_registry::{Family, LinkOp, rules};

use super::{Check, Draft, at};
use crate::finding::Severity;
use crate::plan::OptionShape;
use crate::state::data::Options;
use crate::state::options::*;
use crate::state::{numbers64, options_of};

/// No option has a larger number; few addresses have so small a lower half.
const LARGEST_NUMBER: u64 = 1 << 24;

/// Rules about the option arrays of loads and links.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(shape) = check.plan.options else {
        return;
    };
    let count = option_count(check, shape);
    if count == 0 {
        return;
    }
    let options = options_of(shape, check.call);
    let family = check.family();
    let links = matches!(family, Family::Link(_));
    let adds = links && !matches!(family, Family::Link(LinkOp::Create { .. }));
    // All that is wrong with one array has one cause, so the first finding is enough.
    let rejected = || rejected(check, &options).filter(|_| adds);
    let first = rejected()
        .or_else(|| reused(check, shape, &options))
        .or_else(|| by_address(check, &options))
        .or_else(|| malformed(check, shape, count, &options))
        .or_else(|| conflict(check, &options, links));
    drafts.extend(first);
    if links {
        drafts.extend(deprecated(check, &options));
    }
}

/// How many options the call passes.
pub(super) fn option_count(check: &Check<'_, '_>, shape: OptionShape) -> u64 {
    // An unsigned int, of which the upper half of the word is undefined.
    check.call.argument(shape.count) & 0xffff_ffff
}

fn name(check: &Check<'_, '_>, option: u32) -> String {
    check.enum_name("CUjit_option", i64::from(option), "option")
}

fn rejected(check: &Check<'_, '_>, options: &Options) -> Option<Draft> {
    let mut numbers = options.numbers.iter().copied();
    let bad = numbers.find(|&option| {
        matches!(
            option,
            WALL_TIME
                | INFO_LOG
                | INFO_LOG_SIZE
                | ERROR_LOG
                | ERROR_LOG_SIZE
                | TARGET_FROM_CONTEXT
                | TARGET
                | SYMBOL_NAMES
                | SYMBOL_ADDRESSES
                | SYMBOL_COUNT
        )
    })?;
    let message = format!(
        "{} gets {} for one input. Only cuLinkCreate takes that option, for the whole link. {}",
        check.function(),
        name(check, bad),
        check.answer_or("This driver accepted it."),
    );
    let title = "option of the whole link given to one input";
    Some(Draft::new(rules::LINK_ADD_REJECTED_OPTION, title, message))
}

fn malformed(
    check: &Check<'_, '_>,
    shape: OptionShape,
    count: u64,
    options: &Options,
) -> Option<Draft> {
    let is_null = |address| address == 0;
    let why = if is_null(check.call.argument(shape.numbers)) {
        format!("the count is {count}, but the pointer to the option numbers is NULL")
    } else if is_null(options.values_address) {
        format!("the count is {count}, but the pointer to the option values is NULL")
    } else {
        unknown(check, options)
            .or_else(|| log_without_size(options))
            .or_else(|| symbols(check, shape, options))?
    };
    let message = format!(
        "In the options of {}, {why}. {}",
        check.function(),
        check
            .answer_or("The driver accepted the array, but does not promise what it does with it."),
    );
    let title = "malformed array of options";
    Some(Draft::new(
        rules::MODULE_JIT_OPTIONS_MALFORMED,
        title,
        message,
    ))
}

fn unknown(check: &Check<'_, '_>, options: &Options) -> Option<String> {
    // A number that the driver accepts belongs to a newer toolkit than ours.
    if !check.went_wrong() {
        return None;
    }
    let table = check.context.signatures().enumeration("CUjit_option")?;
    let is_valid = |option: u32| {
        let name = table.name_of(i64::from(option));
        name.is_some_and(|name| name != "CU_JIT_NUM_OPTIONS")
    };
    let mut numbers = options.numbers.iter().copied();
    let bad = numbers.find(|&option| !is_valid(option))?;
    Some(format!("{bad} ({bad:#x}) is no value of CUjit_option"))
}

fn log_without_size(options: &Options) -> Option<String> {
    [
        (INFO_LOG, INFO_LOG_SIZE, "CU_JIT_INFO_LOG_BUFFER"),
        (ERROR_LOG, ERROR_LOG_SIZE, "CU_JIT_ERROR_LOG_BUFFER"),
    ]
    .into_iter()
    .find_map(|(buffer, size, name)| {
        let address = options.value(buffer).filter(|&address| address != 0)?;
        match options.value(size) {
            None => Some(format!(
                "{name} ({address:#x}) has no {name}_SIZE_BYTES beside it"
            )),
            Some(value) if value & 0xffff_ffff == 0 => Some(format!(
                "{name} ({address:#x}) has a {name}_SIZE_BYTES of 0"
            )),
            Some(_) => None,
        }
    })
}

fn symbols(check: &Check<'_, '_>, shape: OptionShape, options: &Options) -> Option<String> {
    let parts = [SYMBOL_NAMES, SYMBOL_ADDRESSES, SYMBOL_COUNT];
    let missing = parts.iter().filter(|part| !options.numbers.contains(part));
    let missing: Vec<_> = missing.map(|&part| name(check, part)).collect();
    if missing.len() == parts.len() {
        return None;
    }
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        return Some(format!(
            "global symbols are supplied, but {missing} is missing"
        ));
    }
    let names = check.call.snapshot(shape.values, field::SYMBOL_NAMES)?;
    let names = names.bytes.inline()?.split(|&byte| byte == 0);
    let addresses = numbers64(check.call.snapshot(shape.values, field::SYMBOL_ADDRESSES));
    let symbols: Vec<(&[u8], u64)> = names.zip(addresses).collect();
    symbols.iter().find_map(|&(symbol, address)| {
        let &(_, first) = symbols.iter().find(|(other, _)| *other == symbol)?;
        let symbol = String::from_utf8_lossy(symbol);
        (first != address)
            .then(|| format!("the symbol \"{symbol}\" is supplied at {first:#x} and {address:#x}"))
    })
}

/// The size of a log, which the driver replaces by the bytes that it has filled, is passed on as
/// the next capacity.
fn reused(check: &Check<'_, '_>, shape: OptionShape, options: &Options) -> Option<Draft> {
    let old = check.state.arrays.get(&options.values_address)?;
    if old.numbers != options.numbers || old.left.len() != options.values.len() {
        return None;
    }
    let sizes = options.numbers.iter().enumerate();
    let mut sizes = sizes.filter(|(_, option)| matches!(**option, INFO_LOG_SIZE | ERROR_LOG_SIZE));
    let (slot, &option, given, left) = sizes.find_map(|(slot, option)| {
        let low = |values: &[u64]| values.get(slot).map(|value| value & 0xffff_ffff);
        let (given, left) = (low(&old.given), low(&old.left)?);
        let reused = low(&options.values) == Some(left) && given != Some(left);
        reused.then_some((slot, option, given.unwrap_or(0), left))
    })?;
    let message = format!(
        "{} gets the array of option values at {:#x} that {} used before. Slot {slot}, {}, was \
         {given} then; the driver replaced it by {left}, the bytes that it filled. The log of this \
         call has room for {left} bytes only.",
        check.function(),
        check.call.argument(shape.values),
        at(old.site),
        name(check, option),
    );
    let title = "option values reused as the driver left them";
    Some(
        Draft::new(rules::MODULE_JIT_OUTPUT_REUSED, title, message).chain(vec![
            format!("{} wrote {left} to slot {slot}", at(old.site)),
            format!("used as a capacity by {}", at(check.site)),
        ]),
    )
}

fn by_address(check: &Check<'_, '_>, options: &Options) -> Option<Draft> {
    let table = check.context.signatures().enumeration("CUjit_option")?;
    let mut values = options.numbers.iter().zip(&options.values);
    let (&option, &value) = values.find(|&(&option, value)| {
        // A sign-extended negative int is no address, nor is a slot of which only the lower half
        // was set: that half is a small number, whatever the upper one holds.
        let is_address = (1 << 32..1 << 47).contains(value) && value & 0xffff_ffff > LARGEST_NUMBER;
        is_address && is_number(option) && table.name_of(i64::from(option)).is_some()
    })?;
    let message = format!(
        "{} gets {value:#x} as the value of {}, which is a number of 32 bits, not an address. The \
         driver uses its lower half, {}. {}",
        check.function(),
        name(check, option),
        value & 0xffff_ffff,
        check.answer_or(""),
    );
    let title = "address as the value of an option";
    Some(Draft::new(
        rules::LINK_OPTION_VALUE_BY_ADDRESS,
        title,
        message,
    ))
}

fn conflict(check: &Check<'_, '_>, options: &Options, links: bool) -> Option<Draft> {
    let has = |option| options.numbers.contains(&option);
    let why = if has(THREADS_PER_BLOCK) && has(TARGET) {
        "CU_JIT_THREADS_PER_BLOCK and CU_JIT_TARGET exclude each other"
    } else if links && has(FALLBACK_STRATEGY) {
        "CU_JIT_FALLBACK_STRATEGY is not for the linker, which needs exact matches"
    } else {
        return None;
    };
    let message = format!(
        "In the options of {}, {why}. {}",
        check.function(),
        check.answer_or("This driver accepted them."),
    );
    let title = "options that exclude each other";
    Some(Draft::new(rules::LINK_OPTION_CONFLICT, title, message))
}

fn deprecated(check: &Check<'_, '_>, options: &Options) -> Option<Draft> {
    let mut numbers = options.numbers.iter();
    let &option = numbers.find(|&option| (LTO..=VARIABLE_COUNT).contains(option))?;
    let message = format!(
        "{} gets {}. Link-time optimization in the driver is deprecated: it works only for code of \
         toolkits before CUDA 12.0.",
        check.function(),
        name(check, option),
    );
    let title = "deprecated option of link-time optimization";
    let draft = Draft::new(rules::LINK_LTO_IR_TOO_NEW, title, message);
    Some(draft.severity(Severity::Advice))
}
