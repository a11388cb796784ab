//! What the launcher asked for, from the environment; nothing is believed in a program that runs with raised rights.

use std::ffi::{CStr, CString, c_char};

use cutape_format::PayloadPolicy;

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

/// By which way calls reach us, see `hook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Names: ours is libcuda's.
    Preload,
    /// An auditing library.
    Audit,
    /// The driver's own functions lead to us.
    Gum,
}

impl Via {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Audit => "audit",
            Self::Gum => "gum",
        }
    }
}

/// `CUTAPE_VIA`: by which way the launcher has brought us in.
pub(crate) fn via() -> Via {
    match variable(c"CUTAPE_VIA").as_deref().map(CStr::to_bytes) {
        Some(b"audit") => Via::Audit,
        Some(b"gum") => Via::Gum,
        _ => Via::Preload,
    }
}

/// The settings.
pub(crate) struct Settings {
    /// `CUTAPE_TRACE`: the file to write. Without it nothing is recorded.
    pub(crate) trace: Option<CString>,
    /// `CUTAPE_DRIVER`: the real library.
    pub(crate) driver: Option<CString>,
    /// `CUTAPE_PAYLOADS`: what is kept of the bytes that programs copy to devices. Here `hash` is as `all`: `pack` makes hashes.
    pub(crate) payloads: PayloadPolicy,
    /// `CUTAPE_OUTPUTS`: what is kept of the bytes that come back.
    pub(crate) outputs: PayloadPolicy,
    /// `CUTAPE_HOST_MEMORY`: what is recorded of host memory that the device reads.
    pub(crate) host_memory: HostMemory,
    /// `CUTAPE_COST`: what recording costs is measured.
    pub(crate) measures_cost: bool,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        // SAFETY: asks the auxiliary vector; no memory is involved.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return Self {
                trace: None,
                driver: None,
                payloads: PayloadPolicy::None,
                outputs: PayloadPolicy::None,
                host_memory: HostMemory::Off,
                measures_cost: false,
            };
        }
        Self {
            trace: variable(c"CUTAPE_TRACE"),
            driver: variable(c"CUTAPE_DRIVER"),
            payloads: policy(c"CUTAPE_PAYLOADS"),
            outputs: policy(c"CUTAPE_OUTPUTS"),
            host_memory: match variable(c"CUTAPE_HOST_MEMORY")
                .as_deref()
                .map(CStr::to_bytes)
            {
                None | Some(b"reachable") => HostMemory::Reachable,
                Some(b"all") => HostMemory::All,
                Some(_) => HostMemory::Off,
            },
            measures_cost: variable(c"CUTAPE_COST").is_some(),
        }
    }
}

fn policy(name: &CStr) -> PayloadPolicy {
    match variable(name) {
        None => PayloadPolicy::All,
        // Of what nobody understands, the least is kept.
        Some(word) => PayloadPolicy::from_word(word.to_bytes()).unwrap_or(PayloadPolicy::None),
    }
}

/// A variable of the environment that is set to something, or was when the program began.
pub(crate) fn variable(name: &CStr) -> Option<CString> {
    // SAFETY: the name is NUL-terminated; the value is copied before anything else can change the environment. That the
    // program changes it on another thread at this very moment is its own race with every getenv.
    let now = unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null() && *value != 0).then(|| CStr::from_ptr(value).to_owned())
    };
    now.or_else(|| crate::hook::kept_value(name))
}
