//! What a call costs when several threads make it at once.

use cutape_benches::recorded::{Recorded, is_asked_for, print};

fn main() {
    if !is_asked_for() {
        return;
    }
    let recorded = Recorded::build();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{processors} processors: more threads than that share them, which adds to their times"
    );
    for threads in ["1", "2", "16"] {
        print(&recorded.compare(3, &["threads", threads, "200000"]));
    }
}
