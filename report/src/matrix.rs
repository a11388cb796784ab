//! What `cutape matrix --compare` and `--history` found, as a page.

use std::io::{self, Write};

use serde::Serialize;

use crate::page::{self, Part};

/// Writes the page of a comparison or history: the JSON that `--report` writes.
///
/// # Errors
/// Those of `out`.
pub fn write_matrix_page(
    title: &str,
    facts: &impl Serialize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let facts = serde_json::to_vec(facts)?;
    let part = Part {
        id: "facts",
        bytes: &facts,
    };
    page::write(&page::MATRIX, title, &[part], out)
}
