//! What one cubin or PTX text declares.

use crate::target::Target;

/// The compute capabilities (major) whose instructions for grid dependencies are known (`ptxas`
/// 12.9: sm_90 to sm_120). Earlier ones have none.
pub(crate) const KNOWN_CODE: std::ops::RangeInclusive<u16> = 9..=12;

/// One kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Bytes from the start of the parameter buffer.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// One kernel or device function that the image defines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// As in the image: mangled names stay mangled.
    pub name: String,
    /// In order. Empty for device functions of a cubin, which keeps no record of theirs.
    pub parameters: Vec<Parameter>,
    /// A kernel (`.entry`), not a device function.
    pub is_entry: bool,
    /// Registers per thread; PTX does not say.
    pub registers: Option<u32>,
    /// Static shared memory in bytes, without the 1024 that a linked cubin from sm_90 on reserves
    /// for the system. Of PTX: what the body declares and the module-wide variables that it names
    /// itself, padding included.
    pub shared_bytes: u64,
    /// Local memory per thread in bytes: a cubin's stack frame, or what a PTX body declares.
    pub local_bytes: u64,
    /// User constants in bytes; the bank is one for the whole module, so each function shows the
    /// same.
    pub const_bytes: u64,
    /// The most threads a block may have (`.maxntid`: the product of its three numbers).
    pub max_threads: Option<u32>,
    /// The one block shape that is allowed (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// The one cluster shape that is allowed, in blocks (`.reqnctapercluster`).
    pub required_cluster: Option<[u32; 3]>,
    /// A launch must have a cluster shape, by the image or by attribute (`.explicitcluster`).
    pub needs_cluster: bool,
    /// The most blocks of a cluster (`.maxclusterrank`).
    pub max_cluster_blocks: Option<u32>,
    /// What its instructions use of the launch that runs it.
    pub uses: Uses,
}

/// What the instructions of a function use of the launch that runs it. Of the functions that it
/// calls, only their names are looked at. Of a cubin, only the last two are known, and only for
/// compute capability 9 to 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Uses {
    /// It launches grids through the device runtime.
    pub device_launch: bool,
    /// It synchronises the grid: it reads the workspace that a cooperative launch provides
    /// (`%envreg1` and `%envreg2`, as cooperative groups of CUDA 11 and later do; assumed of
    /// others) and has atomics and barriers.
    pub grid_barrier: bool,
    /// It lets dependent grids start early (`griddepcontrol.launch_dependents`).
    pub early_trigger: bool,
    /// It waits for the grids that it depends on (`griddepcontrol.wait`).
    pub dependency_wait: bool,
}

/// One module-wide variable in global or constant memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Global {
    /// As in the image.
    pub name: String,
    /// Bytes; 0 for an external array of unknown length.
    pub size: u64,
    /// In constant memory.
    pub constant: bool,
    /// `__managed__`: `.attribute(.managed)`.
    pub managed: bool,
    /// Initial bytes, where they do not depend on addresses (PTX) or before relocation (cubin). May
    /// be shorter than `size`: the rest is zero. `None`: all zero, or not known.
    pub initial: Option<Vec<u8>>,
    /// Declared here and defined elsewhere. Loaded alone, `ptxas` 12.9 and 13.5 turn such a
    /// variable of a PTX text into a definition, with a warning.
    pub external: bool,
}

/// What one cubin or PTX text declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Kernels and device functions with a body, in the order of the image.
    pub functions: Vec<Function>,
    /// Variables in global and constant memory.
    pub globals: Vec<Global>,
    /// Names used here and defined elsewhere, functions and variables, without those that the
    /// driver itself supplies (`vprintf`, `malloc`, `free`, `__assertfail`); a declaration that
    /// nothing uses is not one.
    pub undefined: Vec<String>,
    /// It uses the heap of the device: it calls `malloc` or `free`, as `new` and `delete` do.
    pub uses_heap: bool,
    /// Names of texture references.
    pub textures: Vec<String>,
    /// Names of surface references.
    pub surfaces: Vec<String>,
    /// A relocatable object (ELF ET_REL, from `-rdc=true`), which the linker takes.
    pub relocatable: bool,
    /// `.version` of a PTX text.
    pub ptx_version: Option<(u16, u16)>,
    /// What it was compiled for, or the first name in PTX's `.target`.
    pub target: Option<Target>,
    /// 64, or 32 for code from old toolkits.
    pub address_bits: u8,
    /// The tool that made it, as it calls itself ("Cuda compilation tools, release 13.0,
    /// V13.0.88"), if it says so.
    pub producer: Option<String>,
}

impl Content {
    /// Whether [`Uses::early_trigger`] and [`Uses::dependency_wait`] are known of its functions.
    pub fn shows_dependencies(&self) -> bool {
        let is_known = |target: Target| target.major <= *KNOWN_CODE.end();
        self.ptx_version.is_some() || self.target.is_some_and(is_known)
    }

    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// The variable of that name.
    pub fn global(&self, name: &str) -> Option<&Global> {
        self.globals.iter().find(|g| g.name == name)
    }

    /// Of [`Content::undefined`], those that are functions: what makes a load without a linker
    /// fail.
    pub fn undefined_functions(&self) -> impl Iterator<Item = &str> {
        let external: std::collections::HashSet<&str> = self
            .globals
            .iter()
            .filter(|g| g.external)
            .map(|g| g.name.as_str())
            .collect();
        self.undefined
            .iter()
            .map(String::as_str)
            .filter(move |name| !external.contains(name))
    }
}

/// Of the functions that the driver supplies, those of the heap.
pub(crate) fn is_of_heap(name: &str) -> bool {
    matches!(name, "malloc" | "free")
}

/// Functions that device code calls and the driver supplies (CUDA programming guide, "Formatted
/// Output", "Dynamic Global Memory Allocation", "Assertion").
pub(crate) fn supplied_by_driver(name: &str) -> bool {
    matches!(name, "vprintf" | "malloc" | "free" | "__assertfail")
}
