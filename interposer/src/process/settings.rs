//! The launcher's settings, from the environment. A program with raised privileges is not
//! recorded.

use std::ffi::{CStr, CString};

use cutape_device_memory::DigestPoints;
use cutape_format::PayloadPolicy;

use super::env;

/// Which host memory that the device reads without a copy is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostMemory {
    /// None.
    Off,
    /// What arguments and kernel parameters point into.
    Reachable,
    /// All of it, at every launch.
    All,
}

/// Which calls have a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stacks {
    /// None.
    Off,
    /// Those that create or end something, wait, or fail.
    Some,
    /// All.
    All,
}

impl Stacks {
    /// Its word in the environment and in the trace.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Some => "some",
            Self::All => "all",
        }
    }
}

/// How calls reach us: see `hook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// By name: the loader finds us in the place of libcuda.
    Preload,
    /// An auditing library redirects searches for libcuda to us.
    Audit,
    /// The functions of the driver are patched to jump to us.
    Gum,
}

impl Backend {
    /// The backend that the launcher has chosen.
    pub(crate) fn chosen() -> Self {
        let chosen = env::variable(env::BACKEND).or_else(|| env::variable(env::VIA));
        match chosen.as_deref().map(CStr::to_bytes) {
            Some(b"audit") => Self::Audit,
            Some(b"gum") => Self::Gum,
            _ => Self::Preload,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Audit => "audit",
            Self::Gum => "gum",
        }
    }
}

/// The settings; `env` describes the variables.
pub(crate) struct Settings {
    pub(crate) trace: Option<CString>,
    pub(crate) driver: Option<CString>,
    pub(crate) payloads: PayloadPolicy,
    pub(crate) outputs: PayloadPolicy,
    pub(crate) host_memory: HostMemory,
    pub(crate) stacks: Stacks,
    pub(crate) digests: DigestPoints,
    /// Bytes of memory for copies of what exchanges change; 0: these are not kept.
    pub(crate) outputs_of_exchanges: u64,
    pub(crate) checks_sources: bool,
    pub(crate) driver_log: bool,
    pub(crate) measures_cost: bool,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        let is_trusted = !env::is_privileged();
        let variable = |name| env::variable(name).filter(|_| is_trusted);
        let host_memory = variable(env::HOST_MEMORY);
        Self {
            trace: variable(env::TRACE),
            driver: variable(env::DRIVER),
            payloads: policy(variable(env::PAYLOADS)),
            outputs: policy(variable(env::OUTPUTS)),
            host_memory: match host_memory.as_deref().map(CStr::to_bytes) {
                None | Some(b"reachable") => HostMemory::Reachable,
                Some(b"all") => HostMemory::All,
                Some(_) => HostMemory::Off,
            },
            stacks: match variable(env::STACKS).as_deref().map(CStr::to_bytes) {
                None | Some(b"off") => Stacks::Off,
                Some(b"all") => Stacks::All,
                Some(_) => Stacks::Some,
            },
            digests: match variable(env::DIGESTS).as_deref().map(CStr::to_bytes) {
                Some(b"end") => DigestPoints::End,
                Some(b"sync") => DigestPoints::Sync,
                Some(b"launch") => DigestPoints::Launch,
                _ => DigestPoints::Off,
            },
            outputs_of_exchanges: bytes(variable(env::OUTPUTS_OF_EXCHANGES)),
            checks_sources: variable(env::CHECK_SOURCES).as_deref() == Some(c"on"),
            driver_log: variable(env::DRIVER_LOG).as_deref() != Some(c"off"),
            measures_cost: variable(env::COST).is_some(),
        }
    }
}

/// A number of bytes, in whole pages.
fn bytes(word: Option<CString>) -> u64 {
    const PAGE: u64 = 4096;
    let text = word.as_deref().and_then(|word| word.to_str().ok());
    let number: Option<u64> = text.and_then(|text| text.parse().ok());
    number
        .and_then(|number| number.checked_next_multiple_of(PAGE))
        .unwrap_or(0)
}

fn policy(word: Option<CString>) -> PayloadPolicy {
    match word {
        None => PayloadPolicy::All,
        // An unknown word keeps the least.
        Some(word) => PayloadPolicy::from_word(word.to_bytes()).unwrap_or(PayloadPolicy::None),
    }
}
