//! What recording adds to a call, beside the cost of two clock reads; and the slowest calls.

use cutape_benches::recorded::{Recorded, is_asked_for, print};

fn main() {
    if !is_asked_for() {
        return;
    }
    let recorded = Recorded::build();
    print(&recorded.compare(5, &["calls", "100000", "50000"]));
    println!();
    print(&recorded.compare(1, &["tail", "10000000"]));
}
