//! Reads what a PTX text declares; instructions are not looked at beyond the names in them.
//!
//! What is refused here, `ptxas` refuses too: no `.version` in front, no `.target`, braces or strings that do not close,
//! words where a directive must stand, two bodies of one name. A directive that we do not know is let pass: a later
//! version may have it.

mod lexer;
mod module;
mod variable;

use crate::content::Content;
use crate::problem::Problem;

/// The text up to its first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Reads a whole text (without its NUL).
pub(crate) fn read(text: &[u8]) -> Result<Content, Problem> {
    let mut content = module::Module::new(text)?.read()?;
    content.producer = producer(text);
    Ok(content)
}

/// The line by which `nvcc` and `nvrtc` name themselves in the comment at the top.
fn producer(text: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"Cuda compilation tools";
    let top = &text[..text.len().min(1024)];
    let start = top.windows(MARK.len()).position(|w| w == MARK)?;
    let line = top[start..].split(|&b| b == b'\n' || b == b'\r').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}
