//! Library Management: code that belongs to no context, and its instance in each.

use std::sync::Arc;

use crate::call::answer::{Answer, INVALID_HANDLE, NOT_FOUND, invalid_if, reject_if};
use crate::call::argument::{In, Out, OutRef, Text, arguments};
use crate::call::entry::entries;
use crate::object::code::Code;
use crate::object::jit_options::{Options, Use};
use crate::state::{Locked, State, lock};
use crate::work::compile::{compile, compile_file};

entries! {
    cuLibraryLoadData: load_data;
    cuLibraryLoadFromFile: load_file;
    cuLibraryUnload: unload;
    cuLibraryGetKernel: get_kernel;
    cuLibraryGetKernelCount: |count: Out<u32>, library: u64|
        count.set(lock().libraries.find(library)?.code.order.len() as u32);
    cuLibraryEnumerateKernels: enumerate_kernels;
    cuLibraryGetModule: |mut state: Locked, module: OutRef<u64>, library: u64| {
        state.libraries.find(library)?;
        module.set(state.module_of_library(library)?)
    };
    cuLibraryGetGlobal: |address: Out<u64>, size: Out<usize>, library: u64, name: Text|
        get_variable(address, size, library, name, false);
    cuLibraryGetManaged: |address: Out<u64>, size: Out<usize>, library: u64, name: Text|
        get_variable(address, size, library, name, true);
    // The device has no unified function pointers (attribute 129 is 0).
    cuLibraryGetUnifiedFunction: |function: OutRef<u64>, library: u64|
        function.set(lock().libraries.find(library).and(Err(NOT_FOUND))?);
}

arguments! {
    /// The option arrays of a load: JIT options and library options.
    struct LoadOptions {
        names: In<u32>,
        values: In<u64>,
        count: u32,
        library_names: In<u32>,
        library_values: In<u64>,
        library_count: u32,
    }
}

impl LoadOptions {
    /// Checks the arrays; the library options change nothing here.
    fn check(self) -> Answer<Options> {
        let options = Options::read(self.count, self.names, self.values, Use::Whole)?;
        invalid_if(self.library_count > 64)?;
        let names = self.library_names.list(self.library_count as usize)?;
        for (index, name) in names.into_iter().enumerate() {
            // A table of host functions needs an address. "The binary is preserved" takes no value:
            // the array may be missing (cuBLASLt 13 does so).
            invalid_if(name > 1 || name == 0 && self.library_values.get_at(index)? == 0)?;
        }
        Ok(options)
    }
}

fn create(state: &mut State, library: OutRef<u64>, code: Arc<Code>) -> Answer {
    library.set(state.load_library(code)?)
}

fn load_data(mut state: Locked, library: OutRef<u64>, code: u64, options: LoadOptions) -> Answer {
    let code = compile(code, &mut options.check()?, state.capability())?;
    create(&mut state, library, code)
}

fn load_file(mut state: Locked, library: OutRef<u64>, path: Text, options: LoadOptions) -> Answer {
    let code = compile_file(path, &mut options.check()?, state.capability())?;
    create(&mut state, library, code)
}

fn unload(mut state: Locked, library: u64) -> Answer {
    let object = state.libraries.remove(library).ok_or(INVALID_HANDLE)?;
    for module in object.modules.into_values() {
        state.remove_module(module);
    }
    for (address, _) in object.managed.into_values() {
        state.remove_allocation(address);
    }
    for kernel in object.kernels.into_values() {
        state.kernels.remove(kernel);
    }
    Ok(())
}

fn get_kernel(mut state: Locked, kernel: Out<u64>, library: u64, name: Text) -> Answer {
    let object = state.libraries.find(library)?;
    kernel.check()?;
    let found = object.code.kernels.get(&name.get()?).copied();
    let Some(position) = found else {
        // Cleared like cuModuleGetFunction's output (measured there, assumed here).
        kernel.set_if(0);
        return Err(NOT_FOUND);
    };
    kernel.set(state.kernel_of(library, position)?)
}

fn enumerate_kernels(mut state: Locked, kernels: Out<u64>, count: u32, library: u64) -> Answer {
    let code = Arc::clone(&state.libraries.find(library)?.code);
    kernels.check()?;
    invalid_if(count == 0)?;
    for (index, &position) in code.order.iter().take(count as usize).enumerate() {
        let handle = state.kernel_of(library, position)?;
        kernels.set_at(index, handle);
    }
    Ok(())
}

fn get_variable(
    address: Out<u64>,
    size: Out<usize>,
    library: u64,
    name: Text,
    managed: bool,
) -> Answer {
    let mut state = lock();
    let code = Arc::clone(&state.libraries.find(library)?.code);
    let name = name.get()?;
    invalid_if(address.is_null() && size.is_null())?;
    let declared = code.content.global(&name).ok_or(NOT_FOUND)?;
    reject_if(managed && !declared.managed, NOT_FOUND)?;
    let found = match declared.managed {
        true => state.libraries.find(library)?.managed.get(&name).copied(),
        false => {
            let module = state.module_of_library(library)?;
            state.modules[&module].globals.get(&name).copied()
        }
    };
    let (base, bytes) = found.ok_or(NOT_FOUND)?;
    address.set_if(base);
    size.set_if(bytes as usize);
    Ok(())
}
