//! Modules, libraries, functions, kernels.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use cutape_image::Global;

use crate::call::answer::Answer;
use crate::object::code::Code;
use crate::object::function::{Function, Kernel, Launchable, LegacyLaunch, Spec};
use crate::object::memory::{Purpose, Segment, fill_bytes, move_bytes};
use crate::object::module::{Library, Module};
use crate::state::store::State;

impl State {
    /// Creates a module in the current context, with its variables.
    pub(crate) fn load_module(&mut self, code: Arc<Code>, library: u64) -> Answer<u64> {
        let context = self.current()?;
        let device = self.contexts[&context].device;
        let is_own = |global: &&Global| library == 0 || !global.managed;
        let own = code.content.globals.iter().filter(is_own);
        let globals = self.place_globals(own, context, device)?;
        self.modules.add(Module {
            context,
            code,
            functions: HashMap::new(),
            globals,
            library,
        })
    }

    /// Adds a library, with its managed variables: they are there before any context is (seen with
    /// the runtime 13.0, which asks for them first).
    pub(crate) fn load_library(&mut self, code: Arc<Code>) -> Answer<u64> {
        let managed = code.content.globals.iter().filter(|global| global.managed);
        let managed = self.place_globals(managed, 0, 0)?;
        self.libraries.add(Library {
            code,
            kernels: HashMap::new(),
            modules: HashMap::new(),
            launched_in: HashSet::new(),
            managed,
        })
    }

    /// Allocates variables: (address, bytes) by name. None stays if one of them does not fit.
    fn place_globals<'a>(
        &mut self,
        variables: impl Iterator<Item = &'a Global>,
        context: u64,
        device: i32,
    ) -> Answer<HashMap<String, (u64, u64)>> {
        let mut globals = HashMap::new();
        for global in variables {
            if globals.contains_key(&global.name) || global.size == 0 {
                continue;
            }
            match self.place_global(global, context, device) {
                Ok(address) => globals.insert(global.name.clone(), (address, global.size)),
                Err(code) => {
                    for (address, _) in globals.into_values() {
                        self.remove_allocation(address);
                    }
                    return Err(code);
                }
            };
        }
        Ok(globals)
    }

    fn place_global(&mut self, global: &Global, context: u64, device: i32) -> Answer<u64> {
        let purpose = match global.managed {
            true => Purpose::Managed,
            false => Purpose::Global,
        };
        let address = self.allocate_for(context, device, global.size, purpose, 0)?;
        let target = self.device_range(address, global.size)?;
        fill_bytes(&target, &[0]);
        if let Some(initial) = &global.initial {
            let size = initial.len().min(global.size as usize);
            move_bytes(&target, &[Segment::of(&initial[..size])]);
        }
        Ok(address)
    }

    /// Destroys a module, its functions and its variables.
    pub(crate) fn remove_module(&mut self, handle: u64) {
        let Some(module) = self.modules.remove(handle) else {
            return;
        };
        for function in module.functions.into_values() {
            self.functions.remove(function);
        }
        for (address, _) in module.globals.into_values() {
            self.remove_allocation(address);
        }
    }

    /// The function at a position of a module's code; the same handle each time.
    pub(crate) fn function_of(&mut self, module: u64, position: usize, kernel: u64) -> Answer<u64> {
        let object = self.modules.find_mut(module)?;
        if let Some(&function) = object.functions.get(&position) {
            return Ok(function);
        }
        let handle = self.functions.add(Function {
            context: object.context,
            module,
            kernel,
            spec: Spec::new(&object.code, position),
            attributes: BTreeMap::new(),
            is_loaded: false,
            legacy: LegacyLaunch::default(),
        })?;
        object.functions.insert(position, handle);
        Ok(handle)
    }

    /// The module of a library in the current context.
    pub(crate) fn module_of_library(&mut self, library: u64) -> Answer<u64> {
        let context = self.current()?;
        let object = self.libraries.find(library)?;
        if let Some(&module) = object.modules.get(&context) {
            return Ok(module);
        }
        let module = self.load_module(Arc::clone(&object.code), library)?;
        let object = self.libraries.find_mut(library)?;
        object.modules.insert(context, module);
        Ok(module)
    }

    /// The kernel at a position of a library's code; the same handle each time.
    pub(crate) fn kernel_of(&mut self, library: u64, position: usize) -> Answer<u64> {
        let object = self.libraries.find_mut(library)?;
        if let Some(&kernel) = object.kernels.get(&position) {
            return Ok(kernel);
        }
        let handle = self.kernels.add(Kernel {
            library,
            spec: Spec::new(&object.code, position),
            attributes: HashMap::new(),
        })?;
        object.kernels.insert(position, handle);
        Ok(handle)
    }

    /// The value of a function's attribute: its own, else its kernel's, else the code's.
    pub(crate) fn function_attribute(&self, function: &Function, attribute: u32) -> Option<i32> {
        let context = self.contexts.get(&function.context);
        let device = context.map_or(0, |context| context.device);
        let kernel = self.kernels.get(&function.kernel);
        let own = function.attributes.get(&attribute).copied();
        own.or_else(|| kernel?.attribute(device, attribute))
            .or_else(|| function.spec.default_attribute(attribute))
    }

    /// What a launch or an occupancy query is given; `INVALID_HANDLE` if no such object lives.
    pub(crate) fn launchable(&self, handle: u64) -> Answer<Launchable> {
        if let Some(function) = self.functions.get(&handle) {
            let value = |attribute| self.function_attribute(function, attribute);
            return Ok(Launchable::new(function.context, &function.spec, value));
        }
        let kernel = self.kernels.find(handle)?;
        let device = self.current_device()?;
        let value = |attribute| {
            let set = kernel.attribute(device, attribute);
            set.or_else(|| kernel.spec.default_attribute(attribute))
        };
        Ok(Launchable::new(0, &kernel.spec, value))
    }

    /// Notes that a function's code is on the device now.
    pub(crate) fn mark_loaded(&mut self, function: u64) {
        if let Some(object) = self.functions.get_mut(&function) {
            object.is_loaded = true;
        }
        if let (Some(kernel), Ok(context)) = (self.kernels.get(&function), self.current())
            && let Ok(library) = self.libraries.find_mut(kernel.library)
        {
            library.launched_in.insert(context);
        }
    }

    /// Whether the library of a kernel is not in the current context yet: its first use there loads
    /// it.
    pub(crate) fn is_first_use(&self, kernel: u64) -> bool {
        let library = |kernel: u64| self.libraries.find(self.kernels.find(kernel)?.library);
        let (Ok(library), Ok(context)) = (library(kernel), self.current()) else {
            return false;
        };
        !library.modules.contains_key(&context) && !library.launched_in.contains(&context)
    }
}
