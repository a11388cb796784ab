//! Module Management: modules, their functions and variables.

use std::collections::HashMap;
use std::sync::Arc;

use cutape_registry::Kind;

use crate::answer::{
    Answer, FILE_NOT_FOUND, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_PERMITTED, OUT_OF_MEMORY,
};
use crate::argument::{In, Out, Text};
use crate::dispatch::{Entry, bind};
use crate::function::Function;
use crate::image::{self, Code, Refusal};
use crate::jit::{Options, Use};
use crate::memory::{Purpose, Segment};
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuModuleLoad", bind(load_file)),
    ("cuModuleLoadData", bind(load_data)),
    ("cuModuleLoadDataEx", bind(load_data_with)),
    ("cuModuleLoadFatBinary", bind(load_data)),
    ("cuModuleUnload", bind(unload)),
    ("cuModuleGetLoadingMode", bind(get_loading_mode)),
    ("cuModuleGetFunction", bind(get_function)),
    ("cuModuleGetFunctionCount", bind(get_function_count)),
    ("cuModuleEnumerateFunctions", bind(enumerate_functions)),
    ("cuModuleGetGlobal", bind(get_global)),
];

/// A module in a context.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) code: Arc<Code>,
    /// Function handles by position in the code.
    functions: HashMap<usize, u64>,
    /// Variables: (address, bytes).
    pub(crate) globals: HashMap<String, (u64, u64)>,
    /// The library that owns it, or 0.
    library: u64,
}

impl State {
    /// Makes a module in the current context, with its variables.
    pub(crate) fn load_module(&mut self, code: Arc<Code>, library: u64) -> Answer<u64> {
        let context = self.current()?;
        let mut globals = HashMap::new();
        for global in &code.content.globals {
            if globals.contains_key(&global.name) || global.size == 0 {
                continue;
            }
            match self.place_global(global) {
                Ok(address) => globals.insert(global.name.clone(), (address, global.size)),
                Err(code) => {
                    for (address, _) in globals.into_values() {
                        self.remove_allocation(address);
                    }
                    return Err(code);
                }
            };
        }
        let module = self.make(Kind::Module)?;
        self.modules.insert(
            module,
            Module {
                context,
                code,
                functions: HashMap::new(),
                globals,
                library,
            },
        );
        Ok(module)
    }

    fn place_global(&mut self, global: &cutape_image::Global) -> Answer<u64> {
        let purpose = if global.managed {
            Purpose::Managed
        } else {
            Purpose::Global
        };
        let address = self.allocate(global.size, purpose, 0)?;
        let target = self.device_range(address, global.size)?;
        for segment in &target {
            // SAFETY: the segment is the allocation made just now.
            unsafe { std::ptr::write_bytes(segment.bytes as *mut u8, 0, segment.size as usize) };
        }
        if let Some(initial) = &global.initial {
            let size = global.size.min(initial.len() as u64);
            crate::copy::move_bytes(
                &target,
                &[Segment {
                    bytes: initial.as_ptr() as u64,
                    size,
                }],
            );
        }
        Ok(address)
    }

    /// Ends a module, its functions and its variables.
    pub(crate) fn remove_module(&mut self, handle: u64) {
        let Some(module) = self.modules.remove(&handle) else {
            return;
        };
        for function in module.functions.into_values() {
            self.functions.remove(&function);
            self.release(Kind::Function, function);
        }
        for (address, _) in module.globals.into_values() {
            self.remove_allocation(address);
        }
        self.release(Kind::Module, handle);
    }

    /// The function at a position of a module's code; the same handle each time.
    pub(crate) fn function_of(&mut self, module: u64, position: usize, kernel: u64) -> Answer<u64> {
        let object = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        if let Some(&function) = object.functions.get(&position) {
            return Ok(function);
        }
        let made = Function::new(object, module, position, kernel);
        let handle = self.make(Kind::Function)?;
        self.functions.insert(handle, made);
        if let Some(object) = self.modules.get_mut(&module) {
            object.functions.insert(position, handle);
        }
        Ok(handle)
    }
}

/// Reads an image and writes the logs; the code to answer where it is refused.
pub(crate) fn compile(
    address: u64,
    options: &mut Options,
    capability: (u16, u16),
) -> Answer<Arc<Code>> {
    finish(image::load_from(address, capability), options)
}

/// As `compile`, from a file.
pub(crate) fn compile_file(
    path: Text,
    options: &mut Options,
    capability: (u16, u16),
) -> Answer<Arc<Code>> {
    let mut bytes = std::fs::read(path.get()?).map_err(|_| FILE_NOT_FOUND)?;
    if cutape_image::kind(&bytes) == cutape_image::ImageKind::Ptx {
        // A text ends at its NUL, which a file need not have.
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        bytes.truncate(end);
    }
    finish(image::choose(&bytes, capability), options)
}

fn finish(loaded: Result<Code, Refusal>, options: &mut Options) -> Answer<Arc<Code>> {
    let answer = match loaded {
        Ok(code) => {
            if code.from_ptx {
                options.inform(&format!(
                    "cutape null driver: {} kernels, nothing compiled\n",
                    code.order.len()
                ));
            }
            Ok(Arc::new(code))
        }
        Err(refusal) => {
            options.complain(&format!("cutape null driver: {}\n", refusal.text));
            Err(refusal.code)
        }
    };
    options.report();
    answer
}

fn load_file(module: Out<u64>, path: Text) -> Answer {
    let mut state = lock();
    state.current()?;
    module.check()?;
    let code = compile_file(path, &mut Options::none(), state.capability())?;
    module.set(state.load_module(code, 0)?)
}

fn load_data(module: Out<u64>, image: u64) -> Answer {
    let mut state = lock();
    state.current()?;
    module.check()?;
    let code = compile(image, &mut Options::none(), state.capability())?;
    module.set(state.load_module(code, 0)?)
}

fn load_data_with(
    module: Out<u64>,
    image: u64,
    count: u32,
    names: In<u32>,
    values: In<u64>,
) -> Answer {
    let mut state = lock();
    state.current()?;
    module.check()?;
    let mut options = Options::read(count, names, values, Use::Whole)?;
    let code = compile(image, &mut options, state.capability())?;
    module.set(state.load_module(code, 0)?)
}

fn unload(module: u64) -> Answer {
    let mut state = lock();
    let object = state.modules.get(&module).ok_or(INVALID_HANDLE)?;
    if object.library != 0 {
        // A library's module goes with its library (measured).
        return Err(NOT_PERMITTED);
    }
    state.remove_module(module);
    Ok(())
}

fn get_loading_mode(mode: Out<u32>) -> Answer {
    // CU_MODULE_EAGER_LOADING 1, CU_MODULE_LAZY_LOADING 2, by the variable that the real driver reads.
    let eager = std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|value| value == "EAGER");
    mode.set(if eager { 1 } else { 2 })
}

fn get_function(function: Out<u64>, module: u64, name: Text) -> Answer {
    let mut state = lock();
    let object = state.modules.get(&module).ok_or(INVALID_HANDLE)?;
    function.check()?;
    let found = object.code.kernels.get(&name.get()?).copied();
    let Some(position) = found else {
        // The output is cleared: what is launched after that is no old function (measured).
        function.set_if(0);
        return Err(NOT_FOUND);
    };
    function.set(state.function_of(module, position, 0)?)
}

fn get_function_count(count: Out<u32>, module: u64) -> Answer {
    let state = lock();
    let object = state.modules.get(&module).ok_or(INVALID_HANDLE)?;
    count.set(u32::try_from(object.code.order.len()).map_err(|_| OUT_OF_MEMORY)?)
}

fn enumerate_functions(functions: Out<u64>, count: u32, module: u64) -> Answer {
    let mut state = lock();
    let code = Arc::clone(&state.modules.get(&module).ok_or(INVALID_HANDLE)?.code);
    functions.check()?;
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    for (index, &position) in code.order.iter().take(count as usize).enumerate() {
        let handle = state.function_of(module, position, 0)?;
        functions.set_at(index, handle);
    }
    Ok(())
}

fn get_global(address: Out<u64>, size: Out<usize>, module: u64, name: Text) -> Answer {
    let state = lock();
    let object = state.modules.get(&module).ok_or(INVALID_HANDLE)?;
    let name = name.get()?;
    if address.is_null() && size.is_null() {
        return Err(INVALID_VALUE);
    }
    let &(base, bytes) = object.globals.get(&name).ok_or(NOT_FOUND)?;
    address.set_if(base);
    size.set_if(bytes as usize);
    Ok(())
}
