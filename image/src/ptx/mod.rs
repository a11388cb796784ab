//! Reads what a PTX text declares; of instructions only the names in them.
//!
//! It refuses only what `ptxas` refuses too: no `.version` in front, no `.target`, braces or
//! strings that do not close, words in place of a directive, two bodies of one name. It skips
//! unknown directives, which a later version may have.

mod lexer;
mod module;
mod statements;
mod variable;

pub(crate) use statements::statements;

use crate::content::Content;
use crate::problem::Problem;

/// Reads a whole text (without its NUL).
pub(crate) fn read(text: &[u8]) -> Result<Content, Problem> {
    let mut content = module::Module::new(text)?.read()?;
    content.producer = producer(text);
    Ok(content)
}

/// The line of the comment at the top in which `nvcc` and `nvrtc` name themselves.
fn producer(text: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"Cuda compilation tools";
    let top = text.get(..1024).unwrap_or(text);
    let start = top.windows(MARK.len()).position(|w| w == MARK)?;
    let line = top
        .get(start..)?
        .split(|&b| b == b'\n' || b == b'\r')
        .next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}
