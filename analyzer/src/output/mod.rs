//! Findings as text, JSON and SARIF, and the parts of a JUnit report.

mod json;
mod junit;
mod omitted;
mod sarif;
mod text;

pub use json::json;
pub use junit::{JunitCase, junit_cases};
pub use omitted::Omitted;
pub use sarif::sarif;
pub use text::{Style, text};
