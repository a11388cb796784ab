//! Library Management: code that belongs to no context, and its instance in each.

use std::collections::HashMap;
use std::sync::Arc;

use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY};
use crate::argument::{In, Out, Text};
use crate::dispatch::{Entry, bind};
use crate::function::Kernel;
use crate::image::Code;
use crate::jit::{Options, Use};
use crate::module;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuLibraryLoadData", bind(load_data)),
    ("cuLibraryLoadFromFile", bind(load_file)),
    ("cuLibraryUnload", bind(unload)),
    ("cuLibraryGetKernel", bind(get_kernel)),
    ("cuLibraryGetKernelCount", bind(get_kernel_count)),
    ("cuLibraryEnumerateKernels", bind(enumerate_kernels)),
    ("cuLibraryGetModule", bind(get_module)),
    ("cuLibraryGetGlobal", bind(get_global)),
    ("cuLibraryGetManaged", bind(get_managed)),
    ("cuLibraryGetUnifiedFunction", bind(get_unified_function)),
];

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    code: Arc<Code>,
    /// Kernel handles by position in the code.
    kernels: HashMap<usize, u64>,
    /// Its module in each context that has used it.
    pub(crate) modules: HashMap<u64, u64>,
}

impl State {
    fn library(&self, handle: u64) -> Answer<&Library> {
        self.libraries.get(&handle).ok_or(INVALID_HANDLE)
    }

    /// The module that stands for a library in the current context.
    pub(crate) fn module_of_library(&mut self, library: u64) -> Answer<u64> {
        let context = self.current()?;
        let object = self.library(library)?;
        if let Some(&module) = object.modules.get(&context) {
            return Ok(module);
        }
        let module = self.load_module(Arc::clone(&object.code), library)?;
        if let Some(object) = self.libraries.get_mut(&library) {
            object.modules.insert(context, module);
        }
        Ok(module)
    }

    fn kernel_of(&mut self, library: u64, position: usize) -> Answer<u64> {
        let object = self.library(library)?;
        if let Some(&kernel) = object.kernels.get(&position) {
            return Ok(kernel);
        }
        let made = Kernel::new(library, &object.code, position);
        let handle = self.make(Kind::Kernel)?;
        self.kernels.insert(handle, made);
        if let Some(object) = self.libraries.get_mut(&library) {
            object.kernels.insert(position, handle);
        }
        Ok(handle)
    }

    fn add_library(&mut self, code: Arc<Code>) -> Answer<u64> {
        let library = self.make(Kind::Library)?;
        self.libraries.insert(
            library,
            Library {
                code,
                kernels: HashMap::new(),
                modules: HashMap::new(),
            },
        );
        Ok(library)
    }
}

/// Checks `CUlibraryOption` arrays; neither option changes anything here.
fn check_library_options(count: u32, names: In<u32>, values: In<u64>) -> Answer {
    if count > 64 {
        return Err(INVALID_VALUE);
    }
    for (index, name) in names.list(count as usize)?.into_iter().enumerate() {
        let value = values.get_at(index)?;
        // A table of host functions needs an address; "the binary is preserved" is any value.
        if name > 1 || name == 0 && value == 0 {
            return Err(INVALID_VALUE);
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn load_data(
    library: Out<u64>,
    code: u64,
    names: In<u32>,
    values: In<u64>,
    count: u32,
    library_names: In<u32>,
    library_values: In<u64>,
    library_count: u32,
) -> Answer {
    let mut state = lock();
    library.check()?;
    let mut options = Options::read(count, names, values, Use::Whole)?;
    check_library_options(library_count, library_names, library_values)?;
    let code = module::compile(code, &mut options, state.capability())?;
    library.set(state.add_library(code)?)
}

#[allow(clippy::too_many_arguments)]
fn load_file(
    library: Out<u64>,
    path: Text,
    names: In<u32>,
    values: In<u64>,
    count: u32,
    library_names: In<u32>,
    library_values: In<u64>,
    library_count: u32,
) -> Answer {
    let mut state = lock();
    library.check()?;
    let mut options = Options::read(count, names, values, Use::Whole)?;
    check_library_options(library_count, library_names, library_values)?;
    let code = module::compile_file(path, &mut options, state.capability())?;
    library.set(state.add_library(code)?)
}

fn unload(library: u64) -> Answer {
    let mut state = lock();
    let object = state.libraries.remove(&library).ok_or(INVALID_HANDLE)?;
    for module in object.modules.into_values() {
        state.remove_module(module);
    }
    for kernel in object.kernels.into_values() {
        state.kernels.remove(&kernel);
        state.release(Kind::Kernel, kernel);
    }
    state.release(Kind::Library, library);
    Ok(())
}

fn get_kernel(kernel: Out<u64>, library: u64, name: Text) -> Answer {
    let mut state = lock();
    let object = state.library(library)?;
    kernel.check()?;
    let found = object.code.kernels.get(&name.get()?).copied();
    let Some(position) = found else {
        // Cleared as cuModuleGetFunction's output is (measured there, assumed here).
        kernel.set_if(0);
        return Err(NOT_FOUND);
    };
    kernel.set(state.kernel_of(library, position)?)
}

fn get_kernel_count(count: Out<u32>, library: u64) -> Answer {
    let state = lock();
    let object = state.library(library)?;
    count.set(u32::try_from(object.code.order.len()).map_err(|_| OUT_OF_MEMORY)?)
}

fn enumerate_kernels(kernels: Out<u64>, count: u32, library: u64) -> Answer {
    let mut state = lock();
    let code = Arc::clone(&state.library(library)?.code);
    kernels.check()?;
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    for (index, &position) in code.order.iter().take(count as usize).enumerate() {
        let handle = state.kernel_of(library, position)?;
        kernels.set_at(index, handle);
    }
    Ok(())
}

fn get_module(module: Out<u64>, library: u64) -> Answer {
    let mut state = lock();
    module.check()?;
    state.library(library)?;
    module.set(state.module_of_library(library)?)
}

fn get_variable(
    address: Out<u64>,
    size: Out<usize>,
    library: u64,
    name: Text,
    managed: bool,
) -> Answer {
    let mut state = lock();
    let code = Arc::clone(&state.library(library)?.code);
    let name = name.get()?;
    if address.is_null() && size.is_null() {
        return Err(INVALID_VALUE);
    }
    let declared = code.content.global(&name).ok_or(NOT_FOUND)?;
    if managed && !declared.managed {
        return Err(NOT_FOUND);
    }
    let module = state.module_of_library(library)?;
    let &(base, bytes) = state.modules[&module].globals.get(&name).ok_or(NOT_FOUND)?;
    address.set_if(base);
    size.set_if(bytes as usize);
    Ok(())
}

fn get_global(address: Out<u64>, size: Out<usize>, library: u64, name: Text) -> Answer {
    get_variable(address, size, library, name, false)
}

fn get_managed(address: Out<u64>, size: Out<usize>, library: u64, name: Text) -> Answer {
    get_variable(address, size, library, name, true)
}

fn get_unified_function(function: Out<u64>, library: u64, _name: Text) -> Answer {
    let state = lock();
    function.check()?;
    state.library(library)?;
    // The device has no unified function pointers (attribute 129 is 0).
    Err(NOT_FOUND)
}
