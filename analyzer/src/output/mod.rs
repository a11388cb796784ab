//! Findings as text, JSON and SARIF, and the parts of a JUnit report; texts of a trace for one line.

mod json;
mod junit;
mod omitted;
mod printable;
mod sarif;
mod text;

pub use json::json;
pub use junit::{JunitCase, junit_cases};
pub use omitted::Omitted;
pub use printable::{is_unprintable, printable};
pub use sarif::sarif;
pub use text::{Style, text};
