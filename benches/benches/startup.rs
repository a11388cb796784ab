//! A program that does little more than `cuInit`, from its start to its end.

use std::time::Instant;

use cutape_benches::recorded::{Recorded, is_asked_for, median, run};

fn main() {
    if !is_asked_for() {
        return;
    }
    const ROUNDS: usize = 40;
    let recorded = Recorded::build();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (is_recorded, times) in [false, true].into_iter().zip(&mut times) {
            // Removes the last trace, so it is not timed.
            let mut command = recorded.command(is_recorded, &["loop", "get", "1"]);
            let begin = Instant::now();
            run(&mut command);
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            if is_recorded {
                recorded.expect_trace();
            }
        }
    }
    let [bare, with] = times.map(|mut times| median(&mut times));
    println!(
        "bare {bare:.2} ms, recorded {with:.2} ms, added {:.2} ms",
        with - bare
    );
}
