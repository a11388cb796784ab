//! What a rank exchanged with others that are not here, as text.

use std::fmt::Write as _;

use cutape_analyzer::demangle::demangle;
use cutape_replay::ExchangeCounts;

use cutape_render::quantity::count;
use cutape_terminal::output::printable;

/// How many kernels the text shows.
const SHOWN: usize = 20;

/// What was left out and what was put back.
pub(crate) fn write(out: &mut String, exchanges: &ExchangeCounts) {
    if exchanges.stand_ins > 0 {
        let _ = writeln!(
            out,
            "stand-ins for what other processes exported: {} ({} of memory)",
            exchanges.stand_ins,
            count(exchanges.stand_in_bytes, "byte")
        );
    }
    let all: u64 = exchanges.left_out.iter().map(|left| left.count).sum();
    if all == 0 && exchanges.bytes_put > 0 {
        let bytes = count(exchanges.bytes_put, "byte");
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
            count(exchanges.bytes_put, "byte"),
            match &exchanges.first_missing {
                Some(first) => format!("; missing from call {} on", first.call),
                None => String::new(),
            }
        );
    }
    for left in exchanges.left_out.iter().take(SHOWN) {
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
    if exchanges.left_out.len() > SHOWN {
        let more = exchanges.left_out.len() - SHOWN;
        let _ = writeln!(out, "  and {more} more (--report lists them)");
    }
}
