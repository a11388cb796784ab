//! What follows from ranks together, in words.

use std::collections::BTreeMap;

use cutape_render::quantity;
use cutape_render::text::without_middle;

use crate::ranks::record::{Exchange, RanksSummary};
use crate::text::{line, rest, share};

/// Rows of a table; JSON has all.
const ROWS: usize = 20;
const SHORT: usize = 8;
const NAME: usize = 60;

/// Exchanges of one kernel.
#[derive(Default)]
struct ByKernel<'a> {
    count: u64,
    waited_ns: u64,
    /// The one with the longest wait.
    longest: Option<(u64, &'a Exchange)>,
}

impl RanksSummary {
    /// The tables; `folder` is what was replayed.
    pub fn text(&self, folder: &str) -> String {
        let mut out = String::new();
        let count = self.ranks.len();
        let wall = quantity::time(self.wall_ns);
        line(
            &mut out,
            format_args!("{folder}: GPU times of {count} ranks, replayed together in {wall}"),
        );
        line(
            &mut out,
            format_args!(
                "\n{:<12} {:>10} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8}",
                "", "exchanges", "last in", "waited", "awaited", "slack", "on path", "of work"
            ),
        );
        for row in &self.ranks {
            let on_path: u64 = row
                .critical_path
                .shares
                .iter()
                .map(|one| one.total_ns)
                .sum();
            line(
                &mut out,
                format_args!(
                    "{:<12} {:>10} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8}",
                    without_middle(&row.label, 24),
                    row.exchanges,
                    row.last_in,
                    quantity::time(row.waited_ns),
                    quantity::time(row.awaited_ns),
                    quantity::time(row.slack_ns),
                    share(on_path as f64, self.wall_ns as f64),
                    share(row.critical_path.work_ns as f64, on_path as f64)
                ),
            );
        }
        self.exchange_table(&mut out);
        self.path_table(&mut out);
        self.range_table(&mut out);
        if self.not_measured > 0 {
            let collectives = quantity::count(self.not_measured, "collective");
            line(
                &mut out,
                format_args!("note: {collectives} without times of all ranks' kernels"),
            );
        }
        out
    }

    fn label(&self, rank: usize) -> &str {
        self.ranks.get(rank).map_or("?", |rank| &rank.label)
    }

    fn exchange_table(&self, out: &mut String) {
        if self.exchanges.is_empty() {
            line(
                out,
                format_args!(
                    "\nno collective of several ranks was found: NCCL's kernels are known"
                ),
            );
            return;
        }
        let mut kernels: BTreeMap<&str, ByKernel<'_>> = BTreeMap::new();
        for exchange in &self.exchanges {
            let of_kernel = kernels.entry(&exchange.kernel).or_default();
            of_kernel.count += 1;
            for arrival in &exchange.arrivals {
                of_kernel.waited_ns += arrival.waited_ns;
                let longest = of_kernel.longest.map_or(0, |longest| longest.0);
                if arrival.waited_ns > longest {
                    of_kernel.longest = Some((arrival.waited_ns, exchange));
                }
            }
        }
        let mut kernels: Vec<_> = kernels.into_iter().collect();
        kernels.sort_by_key(|(_, of_kernel)| std::cmp::Reverse(of_kernel.waited_ns));
        line(out, format_args!("\nwaits for other ranks, by kernel:"));
        for (name, of_kernel) in kernels.iter().take(SHORT) {
            let longest = of_kernel
                .longest
                .map_or_else(String::new, |(time, exchange)| {
                    let own = exchange.arrivals.iter();
                    let own = own.max_by_key(|arrival| arrival.waited_ns);
                    let call = own.map_or(0, |own| own.call);
                    let waiting = own.map_or("?", |own| self.label(own.rank));
                    format!(
                        "; the longest {}: {waiting}, call {call}, for {}",
                        quantity::time(time),
                        self.label(exchange.last)
                    )
                });
            line(
                out,
                format_args!(
                    "  {} x {}: {}{longest}",
                    of_kernel.count,
                    without_middle(name, NAME),
                    quantity::time(of_kernel.waited_ns)
                ),
            );
        }
        rest(kernels.len(), SHORT, out);
    }

    fn path_table(&self, out: &mut String) {
        line(out, format_args!("\ncritical path through the ranks:"));
        let mut parts: Vec<_> = self
            .ranks
            .iter()
            .flat_map(|rank| {
                rank.critical_path
                    .shares
                    .iter()
                    .map(move |part| (rank, part))
            })
            .collect();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.total_ns));
        for (rank, part) in parts.iter().take(ROWS) {
            let call = part
                .longest_call
                .map_or_else(String::new, |call| format!(" at call {call}"));
            line(
                out,
                format_args!(
                    "{:>6} {:>10} {:>7}  {:<8} {:<8} {}{call}",
                    share(part.total_ns as f64, self.wall_ns as f64),
                    quantity::time(part.total_ns),
                    part.count,
                    rank.label,
                    part.link.word(),
                    without_middle(&part.name, NAME)
                ),
            );
        }
        rest(parts.len(), ROWS, out);
    }

    fn range_table(&self, out: &mut String) {
        if self.ranges.iter().all(|row| row.range.is_none()) {
            return;
        }
        line(
            out,
            format_args!("\ncritical path by range, and who bounds it:"),
        );
        for row in self.ranges.iter().take(ROWS) {
            let most = row.by_rank.get(row.bound_by).copied().unwrap_or(0);
            line(
                out,
                format_args!(
                    "{:>6} {:>10}  {}: {} for {} of it",
                    share(row.total_ns as f64, self.wall_ns as f64),
                    quantity::time(row.total_ns),
                    without_middle(row.range.as_deref().unwrap_or("(in no range)"), NAME),
                    self.label(row.bound_by),
                    share(most as f64, row.total_ns as f64)
                ),
            );
        }
        rest(self.ranges.len(), ROWS, out);
    }
}
