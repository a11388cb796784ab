//! Typed driver calls that only an observation makes.

use std::ffi::{CStr, CString};

use cutape_registry::id;

use crate::api::{Api, Code, INVALID_VALUE};

/// Longest name of a kernel that is read.
const LONGEST_NAME: usize = 1 << 16;

impl Api {
    /// The module of a live function.
    pub(super) fn module_of(&self, function: u64) -> Result<u64, Code> {
        self.get(id::cuFuncGetModule, &[function])
    }

    /// The name of a live function in its image.
    pub(super) fn name_of(&self, function: u64) -> Result<String, Code> {
        let address: u64 = self.get(id::cuFuncGetName, &[function])?;
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the driver returned a string that lives as long as the function
        // (cuFuncGetName).
        let name = unsafe { CStr::from_ptr(address as *const libc::c_char) };
        let name = name.to_string_lossy();
        Ok(name.chars().take(LONGEST_NAME).collect())
    }

    /// Address and bytes of a variable of a live module.
    pub(super) fn variable(&self, module: u64, name: &str) -> Result<(u64, u64), Code> {
        let name = CString::new(name).map_err(|_| INVALID_VALUE)?;
        let (mut address, mut bytes) = (0u64, 0u64);
        let outputs = [&raw mut address as u64, &raw mut bytes as u64];
        let args = [outputs[0], outputs[1], module, name.as_ptr() as u64];
        self.own(id::cuModuleGetGlobal_v2, &args)?;
        Ok((address, bytes))
    }

    /// A limit of the current context.
    pub(super) fn limit(&self, limit: u32) -> Result<u64, Code> {
        self.get(id::cuCtxGetLimit, &[u64::from(limit)])
    }
}
