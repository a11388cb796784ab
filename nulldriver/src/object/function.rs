//! Functions of modules and kernels of libraries, with their attributes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::call::answer::{Answer, valid_if};
use crate::object::code::Code;
use crate::object::device::{SHARED, SHARED_DEFAULT, SHARED_OPT_IN, SHARED_RESERVED};

// CUfunction_attribute.
const MAX_THREADS: u32 = 0;
pub(crate) const MAX_DYNAMIC_SHARED: u32 = 8;
const CARVEOUT: u32 = 9;
const CLUSTER_MUST_BE_SET: u32 = 10;
pub(crate) const CLUSTER_WIDTH: u32 = 11;
pub(crate) const CLUSTER_HEIGHT: u32 = 12;
pub(crate) const CLUSTER_DEPTH: u32 = 13;
pub(crate) const NON_PORTABLE_CLUSTER: u32 = 14;

/// Threads of a block, and registers of a multiprocessor.
const BLOCK_THREADS: u32 = 1024;
const REGISTERS: u32 = 65_536;

/// One kernel of an image.
#[derive(Clone)]
pub(crate) struct Spec {
    code: Arc<Code>,
    pub(crate) position: usize,
    /// Lives as long as the process: on the real driver a name happens to outlive its module.
    pub(crate) name: &'static CStr,
}

impl Spec {
    pub(crate) fn new(code: &Arc<Code>, position: usize) -> Spec {
        Spec {
            code: Arc::clone(code),
            position,
            name: intern(&code.content.functions[position].name),
        }
    }

    /// What the image declares.
    pub(crate) fn image(&self) -> &cutape_image::Function {
        &self.code.content.functions[self.position]
    }

    /// Registers a thread; a plausible number where the image does not say.
    fn registers(&self) -> u32 {
        self.image().registers.unwrap_or(16).max(1)
    }

    /// The most threads of a block by the image's declaration.
    pub(crate) fn declared_threads(&self) -> u32 {
        let declared = self.image().max_threads.unwrap_or(BLOCK_THREADS);
        declared.min(BLOCK_THREADS)
    }

    /// The most threads of a block by declaration and by what fits into the register file.
    pub(crate) fn max_threads(&self) -> u32 {
        let by_registers = REGISTERS / (self.registers().next_multiple_of(8) * 32) * 32;
        self.declared_threads().min(by_registers)
    }

    /// Blocks of that many threads and bytes of dynamic shared memory that a multiprocessor holds
    /// at once.
    pub(crate) fn active_blocks(&self, threads: u32, dynamic: u64) -> u32 {
        if threads == 0 || threads > self.max_threads() {
            return 0;
        }
        let warps = threads.div_ceil(32);
        let registers = self.registers().next_multiple_of(8) * 32 * warps;
        let shared = (self.image().shared_bytes + dynamic).next_multiple_of(128);
        if shared > u64::from(SHARED_OPT_IN) {
            return 0;
        }
        let by_shared = (SHARED / (shared + SHARED_RESERVED)) as u32;
        (64 / warps)
            .min(32)
            .min(REGISTERS / registers)
            .min(by_shared)
    }

    /// The value before anything was set; `None` for no attribute.
    pub(crate) fn default_attribute(&self, attribute: u32) -> Option<i32> {
        let image = self.image();
        let number = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
        let (major, minor) = self.code.capability;
        let device = major * 10 + minor;
        let target = self.code.content.target;
        Some(match attribute {
            MAX_THREADS => self.max_threads() as i32,
            1 => number(image.shared_bytes),
            2 => number(image.const_bytes),
            3 => number(image.local_bytes),
            4 => self.registers() as i32,
            // PTX_VERSION: the virtual architecture.
            5 => i32::from(target.map_or(device, |target| target.number())),
            6 => i32::from(device),
            MAX_DYNAMIC_SHARED => {
                number(u64::from(SHARED_DEFAULT).saturating_sub(image.shared_bytes))
            }
            CARVEOUT => -1,
            CLUSTER_MUST_BE_SET => image.needs_cluster.into(),
            CLUSTER_WIDTH..=CLUSTER_DEPTH => {
                let shape = image.required_cluster.unwrap_or_default();
                number(shape[(attribute - CLUSTER_WIDTH) as usize].into())
            }
            7 | 14 | 15 => 0,
            _ => return None,
        })
    }

    /// Whether the attribute may be set to the value (cuFuncSetAttribute; measured where it says
    /// so).
    pub(crate) fn check_setting(&self, attribute: u32, value: i32) -> Answer {
        let static_shared = self.image().shared_bytes;
        // A shape of the image is fixed; measured: the manual's NOT_PERMITTED is not the answer.
        let is_fixed = self.image().required_cluster.is_some();
        let is_cluster = (CLUSTER_WIDTH..=CLUSTER_DEPTH).contains(&attribute);
        valid_if(!(is_fixed && is_cluster))?;
        let is_allowed = match attribute {
            // Measured.
            MAX_DYNAMIC_SHARED => u64::try_from(value)
                .is_ok_and(|bytes| bytes + static_shared <= u64::from(SHARED_OPT_IN)),
            CARVEOUT => (-1..=100).contains(&value), // measured: 150 is refused
            CLUSTER_WIDTH..=CLUSTER_DEPTH => value >= 0,
            NON_PORTABLE_CLUSTER => true, // measured: any number
            15 => (0..=2).contains(&value),
            _ => false, // measured: read-only ones are INVALID_VALUE
        };
        valid_if(is_allowed)
    }
}

/// A name as a C string for the rest of the process; each name is kept once.
fn intern(name: &str) -> &'static CStr {
    static NAMES: LazyLock<Mutex<HashSet<&'static CStr>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = CString::new(name.replace('\0', "")).unwrap_or_default();
    if let Some(&known) = names.get(text.as_c_str()) {
        return known;
    }
    let kept: &'static CStr = Box::leak(text.into_boxed_c_str());
    names.insert(kept);
    kept
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) context: u64,
    pub(crate) module: u64,
    /// The kernel that it is the instance of, or 0.
    pub(crate) kernel: u64,
    pub(crate) spec: Spec,
    pub(crate) attributes: BTreeMap<u32, i32>,
    pub(crate) is_loaded: bool,
    pub(crate) legacy: LegacyLaunch,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) library: u64,
    pub(crate) spec: Spec,
    /// By device and attribute.
    pub(crate) attributes: HashMap<(i32, u32), i32>,
}

impl Kernel {
    /// An attribute that was set for a device.
    pub(crate) fn attribute(&self, device: i32, attribute: u32) -> Option<i32> {
        self.attributes.get(&(device, attribute)).copied()
    }
}

/// What the deprecated functions set for `cuLaunchGrid`.
pub(crate) struct LegacyLaunch {
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) parameters: Vec<u8>,
}

impl Default for LegacyLaunch {
    fn default() -> Self {
        LegacyLaunch {
            block: [1; 3],
            shared: 0,
            parameters: Vec::new(),
        }
    }
}

/// What a launch needs to know of a `CUfunction` or `CUkernel`.
pub(crate) struct Launchable {
    /// 0 for a kernel, which runs in the current context.
    pub(crate) context: u64,
    pub(crate) spec: Spec,
    /// Most dynamic shared memory, in bytes.
    pub(crate) dynamic_shared: u32,
    /// `REQUIRED_CLUSTER_WIDTH`, `HEIGHT`, `DEPTH`.
    pub(crate) cluster: [u32; 3],
    pub(crate) non_portable_cluster: bool,
}

impl Launchable {
    /// From the attributes of a function or kernel.
    pub(crate) fn new(context: u64, spec: &Spec, value: impl Fn(u32) -> Option<i32>) -> Self {
        let number = |attribute| {
            let value = value(attribute).and_then(|value| u32::try_from(value).ok());
            value.unwrap_or(0)
        };
        Launchable {
            context,
            spec: spec.clone(),
            dynamic_shared: number(MAX_DYNAMIC_SHARED),
            cluster: [CLUSTER_WIDTH, CLUSTER_HEIGHT, CLUSTER_DEPTH].map(number),
            non_portable_cluster: number(NON_PORTABLE_CLUSTER) != 0,
        }
    }

    /// The most blocks of a cluster.
    pub(crate) fn max_cluster(&self) -> u32 {
        if self.non_portable_cluster { 16 } else { 8 }
    }
}
