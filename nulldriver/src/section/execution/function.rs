//! Execution Control: functions and kernels, their attributes and parameters.

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::{Out, OutRef};
use crate::call::entry::entries;
use crate::object::device::check_device;
use crate::object::function::Spec;
use crate::state::{Locked, lock};

entries! {
    cuFuncGetAttribute: get_attribute;
    cuFuncSetAttribute: set_attribute;
    cuFuncSetCacheConfig: |function: u64, config: u32| {
        lock().functions.find(function)?;
        invalid_if(config > 3)
    };
    cuFuncSetSharedMemConfig: |function: u64, config: u32| {
        lock().functions.find(function)?;
        invalid_if(config > 2)
    };
    cuFuncGetModule: |module: OutRef<u64>, function: u64|
        module.set(lock().functions.find(function)?.module);
    cuFuncGetName: |name: OutRef<u64>, function: u64| {
        invalid_if(function == 0)?;
        name.set(lock().functions.find(function)?.spec.name.as_ptr() as u64)
    };
    cuFuncGetParamInfo: |function: u64, index: usize, offset: Out<usize>, size: Out<usize>| {
        invalid_if(function == 0)?;
        param_info(&lock().functions.find(function)?.spec, index, offset, size)
    };
    cuFuncIsLoaded: |loading: OutRef<u32>, function: u64|
        loading.set(u32::from(lock().functions.find(function)?.is_loaded));
    cuFuncLoad: |function: u64| {
        lock().functions.find_mut(function)?.is_loaded = true;
        Ok(())
    };
    cuKernelGetAttribute: kernel_get_attribute;
    cuKernelSetAttribute: kernel_set_attribute;
    cuKernelSetCacheConfig: kernel_set_cache_config;
    cuKernelGetName: |name: OutRef<u64>, kernel: u64| {
        invalid_if(kernel == 0)?;
        name.set(lock().kernels.find(kernel)?.spec.name.as_ptr() as u64)
    };
    cuKernelGetParamInfo: |kernel: u64, index: usize, offset: Out<usize>, size: Out<usize>| {
        invalid_if(kernel == 0)?;
        param_info(&lock().kernels.find(kernel)?.spec, index, offset, size)
    };
    cuKernelGetLibrary: |library: OutRef<u64>, kernel: u64|
        library.set(lock().kernels.find(kernel)?.library);
    cuKernelGetFunction: kernel_get_function;
}

fn get_attribute(state: Locked, value: Out<i32>, attribute: u32, function: u64) -> Answer {
    let function = state.functions.find(function)?;
    value.check()?;
    let found = state.function_attribute(function, attribute);
    value.set(found.ok_or(INVALID_VALUE)?)
}

fn set_attribute(mut state: Locked, function: u64, attribute: u32, value: i32) -> Answer {
    // A CUkernel is no function here (measured).
    let object = state.functions.find_mut(function)?;
    object.spec.check_setting(attribute, value)?;
    object.attributes.insert(attribute, value);
    Ok(())
}

fn param_info(spec: &Spec, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    offset.check()?;
    // INVALID_VALUE past the last (measured).
    let parameter = spec.image().parameters.get(index).ok_or(INVALID_VALUE)?;
    offset.set_if(parameter.offset as usize);
    size.set_if(parameter.size as usize);
    Ok(())
}

fn kernel_get_attribute(value: Out<i32>, attribute: u32, kernel: u64, device: i32) -> Answer {
    let state = lock();
    let kernel = state.kernels.find(kernel)?;
    value.check()?;
    check_device(device)?;
    let set = kernel.attribute(device, attribute);
    let found = set.or_else(|| kernel.spec.default_attribute(attribute));
    value.set(found.ok_or(INVALID_VALUE)?)
}

fn kernel_set_attribute(attribute: u32, value: i32, kernel: u64, device: i32) -> Answer {
    let mut state = lock();
    let object = state.kernels.find_mut(kernel)?;
    check_device(device)?;
    object.spec.check_setting(attribute, value)?;
    object.attributes.insert((device, attribute), value);
    Ok(())
}

fn kernel_set_cache_config(kernel: u64, config: u32, device: i32) -> Answer {
    lock().kernels.find(kernel)?;
    check_device(device)?;
    invalid_if(config > 3)
}

fn kernel_get_function(mut state: Locked, function: OutRef<u64>, kernel: u64) -> Answer {
    let object = state.kernels.find(kernel)?;
    let (library, position) = (object.library, object.spec.position);
    let module = state.module_of_library(library)?;
    function.set(state.function_of(module, position, kernel)?)
}
