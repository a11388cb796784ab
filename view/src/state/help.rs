//! The help screen: all keys, and the syntax of filters.

use super::keys::BINDINGS;
use super::pane_line::{PaneLine, Role};

/// The syntax of filters by example.
const FILTERS: &[(&str, &str)] = &[
    ("120, 100..200, 100..", "calls by number"),
    ("cuLaunchKernel, cuMem*", "calls of functions"),
    ("kernel:saxpy*", "launches of kernels"),
    ("range:step[2]", "calls during ranges (NVTX)"),
    ("mark:A..mark:B", "calls between marks"),
    ("thread:3", "calls of a thread"),
    ("cuMem*,kernel:fill", "a comma joins several"),
];

/// The lines of the help.
pub(crate) fn lines() -> Vec<PaneLine> {
    let line = |keys: &str, help: &str| {
        PaneLine::new(format!("  {keys:<22} "), Role::Strong).and(help, Role::Plain)
    };
    let mut lines = vec![PaneLine::new("Keys", Role::Strong)];
    lines.extend(
        BINDINGS
            .iter()
            .map(|binding| line(binding.shown, binding.help)),
    );
    lines.push(PaneLine::empty());
    lines.push(PaneLine::new("Filters", Role::Strong));
    lines.extend(FILTERS.iter().map(|(example, help)| line(example, help)));
    lines
}
