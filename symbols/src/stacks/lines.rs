//! A stack as lines of text.

use std::fmt::Write as _;

use cutape_analyzer::Frame;
use cutape_analyzer::output::printable;

/// Appends a line for each frame.
pub fn write_lines(frames: &[Frame], indent: &str, out: &mut String) {
    for (number, frame) in (0..).zip(frames) {
        // Writing to a String never fails.
        let _ = writeln!(out, "{indent}#{number} {}", printable(&frame.in_full()));
    }
}
