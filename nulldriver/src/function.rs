//! Execution Control: functions and kernels, their attributes and parameters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::answer::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::argument::Out;
use crate::device::{SHARED_DEFAULT, SHARED_OPT_IN};
use crate::dispatch::{Entry, bind};
use crate::image::Code;
use crate::legacy_launch::Legacy;
use crate::module::Module;
use crate::state::{State, check_device, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuFuncGetAttribute", bind(get_attribute)),
    ("cuFuncSetAttribute", bind(set_attribute)),
    ("cuFuncSetCacheConfig", bind(set_cache_config)),
    ("cuFuncSetSharedMemConfig", bind(set_shared_config)),
    ("cuFuncGetModule", bind(get_module)),
    ("cuFuncGetName", bind(get_name)),
    ("cuFuncGetParamInfo", bind(get_param_info)),
    ("cuFuncIsLoaded", bind(is_loaded)),
    ("cuFuncLoad", bind(load)),
    ("cuKernelGetAttribute", bind(kernel_get_attribute)),
    ("cuKernelSetAttribute", bind(kernel_set_attribute)),
    ("cuKernelSetCacheConfig", bind(kernel_set_cache_config)),
    ("cuKernelGetName", bind(kernel_get_name)),
    ("cuKernelGetParamInfo", bind(kernel_get_param_info)),
    ("cuKernelGetLibrary", bind(kernel_get_library)),
    ("cuKernelGetFunction", bind(kernel_get_function)),
];

// Numbers of CUfunction_attribute.
const MAX_THREADS: u32 = 0;
pub(crate) const MAX_DYNAMIC_SHARED: u32 = 8;
const CARVEOUT: u32 = 9;
pub(crate) const CLUSTER_WIDTH: u32 = 11;
pub(crate) const NON_PORTABLE_CLUSTER: u32 = 14;

/// Where a kernel's code is.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    code: Arc<Code>,
    position: usize,
    /// For the rest of the process, so that a name outlives its module as it happens to on the real driver.
    name: &'static CStr,
}

impl Spec {
    pub(crate) fn new(code: &Arc<Code>, position: usize) -> Spec {
        let name = intern(&code.content.functions[position].name);
        Spec {
            code: Arc::clone(code),
            position,
            name,
        }
    }

    /// What the image says about it.
    pub(crate) fn image(&self) -> &cutape_image::Function {
        &self.code.content.functions[self.position]
    }

    /// Registers a thread; a plausible number where the image does not say.
    pub(crate) fn registers(&self) -> u32 {
        self.image().registers.unwrap_or(16).max(1)
    }

    /// The most threads that a block may have: what the code says, and what fits into the register file.
    pub(crate) fn max_threads(&self) -> u32 {
        let by_registers = 65_536 / (self.registers().next_multiple_of(8) * 32) * 32;
        self.image()
            .max_threads
            .unwrap_or(1024)
            .min(1024)
            .min(by_registers)
    }

    /// The value before anything was set; `None` for no attribute.
    fn default_attribute(&self, attribute: u32) -> Option<i32> {
        let image = self.image();
        let number = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
        let (major, minor) = self.code.capability;
        let device = major * 10 + minor;
        let target = self
            .code
            .content
            .target
            .map_or(device, |target| target.number());
        Some(match attribute {
            MAX_THREADS => self.max_threads() as i32,
            1 => number(image.shared_bytes),
            2 => number(image.const_bytes),
            3 => number(image.local_bytes),
            4 => self.registers() as i32,
            5 => i32::from(target), // PTX_VERSION: the virtual architecture
            6 => i32::from(device),
            MAX_DYNAMIC_SHARED => {
                number(u64::from(SHARED_DEFAULT).saturating_sub(image.shared_bytes))
            }
            CARVEOUT => -1,
            7 | 10..=15 => 0,
            _ => return None,
        })
    }

    /// Whether the attribute may be set to the value (cuFuncSetAttribute; measured where the comment says so).
    fn check_setting(&self, attribute: u32, value: i32) -> Answer {
        let static_shared = self.image().shared_bytes;
        let fine = match attribute {
            MAX_DYNAMIC_SHARED => {
                u64::try_from(value)
                    .is_ok_and(|bytes| bytes + static_shared <= u64::from(SHARED_OPT_IN)) // measured
            }
            CARVEOUT => (-1..=100).contains(&value), // measured: 150 is refused
            CLUSTER_WIDTH..=13 => value >= 0,
            NON_PORTABLE_CLUSTER => true, // measured: any number
            15 => (0..=2).contains(&value),
            _ => false, // measured: read-only ones are INVALID_VALUE
        };
        if fine { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

/// A function of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) context: u64,
    pub(crate) module: u64,
    /// The kernel that it is the instance of, or 0.
    kernel: u64,
    pub(crate) spec: Spec,
    attributes: BTreeMap<u32, i32>,
    pub(crate) is_loaded: bool,
    pub(crate) legacy: Legacy,
}

impl Function {
    pub(crate) fn new(module: &Module, handle: u64, position: usize, kernel: u64) -> Function {
        Function {
            context: module.context,
            module: handle,
            kernel,
            spec: Spec::new(&module.code, position),
            attributes: BTreeMap::new(),
            is_loaded: false,
            legacy: Legacy::default(),
        }
    }
}

/// A kernel of a library.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) library: u64,
    pub(crate) spec: Spec,
    /// By device and attribute.
    attributes: HashMap<(i32, u32), i32>,
}

impl Kernel {
    pub(crate) fn new(library: u64, code: &Arc<Code>, position: usize) -> Kernel {
        Kernel {
            library,
            spec: Spec::new(code, position),
            attributes: HashMap::new(),
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.spec.position
    }
}

/// What a launch needs to know of a `CUfunction` or `CUkernel`.
#[derive(Clone, Debug)]
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

impl State {
    /// The value of a function's attribute: its own, else its kernel's, else the code's.
    fn function_attribute(&self, function: &Function, attribute: u32) -> Option<i32> {
        let own = function.attributes.get(&attribute).copied();
        let device = self
            .contexts
            .get(&function.context)
            .map_or(0, |context| context.device);
        let kernel = self.kernels.get(&function.kernel);
        own.or_else(|| {
            kernel.and_then(|kernel| kernel.attributes.get(&(device, attribute)).copied())
        })
        .or_else(|| function.spec.default_attribute(attribute))
    }

    /// What is behind a handle given to a launch or an occupancy query; `INVALID_HANDLE` for nothing living.
    pub(crate) fn launchable(&self, handle: u64) -> Answer<Launchable> {
        let number = |value: Option<i32>| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(0)
        };
        let build = |context, spec: &Spec, value: &dyn Fn(u32) -> Option<i32>| Launchable {
            context,
            spec: spec.clone(),
            dynamic_shared: number(value(MAX_DYNAMIC_SHARED)),
            cluster: [11, 12, 13].map(|attribute| number(value(attribute))),
            non_portable_cluster: number(value(NON_PORTABLE_CLUSTER)) != 0,
        };
        if let Some(function) = self.functions.get(&handle) {
            let value = |attribute| self.function_attribute(function, attribute);
            return Ok(build(function.context, &function.spec, &value));
        }
        let kernel = self.kernels.get(&handle).ok_or(INVALID_HANDLE)?;
        let device = self.current_device()?;
        let value = |attribute| {
            let set = kernel.attributes.get(&(device, attribute)).copied();
            set.or_else(|| kernel.spec.default_attribute(attribute))
        };
        Ok(build(0, &kernel.spec, &value))
    }

    pub(crate) fn function(&self, handle: u64) -> Answer<&Function> {
        self.functions.get(&handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn kernel(&self, handle: u64) -> Answer<&Kernel> {
        self.kernels.get(&handle).ok_or(INVALID_HANDLE)
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

fn get_attribute(value: Out<i32>, attribute: u32, function: u64) -> Answer {
    let state = lock();
    let function = state.function(function)?;
    value.check()?;
    value.set(
        state
            .function_attribute(function, attribute)
            .ok_or(INVALID_VALUE)?,
    )
}

fn set_attribute(function: u64, attribute: u32, value: i32) -> Answer {
    let mut state = lock();
    // A CUkernel is not taken for a function here (measured).
    let object = state.functions.get_mut(&function).ok_or(INVALID_HANDLE)?;
    object.spec.check_setting(attribute, value)?;
    object.attributes.insert(attribute, value);
    Ok(())
}

fn set_cache_config(function: u64, config: u32) -> Answer {
    lock().function(function)?;
    if config > 3 {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn set_shared_config(function: u64, config: u32) -> Answer {
    lock().function(function)?;
    if config > 2 {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn get_module(module: Out<u64>, function: u64) -> Answer {
    let state = lock();
    module.check()?;
    module.set(state.function(function)?.module)
}

fn get_name(name: Out<u64>, function: u64) -> Answer {
    let state = lock();
    name.check()?;
    if function == 0 {
        return Err(INVALID_VALUE);
    }
    name.set(state.function(function)?.spec.name.as_ptr() as u64)
}

fn param_info(spec: &Spec, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    offset.check()?;
    // INVALID_VALUE past the last (measured).
    let parameter = spec.image().parameters.get(index).ok_or(INVALID_VALUE)?;
    offset.set_if(parameter.offset as usize);
    size.set_if(parameter.size as usize);
    Ok(())
}

fn get_param_info(function: u64, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    let state = lock();
    if function == 0 {
        return Err(INVALID_VALUE);
    }
    param_info(&state.function(function)?.spec, index, offset, size)
}

fn is_loaded(loading: Out<u32>, function: u64) -> Answer {
    let state = lock();
    loading.check()?;
    loading.set(u32::from(state.function(function)?.is_loaded))
}

fn load(function: u64) -> Answer {
    let mut state = lock();
    state
        .functions
        .get_mut(&function)
        .ok_or(INVALID_HANDLE)?
        .is_loaded = true;
    Ok(())
}

fn kernel_get_attribute(value: Out<i32>, attribute: u32, kernel: u64, device: i32) -> Answer {
    let state = lock();
    let kernel = state.kernel(kernel)?;
    value.check()?;
    check_device(device)?;
    let set = kernel.attributes.get(&(device, attribute)).copied();
    value.set(
        set.or_else(|| kernel.spec.default_attribute(attribute))
            .ok_or(INVALID_VALUE)?,
    )
}

fn kernel_set_attribute(attribute: u32, value: i32, kernel: u64, device: i32) -> Answer {
    let mut state = lock();
    let object = state.kernels.get_mut(&kernel).ok_or(INVALID_HANDLE)?;
    check_device(device)?;
    object.spec.check_setting(attribute, value)?;
    object.attributes.insert((device, attribute), value);
    Ok(())
}

fn kernel_set_cache_config(kernel: u64, config: u32, device: i32) -> Answer {
    lock().kernel(kernel)?;
    check_device(device)?;
    if config > 3 {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn kernel_get_name(name: Out<u64>, kernel: u64) -> Answer {
    let state = lock();
    name.check()?;
    if kernel == 0 {
        return Err(INVALID_VALUE);
    }
    name.set(state.kernel(kernel)?.spec.name.as_ptr() as u64)
}

fn kernel_get_param_info(
    kernel: u64,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Answer {
    let state = lock();
    if kernel == 0 {
        return Err(INVALID_VALUE);
    }
    param_info(&state.kernel(kernel)?.spec, index, offset, size)
}

fn kernel_get_library(library: Out<u64>, kernel: u64) -> Answer {
    let state = lock();
    library.check()?;
    library.set(state.kernel(kernel)?.library)
}

fn kernel_get_function(function: Out<u64>, kernel: u64) -> Answer {
    let mut state = lock();
    function.check()?;
    let object = state.kernel(kernel)?;
    let (library, position) = (object.library, object.position());
    let module = state.module_of_library(library)?;
    function.set(state.function_of(module, position, kernel)?)
}
