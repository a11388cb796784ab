//! The table of counters, for people.

use std::fmt::Write;

use cutape_render::quantity;
use cutape_render::text::without_middle;

use crate::counters::record::{Counters, KernelCounters, Roofline};

/// Rows of the table; JSON has all.
const ROWS: usize = 20;
/// Columns of a name.
const NAME: usize = 60;
/// States of warps that a row names, and the least share of one.
const STALLS: usize = 3;
const LEAST_STALL: f64 = 0.05;

impl Counters {
    /// The table, with an empty line before it.
    pub(crate) fn text(&self, out: &mut String) {
        let kernels = quantity::count(self.kernels.len() as u64, "kernel");
        let passes = match self.passes {
            1 => "1 pass".to_owned(),
            passes => format!("{} passes", quantity::grouped(passes)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "\ncounters of {kernels} in {passes}, by ncu {} ({}): {}, where a replay without takes {}",
            self.version,
            self.path,
            quantity::time(self.wall_ns),
            quantity::time(self.plain_ns)
        );
        let _ = writeln!(
            out,
            "{:>10} {:>9} {:>6} {:>6} {:>6} {:>6} {:>15} {:>9} {:>12} {:>12}  what",
            "at call",
            "time",
            "DRAM",
            "SM",
            "L1 hit",
            "L2 hit",
            "warps",
            "FLOP/byte",
            "FLOP/s",
            "of its roof"
        );
        for kernel in self.kernels.iter().take(ROWS) {
            row(kernel, out);
        }
        if let Some(more) = self
            .kernels
            .len()
            .checked_sub(ROWS)
            .filter(|&more| more > 0)
        {
            let _ = writeln!(out, "  {more} more: --format json has them");
        }
        let mut reasons: Vec<(&str, Vec<u64>)> = Vec::new();
        for (&call, why) in &self.left_out {
            match reasons.iter_mut().find(|reason| reason.0 == why) {
                Some(reason) => reason.1.push(call),
                None => reasons.push((why, vec![call])),
            }
        }
        for (why, calls) in reasons {
            let first = calls.first().copied().unwrap_or(0);
            let more = match calls.len() {
                0 | 1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let _ = writeln!(out, "no counters of call {first}{more}: {why}");
        }
    }
}

fn row(kernel: &KernelCounters, out: &mut String) {
    let time = kernel.duration_ns.map_or_else(unknown, |time| {
        // A time that a file claims may be negative.
        quantity::time(time.max(0.0) as u64)
    });
    let warps = match (kernel.occupancy, kernel.occupancy_limit) {
        (Some(held), Some(most)) => format!("{} of {}", percent(held), percent(most)),
        (held, _) => held.map_or_else(unknown, percent),
    };
    let roofline = kernel.roofline.as_ref();
    let intensity = roofline.and_then(|roofline| roofline.intensity);
    let name = match kernel.grid.zip(kernel.block) {
        Some((grid, block)) => format!(
            "{} {}x{}",
            without_middle(&kernel.name, NAME),
            sizes(grid),
            sizes(block)
        ),
        None => without_middle(&kernel.name, NAME).into_owned(),
    };
    let share = |share: Option<f64>| share.map_or_else(unknown, percent);
    let _ = writeln!(
        out,
        "{:>10} {time:>9} {:>6} {:>6} {:>6} {:>6} {warps:>15} {:>9} {:>12} {:>12}  {name}",
        kernel.call,
        share(kernel.dram_share),
        share(kernel.sm_share),
        share(kernel.l1_hit_rate),
        share(kernel.l2_hit_rate),
        intensity.map_or_else(unknown, |intensity| format!("{intensity:.2}")),
        roofline.map_or_else(unknown, operations),
        roofline.map_or_else(unknown, roof),
    );
    let stalls = kernel.stalls.iter();
    let stalls = stalls.filter(|stall| !stall.is_issue() && stall.share >= LEAST_STALL);
    let stalls: Vec<String> = stalls
        .take(STALLS)
        .map(|stall| format!("{} {}", stall.reason, percent(stall.share)))
        .collect();
    if !stalls.is_empty() {
        let _ = writeln!(out, "{:>10} warps stalled for: {}", "", stalls.join(", "));
    }
}

/// `1.2 T fp32`.
fn operations(roofline: &Roofline) -> String {
    let per_second = roofline.flops_per_second;
    let scaled = match per_second {
        speed if speed >= 1e12 => format!("{:.2} T", speed / 1e12),
        speed if speed >= 1e9 => format!("{:.1} G", speed / 1e9),
        speed => format!("{:.1} M", speed / 1e6),
    };
    match roofline.precision {
        Some(precision) => format!("{scaled} {}", precision.word()),
        None => "none".to_owned(),
    }
}

/// `83 % memory`.
fn roof(roofline: &Roofline) -> String {
    let bound = roofline.bound.zip(roofline.roof_share);
    bound.map_or_else(unknown, |(bound, share)| {
        format!("{} {}", percent(share), bound.word())
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn sizes([x, y, z]: [u32; 3]) -> String {
    format!("({x},{y},{z})")
}

fn unknown() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::record::{Bound, Precision, Stall};

    #[test]
    fn what_people_read() {
        let stall = |reason: &str, share| Stall {
            reason: reason.into(),
            share,
        };
        let counters = Counters {
            version: "2025.3.1.0".into(),
            path: "/opt/ncu".into(),
            passes: 31,
            wall_ns: 4_200_000_000,
            plain_ns: 800_000_000,
            kernels: vec![
                KernelCounters {
                    call: 12,
                    name: "saxpy(int)".into(),
                    grid: Some([264, 1, 1]),
                    block: Some([256, 1, 1]),
                    duration_ns: Some(2_100.0),
                    dram_share: Some(0.881),
                    sm_share: Some(0.12),
                    occupancy: Some(0.93),
                    occupancy_limit: Some(1.0),
                    roofline: Some(Roofline {
                        flops: 1.0,
                        flops_per_second: 7.2e11,
                        bytes: 1.0,
                        bytes_per_second: 4.3e12,
                        intensity: Some(1.0 / 6.0),
                        precision: Some(Precision::Fp32),
                        peak_flops_per_second: Some(6e13),
                        peak_bytes_per_second: Some(4.8e12),
                        bound: Some(Bound::Memory),
                        roof_share: Some(0.9),
                    }),
                    stalls: vec![
                        stall("long scoreboard", 0.8),
                        stall("selected", 0.1),
                        stall("wait", 0.06),
                        stall("drain", 0.04),
                    ],
                    ..KernelCounters::default()
                },
                KernelCounters {
                    call: 13,
                    name: "nothing()".into(),
                    ..KernelCounters::default()
                },
            ],
            left_out: [(3, "it waits".to_owned()), (5, "it waits".to_owned())].into(),
        };
        let mut text = String::new();
        counters.text(&mut text);
        for expected in [
            "counters of 2 kernels in 31 passes, by ncu 2025.3.1.0 (/opt/ncu): 4.20 s, where a replay \
             without takes 800.00 ms\n",
            "        12    2.1 us   88 %   12 %      -      -   93 % of 100 %      0.17 720.0 G fp32  90 % \
             memory  saxpy(int) (264,1,1)x(256,1,1)\n",
            "           warps stalled for: long scoreboard 80 %, wait 6 %\n",
            "        13         -      -      -      -      -               -         -            -    \
             \x20       -  nothing()\n",
            "no counters of call 3 and 1 more: it waits\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
        }
    }
}
