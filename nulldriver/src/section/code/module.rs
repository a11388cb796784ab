//! Module Management: modules, their functions and variables.

use std::sync::Arc;

use crate::call::answer::{Answer, NOT_FOUND, NOT_PERMITTED, invalid_if, reject_if};
use crate::call::argument::{In, Out, OutRef, Text};
use crate::call::entry::entries;
use crate::crash;
use crate::object::jit_options::{Options, Use};
use crate::object::table::was_handle;
use crate::state::{Current, Locked, lock};
use crate::work::compile::{compile, compile_file};

entries! {
    cuModuleLoad: load_file;
    cuModuleLoadData: |state: Current, module: OutRef<u64>, image: u64|
        load_data(state, module, image, 0, In::at(0), In::at(0));
    cuModuleLoadDataEx: load_data;
    cuModuleLoadFatBinary: |state: Current, module: OutRef<u64>, image: u64|
        load_data(state, module, image, 0, In::at(0), In::at(0));
    cuModuleUnload: unload;
    cuModuleGetLoadingMode: get_loading_mode;
    cuModuleGetFunction: get_function;
    cuModuleGetFunctionCount: |count: Out<u32>, module: u64|
        count.set(lock().modules.find(module)?.code.order.len() as u32);
    cuModuleEnumerateFunctions: enumerate_functions;
    cuModuleGetGlobal: get_global;
}

fn load_file(mut state: Current, module: OutRef<u64>, path: Text) -> Answer {
    let code = compile_file(path, &mut Options::none(), state.capability())?;
    module.set(state.load_module(code, 0)?)
}

fn load_data(
    mut state: Current,
    module: OutRef<u64>,
    image: u64,
    count: u32,
    names: In<u32>,
    values: In<u64>,
) -> Answer {
    let mut options = Options::read(count, names, values, Use::Whole)?;
    let code = compile(image, &mut options, state.capability())?;
    module.set(state.load_module(code, 0)?)
}

fn unload(mut state: Locked, module: u64) -> Answer {
    // The driver follows what was never a handle (580.159.04, H100, 2026-11-26).
    if module != 0 && !was_handle(module) {
        crash::follow(module);
    }
    let object = state.modules.find(module)?;
    // A library's module is unloaded with its library (measured).
    reject_if(object.library != 0, NOT_PERMITTED)?;
    state.remove_module(module);
    Ok(())
}

fn get_loading_mode(mode: Out<u32>) -> Answer {
    // CU_MODULE_EAGER_LOADING 1, CU_MODULE_LAZY_LOADING 2, by the variable that the real driver
    // reads.
    let eager = std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|value| value == "EAGER");
    mode.set(if eager { 1 } else { 2 })
}

fn get_function(mut state: Locked, function: Out<u64>, module: u64, name: Text) -> Answer {
    let object = state.modules.find(module)?;
    function.check()?;
    let found = object.code.kernels.get(&name.get()?).copied();
    let Some(position) = found else {
        // The driver clears the output: a later launch does not use a stale function (measured).
        function.set_if(0);
        return Err(NOT_FOUND);
    };
    function.set(state.function_of(module, position, 0)?)
}

fn enumerate_functions(functions: Out<u64>, count: u32, module: u64) -> Answer {
    lock().modules.find(module)?;
    functions.check()?;
    invalid_if(count == 0)?;
    let handles = self::functions(module, count as usize)?;
    for (index, handle) in handles.into_iter().enumerate() {
        functions.set_at(index, handle);
    }
    Ok(())
}

/// The first functions of a module, in their order in the image.
pub(crate) fn functions(module: u64, most: usize) -> Answer<Vec<u64>> {
    let mut state = lock();
    let code = Arc::clone(&state.modules.find(module)?.code);
    let positions = code.order.iter().take(most);
    positions
        .map(|&position| state.function_of(module, position, 0))
        .collect()
}

fn get_global(address: Out<u64>, size: Out<usize>, module: u64, name: Text) -> Answer {
    let state = lock();
    let object = state.modules.find(module)?;
    let name = name.get()?;
    invalid_if(address.is_null() && size.is_null())?;
    let of_library = || state.libraries.get(&object.library)?.managed.get(&name);
    let found = object.globals.get(&name).or_else(of_library);
    // A lookup that fails leaves 0 (measured: tests/gpu/failed_outputs.c).
    address.set_if(found.map_or(0, |found| found.0));
    let &(_, bytes) = found.ok_or(NOT_FOUND)?;
    size.set_if(bytes as usize);
    Ok(())
}
