//! The words that options of recording take, with their help.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cutape_format::{Contents, PayloadPolicy, Secret};
use cutape_registry::{Backend, Digests, HostMemory, MemoryContents, Stacks, WhenFull};

/// Which backend `--backend` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// Audit where it is known to work, else preload.
    Auto,
    /// This one.
    Named(Backend),
}

/// The word of [`BackendChoice::Auto`].
const AUTO: &str = "auto";

/// Parses `all`, `hash` or `none`.
pub fn payloads() -> impl TypedValueParser<Value = PayloadPolicy> {
    parser(
        &PayloadPolicy::EVERY,
        PayloadPolicy::word,
        |payloads| match payloads {
            PayloadPolicy::All => "All bytes",
            PayloadPolicy::Hash => {
                "Only their number and a blake3 hash, computed when the trace is packed"
            }
            PayloadPolicy::None => "Only their number",
        },
    )
}

/// Parses what `redact` removes.
pub fn secrets() -> impl TypedValueParser<Value = Secret> {
    parser(&Secret::EVERY, Secret::word, |secret| match secret {
        Secret::Payloads => "Bytes copied to devices and back, their hashes and digests",
        Secret::Parameters => "Parameters of kernels, but for addresses and handles",
        Secret::Environment => "Variables, and the arguments of the program",
        Secret::Paths => "Paths of programs, libraries, sources, images; names of threads",
        Secret::Names => "Names of kernels, functions, ranges and marks; the images",
        Secret::Images => "Bytes of code images, which a replay then cannot load",
    })
}

/// Parses what takes the place of payloads.
pub fn contents() -> impl TypedValueParser<Value = Contents> {
    parser(
        &Contents::EVERY,
        Contents::word,
        |contents| match contents {
            Contents::Zeros => "Their number only; a replay copies zeros",
            Contents::Pattern => "The f32 1.0, again and again",
            Contents::Statistics => {
                "Random f32 between the powers of two that enclose the numbers, where the bytes are \
             f32; else zeros"
            }
        },
    )
}

pub(crate) fn host_memory() -> impl TypedValueParser<Value = HostMemory> {
    parser(HostMemory::ALL, HostMemory::word, |which| match which {
        HostMemory::Off => "None",
        HostMemory::Reachable => {
            "Ranges that a call's arguments or a kernel's parameters point into"
        }
        HostMemory::All => "All of it, at every launch",
    })
}

pub(crate) fn memory() -> impl TypedValueParser<Value = MemoryContents> {
    parser(
        MemoryContents::ALL,
        MemoryContents::word,
        |which| match which {
            MemoryContents::None => "None",
            MemoryContents::All => "All that the process has allocated on its devices",
        },
    )
}

pub(crate) fn stacks() -> impl TypedValueParser<Value = Stacks> {
    parser(Stacks::ALL, Stacks::word, |which| match which {
        Stacks::Off => "None",
        Stacks::Some => "Those that create or destroy, load or unload, wait, or fail",
        Stacks::All => "All: launches and copies as well",
    })
}

pub(crate) fn when_full() -> impl TypedValueParser<Value = WhenFull> {
    parser(WhenFull::ALL, WhenFull::word, |what| match what {
        WhenFull::DropPayloads => {
            "Bytes copied to devices, from 3/4 of the size on, then those copied from devices; calls \
             at its end"
        }
        WhenFull::DropLargest => {
            "The longest copies of bytes, from half of the size on, then shorter ones; calls at its end"
        }
        WhenFull::Stop => "Everything, at its end",
    })
}

pub(crate) fn digests() -> impl TypedValueParser<Value = Digests> {
    parser(Digests::ALL, Digests::word, |when| match when {
        Digests::End => "All memory, when a context or the process ends",
        Digests::Sync => "Also when the program has waited for work",
        Digests::Launch => "What a launch can reach, after each launch; all memory at the end",
    })
}

pub(crate) fn backend() -> impl TypedValueParser<Value = BackendChoice> {
    let named = Backend::ALL.iter().copied().map(BackendChoice::Named);
    let all: Vec<_> = [BackendChoice::Auto].into_iter().chain(named).collect();
    let word = |choice| match choice {
        BackendChoice::Auto => AUTO,
        BackendChoice::Named(backend) => backend.word(),
    };
    parser(&all, word, |choice| match choice {
        BackendChoice::Auto => "`audit` where it is known to work, else `preload`",
        BackendChoice::Named(Backend::Audit) => {
            "Auditing library (LD_AUDIT): libcuda by name or path, from every library"
        }
        BackendChoice::Named(Backend::Preload) => {
            "LD_PRELOAD: libcuda by name, or by path through `dlopen`"
        }
        BackendChoice::Named(Backend::Gum) => {
            "Preload, and patch the driver: also callers that the loader does not see. Needs a \
             build with frida-gum"
        }
    })
}

/// Parses the words of values.
fn parser<T: Copy + Send + Sync + 'static>(
    all: &[T],
    word: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> + use<T> {
    let words = all
        .iter()
        .map(|&value| PossibleValue::new(word(value)).help(help(value)));
    let all = all.to_vec();
    PossibleValuesParser::new(words).try_map(move |found| {
        let value = all.iter().copied().find(|&value| word(value) == found);
        value.ok_or("unknown")
    })
}
