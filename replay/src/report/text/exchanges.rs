//! What a rank exchanged with others that are not here, as text.

use std::fmt::Write as _;

use cutape_analyzer::demangle::demangle;
use cutape_render::quantity::count;
use cutape_render::text::printable;

use super::SHOWN;
use crate::report::ExchangeCounts;

impl ExchangeCounts {
    /// What was left out and what was put back, in lines for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if self.stand_ins > 0 {
            let _ = writeln!(
                out,
                "stand-ins for what other processes exported: {} ({} of memory)",
                self.stand_ins,
                count(self.stand_in_bytes, "byte")
            );
        }
        let all: u64 = self.left_out.iter().map(|left| left.count).sum();
        if all == 0 && self.bytes_put > 0 {
            let bytes = count(self.bytes_put, "byte");
            let _ = writeln!(
                out,
                "put back of what exchanges changed that were left out: {bytes}"
            );
        }
        if all > 0 {
            let _ = writeln!(
                out,
                "exchanges left out: {}; what they changed was put back: {}{}",
                count(all, "call"),
                count(self.bytes_put, "byte"),
                match &self.first_missing {
                    Some(first) => format!("; missing from call {} on", first.call),
                    None => String::new(),
                }
            );
        }
        for left in self.left_out.iter().take(SHOWN) {
            let what = match &left.kernel {
                Some(kernel) => demangle(kernel),
                None => left.function.clone(),
            };
            let _ = writeln!(
                out,
                "  {} x {} (first: call {}): with {}{}",
                left.count,
                printable(&what),
                left.first,
                printable(&left.with),
                match left.changing {
                    0 => String::new(),
                    changing => format!("; put back: {} of {changing}", left.put_back),
                }
            );
        }
        if self.left_out.len() > SHOWN {
            let more = self.left_out.len() - SHOWN;
            let _ = writeln!(out, "  and {more} more (--report lists them)");
        }
        out
    }
}
