//! Loading of images with JIT options, for modules and libraries.

use std::sync::Arc;

use cutape_image::{ImageKind, kind};

use crate::call::answer::{Answer, FILE_NOT_FOUND};
use crate::call::argument::Text;
use crate::object::code::{self, Code, Refusal};
use crate::object::jit_options::Options;

/// Chooses code from the image at an address and writes the logs.
pub(crate) fn compile(
    address: u64,
    options: &mut Options,
    capability: (u16, u16),
) -> Answer<Arc<Code>> {
    finish(code::load_from(address, capability), options)
}

/// As `compile`, from a file.
pub(crate) fn compile_file(
    path: Text,
    options: &mut Options,
    capability: (u16, u16),
) -> Answer<Arc<Code>> {
    let mut bytes = std::fs::read(path.get()?).map_err(|_| FILE_NOT_FOUND)?;
    if kind(&bytes) == ImageKind::Ptx {
        // A text ends at its NUL, which a file need not have.
        let end = bytes.iter().position(|&byte| byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
    }
    finish(code::choose(&bytes, capability), options)
}

fn finish(loaded: Result<Code, Refusal>, options: &mut Options) -> Answer<Arc<Code>> {
    match &loaded {
        Ok(code) if code.from_ptx => {
            let kernels = code.order.len();
            options.log_info(&format!(
                "cutape null driver: {kernels} kernels, nothing compiled\n"
            ));
        }
        Ok(_) => {}
        Err(refusal) => options.log_error(&format!("cutape null driver: {}\n", refusal.text)),
    }
    options.write_back();
    loaded.map(Arc::new).map_err(|refusal| refusal.code)
}
