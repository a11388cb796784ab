//! What recording adds to a call, beside two readings of the clock; and how long single calls take at worst.

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
