//! Arrays of JIT options: well-formed, with values and not addresses, fresh at every use.

use cutape_format::layout::field;
use cutape_registry::{Family, LinkOp};

use super::{Check, Draft, at};
use crate::finding::Severity;
use crate::plan::OptionShape;

use crate::state::data::Options;
use crate::state::options::*;
use crate::state::{numbers64, options_of};

/// Rules about the option arrays of loads and links.
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let Some(shape) = check.plan.options else {
        return;
    };
    // An unsigned int.
    let count = check.call.argument(shape.count) & 0xffff_ffff;
    if count == 0 {
        return;
    }
    let options = options_of(shape, check.call);
    let link = matches!(check.plan.function.family, Family::Link(_));
    let creates = matches!(
        check.plan.function.family,
        Family::Link(LinkOp::Create { .. })
    );
    let add = link && !creates;
    // Several complaints about one array have one cause.
    let before = drafts.len();
    if add {
        rejected(check, drafts, &options);
    }
    if drafts.len() == before {
        reused(check, drafts, shape, &options);
    }
    if drafts.len() == before {
        by_address(check, drafts, &options);
    }
    if drafts.len() == before {
        malformed(check, drafts, shape, count, &options);
    }
    if drafts.len() == before {
        conflict(check, drafts, &options, link);
    }
    if link {
        deprecated(check, drafts, &options);
    }
}

/// Name of an option.
fn name(check: &Check<'_, '_>, option: u32) -> String {
    let table = check.context.signatures().enumeration("CUjit_option");
    let known = table.and_then(|table| table.name_of(i64::from(option)));
    known.map_or_else(|| format!("option {option}"), str::to_owned)
}

fn rejected(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, options: &Options) {
    let bad = options.numbers.iter().copied().find(|&option| {
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
    });
    let Some(bad) = bad else { return };
    let message = format!(
        "{} is given {} for one input. That option belongs to the link as a whole and is taken by cuLinkCreate only. {}",
        check.plan.function.name,
        name(check, bad),
        if check.went_wrong() {
            check.answer()
        } else {
            "This driver took it all the same.".to_owned()
        },
    );
    drafts.push(Draft::new(
        "link-add-rejected-option",
        "an input is given an option of the whole link",
        message,
    ));
}

fn malformed(
    check: &Check<'_, '_>,
    drafts: &mut Vec<Draft>,
    shape: OptionShape,
    count: u64,
    options: &Options,
) {
    let numbers_address = check.call.argument(shape.numbers);
    let why = if numbers_address == 0 || options.values_address == 0 {
        let which = if numbers_address == 0 {
            "the option numbers"
        } else {
            "the option values"
        };
        Some(format!(
            "{count} options are announced, but the pointer to {which} is NULL"
        ))
    } else {
        unknown(check, options)
            .or_else(|| log_without_size(options))
            .or_else(|| symbols(check, shape, options))
    };
    let Some(why) = why else { return };
    let answer = if check.went_wrong() {
        check.answer()
    } else {
        "The driver took the array all the same; what it made of it is not promised.".to_owned()
    };
    let message = format!(
        "In the options of {}: {why}. {answer}",
        check.plan.function.name
    );
    drafts.push(Draft::new(
        "module-jit-options-malformed",
        "a malformed array of options",
        message,
    ));
}

fn unknown(check: &Check<'_, '_>, options: &Options) -> Option<String> {
    // A number that we do not know and the driver takes is newer than we are.
    if !check.went_wrong() {
        return None;
    }
    let table = check.context.signatures().enumeration("CUjit_option")?;
    let bad = options.numbers.iter().copied().find(|&option| {
        table
            .name_of(i64::from(option))
            .is_none_or(|name| name == "CU_JIT_NUM_OPTIONS")
    })?;
    Some(format!("{bad} ({bad:#x}) is no value of CUjit_option"))
}

fn log_without_size(options: &Options) -> Option<String> {
    for (buffer, size, buffer_name, size_name) in [
        (
            INFO_LOG,
            INFO_LOG_SIZE,
            "CU_JIT_INFO_LOG_BUFFER",
            "CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES",
        ),
        (
            ERROR_LOG,
            ERROR_LOG_SIZE,
            "CU_JIT_ERROR_LOG_BUFFER",
            "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
        ),
    ] {
        let Some(address) = options.value(buffer).filter(|&address| address != 0) else {
            continue;
        };
        match options.value(size) {
            None => {
                return Some(format!(
                    "{buffer_name} ({address:#x}) comes without {size_name}"
                ));
            }
            Some(value) if value & 0xffff_ffff == 0 => {
                return Some(format!(
                    "{buffer_name} ({address:#x}) comes with {size_name} 0"
                ));
            }
            Some(_) => {}
        }
    }
    None
}

fn symbols(check: &Check<'_, '_>, shape: OptionShape, options: &Options) -> Option<String> {
    let parts = [SYMBOL_NAMES, SYMBOL_ADDRESSES, SYMBOL_COUNT];
    let given = parts
        .iter()
        .filter(|&&part| options.numbers.contains(&part))
        .count();
    if given == 0 {
        return None;
    }
    if given < parts.len() {
        let missing: Vec<_> = parts
            .iter()
            .filter(|part| !options.numbers.contains(part))
            .map(|&part| name(check, part))
            .collect();
        return Some(format!(
            "global symbols are supplied, but {} is missing",
            missing.join(" and ")
        ));
    }
    let names = check
        .call
        .snapshot(shape.values, field::SYMBOL_NAMES)?
        .bytes
        .inline()?;
    let addresses = numbers64(check.call.snapshot(shape.values, field::SYMBOL_ADDRESSES));
    let names: Vec<&[u8]> = names
        .split(|&byte| byte == 0)
        .take(addresses.len())
        .collect();
    for (position, symbol) in names.iter().enumerate() {
        let first = names.iter().position(|other| other == symbol)?;
        if first < position && addresses[first] != addresses[position] {
            return Some(format!(
                "the symbol \"{}\" is supplied at {:#x} and at {:#x}",
                String::from_utf8_lossy(symbol),
                addresses[first],
                addresses[position],
            ));
        }
    }
    None
}

fn reused(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, shape: OptionShape, options: &Options) {
    let Some(old) = check.state.arrays.get(&options.values_address) else {
        return;
    };
    if old.numbers != options.numbers || old.left.len() != options.values.len() {
        return;
    }
    for (slot, &option) in options.numbers.iter().enumerate() {
        if !matches!(option, INFO_LOG_SIZE | ERROR_LOG_SIZE) {
            continue;
        }
        let low = |values: &[u64]| values.get(slot).map(|value| value & 0xffff_ffff);
        let (given, left, now) = (low(&old.given), low(&old.left), low(&options.values));
        if now != left || left == given || now.is_none() {
            continue;
        }
        let message = format!(
            "{} is given the array of option values at {:#x} that {} was given before. There slot {slot}, {}, was {}; the \
             driver replaced it by {}, the bytes that it filled, and the array is passed on like that: the log of this call \
             has room for {} bytes.",
            check.plan.function.name,
            check.call.argument(shape.values),
            at(old.site),
            name(check, option),
            given.unwrap_or(0),
            left.unwrap_or(0),
            now.unwrap_or(0),
        );
        drafts.push(
            Draft::new(
                "module-jit-output-reused",
                "option values are reused as the driver left them",
                message,
            )
            .chain(vec![
                format!(
                    "{} wrote {} to slot {slot}",
                    at(old.site),
                    left.unwrap_or(0)
                ),
                format!("used as a capacity by {}", at(check.site)),
            ]),
        );
        return;
    }
}

fn by_address(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, options: &Options) {
    let table = check.context.signatures().enumeration("CUjit_option");
    for (&option, &value) in options.numbers.iter().zip(&options.values) {
        let known = table.is_some_and(|table| table.name_of(i64::from(option)).is_some());
        // A negative int and its sign, or a slot of which only half was set, are no addresses.
        let address = (1 << 32..1 << 47).contains(&value);
        if !known || !is_number(option) || !address {
            continue;
        }
        let message = format!(
            "{} is given {value:#x} as the value of {}, which is a number of 32 bits: this is the address of something. The \
             driver takes its low half, {}. {}",
            check.plan.function.name,
            name(check, option),
            value & 0xffff_ffff,
            if check.went_wrong() {
                check.answer()
            } else {
                String::new()
            },
        );
        drafts.push(Draft::new(
            "link-option-value-by-address",
            "an option's value is an address",
            message.trim_end(),
        ));
        return;
    }
}

fn conflict(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, options: &Options, link: bool) {
    let has = |option| options.numbers.contains(&option);
    let why = if has(THREADS_PER_BLOCK) && has(TARGET) {
        "CU_JIT_THREADS_PER_BLOCK and CU_JIT_TARGET exclude each other"
    } else if link && has(FALLBACK_STRATEGY) {
        "CU_JIT_FALLBACK_STRATEGY does not go with the linker, which needs exact matches"
    } else {
        return;
    };
    let message = format!(
        "In the options of {}: {why}. {}",
        check.plan.function.name,
        if check.went_wrong() {
            check.answer()
        } else {
            "This driver took them.".to_owned()
        },
    );
    drafts.push(Draft::new(
        "link-option-conflict",
        "options that do not go together",
        message,
    ));
}

fn deprecated(check: &Check<'_, '_>, drafts: &mut Vec<Draft>, options: &Options) {
    let Some(&option) = options
        .numbers
        .iter()
        .find(|&&option| (LTO..=VARIABLE_COUNT).contains(&option))
    else {
        return;
    };
    let message = format!(
        "{} is given {}. Link-time optimisation in the driver is deprecated: it takes code of toolkits before CUDA 12.0 only.",
        check.plan.function.name,
        name(check, option),
    );
    drafts.push(
        Draft::new(
            "link-lto-ir-too-new",
            "a deprecated option of link-time optimisation",
            message,
        )
        .severity(Severity::Advice),
    );
}
