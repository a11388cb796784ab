//! The ranks of a parallel program side by side: which one is late for collectives, in which range
//! of the program it spends more time, and which one stopped first.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use cutape_format::{Call, ClockStart, Trace};
use serde::Serialize;

use crate::text_table::table;
use cutape_analyzer::demangle::{bare, demangle};
use cutape_calls::{CallSet, Chooser, Markers};
use cutape_format::TraceClock;
use cutape_model::{Effects, Scope, TraceState, Work, function_of};
use cutape_registry::{Family, GraphOp};
use cutape_render::quantity::{count, grouped, time, time_or_unknown};
use cutape_terminal::output::printable;

/// The most rows of a table; JSON has all.
const MOST_ROWS: usize = 40;

/// The launches that are compared, unless the user names others: kernels of NCCL.
pub(crate) const COLLECTIVES: &str = "kernel:nccl*";

/// What one process did, for the comparison.
#[derive(Debug, Default)]
pub(super) struct RankedCalls {
    /// Of the calls that are compared, by kernel or function: index and ticks.
    calls: BTreeMap<String, Vec<(u64, u64)>>,
    /// How many of them are kernel nodes of launched graphs.
    in_graphs: BTreeMap<String, u64>,
    /// By name: how long each took, in ticks.
    ranges: BTreeMap<String, Vec<u64>>,
    last: Option<LastCall>,
    clock: Option<ClockStart>,
}

impl RankedCalls {
    fn add(&mut self, name: String, call: &Call<'_>) {
        let calls = self.calls.entry(name).or_default();
        calls.push((call.index, call.ticks));
    }

    /// Whether the process made none of the calls that are compared.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// The last call of a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LastCall {
    pub(crate) call: u64,
    pub(crate) function: String,
    pub(crate) in_flight: bool,
}

/// Collects what is compared while calls are given in order.
pub(super) struct RankBuilder<'s> {
    chooser: Chooser<'s>,
    state: TraceState,
    found: RankedCalls,
}

impl<'s> RankBuilder<'s> {
    /// `set` names the calls that are compared, resolved for the trace.
    pub(super) fn new(set: &'s CallSet, trace: &'s Trace) -> Self {
        Self {
            chooser: Chooser::new(set, trace),
            state: TraceState::new(Scope::Work),
            found: RankedCalls::default(),
        }
    }

    pub(super) fn add(&mut self, call: &Call<'_>) {
        self.state.observe(call);
        self.chooser.observe(call);
        let kernel = self.state.launched_kernel(call).map(str::to_owned);
        if self.chooser.contains(call, kernel.as_deref()) {
            // What a stream captures runs when the graph is launched.
            if kernel.is_none() || !self.is_captured(call) {
                let name = kernel.unwrap_or_else(|| call.signature.name.clone());
                self.found.add(name, call);
            }
        } else {
            self.add_graph(call);
        }
        let last = self.found.last.get_or_insert_with(|| LastCall {
            call: 0,
            function: String::new(),
            in_flight: false,
        });
        last.call = call.index;
        last.in_flight = call.leave.is_none();
        if last.function != call.signature.name {
            last.function.clone_from(&call.signature.name);
        }
    }

    fn is_captured(&mut self, call: &Call<'_>) -> bool {
        let state = &mut self.state.state;
        let function = function_of(call.signature).filter(|_| !state.captures.is_empty());
        let stream = function
            .and_then(|function| state.call_stream(&Effects::of(function), call))
            .filter(|&stream| state.captures.of(stream).is_some());
        stream.is_some()
    }

    /// The kernel nodes of a launched graph, each a launch at the moment of the call.
    fn add_graph(&mut self, call: &Call<'_>) {
        let family = function_of(call.signature).map(|function| function.family);
        if family != Some(Family::Graph(GraphOp::Launch)) || self.is_captured(call) {
            return;
        }
        let Some(exec) = self.state.state.graphs.exec(call.argument(0)) else {
            return;
        };
        let kernels = exec
            .active()
            .into_iter()
            .filter_map(|(_, work)| match work {
                Work::Kernel(kernel) => self.state.kernel_name(kernel.function),
                _ => None,
            });
        let wanted = kernels.filter(|kernel| self.chooser.contains(call, Some(kernel)));
        for kernel in wanted.map(str::to_owned).collect::<Vec<_>>() {
            *self.found.in_graphs.entry(kernel.clone()).or_default() += 1;
            self.found.add(kernel, call);
        }
    }

    pub(super) fn finish(mut self, trace: &Trace) -> RankedCalls {
        let markers = Markers::of(trace);
        for (number, range) in markers.ranges.iter().enumerate() {
            let Some(end) = range.end else { continue };
            let path = markers.path(number);
            let name = match range.domain.as_str() {
                "" => path,
                domain => format!("{domain}@{path}"),
            };
            let took = end.saturating_sub(range.begin);
            self.found.ranges.entry(name).or_default().push(took);
        }
        self.found.clock = ClockStart::of(trace);
        self.found
    }
}

/// The ranks side by side. JSON keys are only ever added.
#[derive(Debug, Serialize)]
pub(crate) struct Ranks {
    pub(crate) ranks: Vec<u64>,
    pub(crate) clocks: Clocks,
    /// By name.
    pub(crate) collectives: Vec<Collective>,
    /// Ranges that all ranks have, by time.
    pub(crate) ranges: Vec<RangeOfRanks>,
    pub(crate) behind: Option<Behind>,
}

/// How times of different ranks compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Clocks {
    /// One counter: exact.
    Shared,
    /// The systems' clocks: as exact as these agree.
    System,
    /// Not at all.
    Unknown,
}

/// The launches of one kernel, the n-th of each rank compared.
#[derive(Debug, Serialize)]
pub(crate) struct Collective {
    /// As in its image, or a function.
    pub(crate) kernel: String,
    /// How many each rank has, in the order of the ranks.
    pub(crate) counts: Vec<u64>,
    /// How many of them are kernel nodes of launched graphs, in the order of the ranks.
    pub(crate) in_graphs: Vec<u64>,
    /// How many were compared: what all ranks have.
    pub(crate) compared: u64,
    /// From the first rank to the last, at each: the one in the middle, and the longest.
    pub(crate) median_skew_ns: Option<u64>,
    pub(crate) max_skew_ns: Option<u64>,
    /// Which one that is, from 0, its call in each rank, and the last rank.
    pub(crate) max_number: Option<u64>,
    pub(crate) max_calls: Vec<u64>,
    pub(crate) max_last: Option<u64>,
    /// At how many each rank was the last, in the order of the ranks.
    pub(crate) last: Vec<u64>,
}

/// The ranges of one name.
#[derive(Debug, Serialize)]
pub(crate) struct RangeOfRanks {
    pub(crate) range: String,
    pub(crate) counts: Vec<u64>,
    /// How long the one in the middle took, in the order of the ranks.
    pub(crate) median_ns: Vec<u64>,
    pub(crate) slowest: u64,
}

/// The rank that the others waited for.
#[derive(Debug, Serialize)]
pub(crate) struct Behind {
    pub(crate) rank: u64,
    /// Why, for people.
    pub(crate) why: String,
    pub(crate) last_call: Option<LastCall>,
}

impl Ranks {
    /// Compares the ranks, of which each has one process; `None` if there are fewer than two.
    pub(super) fn of(ranked: &BTreeMap<u64, RankedCalls>) -> Option<Self> {
        if ranked.len() < 2 {
            return None;
        }
        let ranks: Vec<u64> = ranked.keys().copied().collect();
        let all: Vec<&RankedCalls> = ranked.values().collect();
        let (clocks, origin) = clocks(&all);
        let moment = |rank: usize, ticks: u64| moment(clocks, origin, all[rank].clock, ticks);
        let mut names: Vec<&String> = all.iter().flat_map(|rank| rank.calls.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let collectives: Vec<Collective> = names
            .into_iter()
            .map(|name| {
                let none = Vec::new();
                let calls: Vec<&Vec<(u64, u64)>> = all
                    .iter()
                    .map(|rank| rank.calls.get(name).unwrap_or(&none))
                    .collect();
                let in_graphs = all.iter().map(|rank| {
                    let count = rank.in_graphs.get(name);
                    count.copied().unwrap_or(0)
                });
                Collective {
                    in_graphs: in_graphs.collect(),
                    ..collective(name, &ranks, &calls, &moment)
                }
            })
            .collect();
        let ranges = ranges(&ranks, &all);
        let behind = behind(&ranks, &all, &collectives);
        Some(Self {
            ranks,
            clocks,
            collectives,
            ranges,
            behind,
        })
    }
}

/// How the clocks compare, and the clock that the others are brought to.
fn clocks(all: &[&RankedCalls]) -> (Clocks, Option<ClockStart>) {
    let known: Option<Vec<ClockStart>> = all.iter().map(|rank| rank.clock).collect();
    let Some((first, rest)) = known.as_deref().and_then(<[ClockStart]>::split_first) else {
        return (Clocks::Unknown, None);
    };
    match rest.iter().all(|other| first.has_counter_of(other)) {
        true => (Clocks::Shared, Some(*first)),
        false => (Clocks::System, Some(*first)),
    }
}

/// Nanoseconds since the first rank's recording began; negative before.
fn moment(
    clocks: Clocks,
    origin: Option<ClockStart>,
    own: Option<ClockStart>,
    ticks: u64,
) -> Option<i128> {
    let (origin, own) = (origin?, own?);
    let (base, rate, offset) = match clocks {
        Clocks::Unknown => return None,
        Clocks::Shared => (origin.ticks, origin.rate, 0),
        Clocks::System => {
            let offset = i128::from(own.unix_ns) - i128::from(origin.unix_ns);
            (own.ticks, own.rate, offset)
        }
    };
    let since = (i128::from(ticks) - i128::from(base)) * 1_000_000_000;
    Some(since / i128::from(rate) + offset)
}

fn collective(
    name: &str,
    ranks: &[u64],
    calls: &[&Vec<(u64, u64)>],
    moment: &dyn Fn(usize, u64) -> Option<i128>,
) -> Collective {
    let counts: Vec<u64> = calls.iter().map(|calls| calls.len() as u64).collect();
    let compared = counts.iter().copied().min().unwrap_or(0);
    let mut skews: Vec<u64> = Vec::new();
    let mut last = vec![0; ranks.len()];
    // Skew, number, rank.
    let mut most: Option<(u64, usize, usize)> = None;
    for number in 0..compared as usize {
        let moments: Option<Vec<i128>> = calls
            .iter()
            .enumerate()
            .map(|(rank, calls)| moment(rank, calls[number].1))
            .collect();
        let Some(moments) = moments else { continue };
        let latest = (0..moments.len()).max_by_key(|&rank| moments[rank]);
        let (Some(latest), Some(first)) = (latest, moments.iter().min()) else {
            continue;
        };
        let skew = u64::try_from(moments[latest] - first).unwrap_or(u64::MAX);
        last[latest] += 1;
        skews.push(skew);
        if most.is_none_or(|(longest, ..)| skew > longest) {
            most = Some((skew, number, latest));
        }
    }
    skews.sort_unstable();
    Collective {
        kernel: name.to_owned(),
        counts,
        in_graphs: Vec::new(),
        compared,
        median_skew_ns: skews.get(skews.len() / 2).copied(),
        max_skew_ns: skews.last().copied(),
        max_number: most.map(|(_, number, _)| number as u64),
        max_calls: most.map_or_else(Vec::new, |(_, number, _)| {
            calls.iter().map(|calls| calls[number].0).collect()
        }),
        max_last: most.map(|(_, _, rank)| ranks[rank]),
        last,
    }
}

fn ranges(ranks: &[u64], all: &[&RankedCalls]) -> Vec<RangeOfRanks> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let in_all = |name: &&String| all.iter().all(|rank| rank.ranges.contains_key(*name));
    let mut found: Vec<RangeOfRanks> = Vec::new();
    for name in first.ranges.keys().filter(in_all) {
        let mut median_ns = Vec::new();
        let mut counts = Vec::new();
        for rank in all {
            // The first ones are often longer than all others.
            let mut took = rank.ranges[name].clone();
            took.sort_unstable();
            let middle = took.get(took.len() / 2).copied().unwrap_or(0);
            let rate = rank.clock.map_or(0, |clock| clock.rate);
            counts.push(took.len() as u64);
            median_ns.push(TraceClock::with_rate(rate).between(0, middle));
        }
        // Without times there is nothing to compare.
        let Some(median_ns) = median_ns.into_iter().collect::<Option<Vec<u64>>>() else {
            continue;
        };
        let slowest = (0..ranks.len()).max_by_key(|&rank| median_ns[rank]);
        found.push(RangeOfRanks {
            range: name.clone(),
            counts,
            slowest: slowest.map_or(0, |rank| ranks[rank]),
            median_ns,
        });
    }
    let longest = |range: &RangeOfRanks| range.median_ns.iter().copied().max();
    found.sort_by_key(|range| std::cmp::Reverse(longest(range)));
    found
}

/// The rank that made fewer of the calls than the others, or else the one that was last at most of
/// them.
fn behind(ranks: &[u64], all: &[&RankedCalls], collectives: &[Collective]) -> Option<Behind> {
    let sum = |of: &dyn Fn(&Collective) -> &Vec<u64>| -> Vec<u64> {
        (0..ranks.len())
            .map(|rank| collectives.iter().map(|found| of(found)[rank]).sum())
            .collect()
    };
    let made = sum(&|found| &found.counts);
    let (least, most) = (made.iter().min()?, made.iter().max()?);
    let of_rank = |rank: usize, why: String| Behind {
        rank: ranks[rank],
        why,
        last_call: all[rank].last.clone(),
    };
    if least < most {
        let rank = made.iter().position(|made| made == least)?;
        let with = made.iter().filter(|made| *made == least).count();
        let others = match with {
            1 => String::new(),
            more => format!(" ({} others as well)", more - 1),
        };
        let why = format!("made {least} of {most} such calls{others}");
        return Some(of_rank(rank, why));
    }
    let last = sum(&|found| &found.last);
    let compared: u64 = collectives.iter().map(|found| found.compared).sum();
    let rank = (0..ranks.len()).max_by_key(|&rank| last[rank])?;
    // With chance alone each would be last as often.
    let share = |part: u64| 2 * part > compared && compared > 1;
    share(last[rank]).then(|| {
        let why = format!("was last at {} of {compared} such calls", last[rank]);
        of_rank(rank, why)
    })
}

/// Writes the comparison for people.
pub(super) fn write(ranks: &Ranks, columns: usize, out: &mut dyn Write) -> io::Result<()> {
    let clocks = match ranks.clocks {
        Clocks::Shared => "the ranks share a clock",
        Clocks::System => "times by each machine's own clock, which may differ by milliseconds",
        Clocks::Unknown => "no clock that compares ranks",
    };
    writeln!(
        out,
        "\n{}: {clocks}",
        count(ranks.ranks.len() as u64, "rank")
    )?;
    if ranks.collectives.is_empty() && ranks.ranges.is_empty() {
        return writeln!(
            out,
            "  nothing to compare: no launches of NCCL, and no range of NVTX that all have; --align \
             names other calls"
        );
    }
    let rows: Vec<Vec<String>> = ranks
        .collectives
        .iter()
        .map(|found| {
            let counts = &found.counts;
            let least = counts.iter().min().copied().unwrap_or(0);
            let most = counts.iter().max().copied().unwrap_or(0);
            let mut launches = match least == most {
                true => grouped(most),
                false => format!("{} to {}", grouped(least), grouped(most)),
            };
            let in_graphs = found.in_graphs.iter().max().copied().unwrap_or(0);
            if in_graphs > 0 {
                launches += &format!(" ({} in graphs)", grouped(in_graphs));
            }
            let usual = found
                .last
                .iter()
                .zip(&ranks.ranks)
                .max_by_key(|last| last.0);
            let usual = usual.filter(|last| *last.0 > 0).map(|(times, rank)| {
                let share = 100 * times / found.compared.max(1);
                format!("rank {rank} ({share} %)")
            });
            let at = found.max_number.zip(found.max_last);
            vec![
                printable(bare(&demangle(&found.kernel))).into_owned(),
                usual.unwrap_or_default(),
                launches,
                time_or_unknown(found.median_skew_ns),
                time_or_unknown(found.max_skew_ns),
                at.map_or_else(String::new, |(number, rank)| {
                    format!("number {}, rank {rank}", grouped(number))
                }),
            ]
        })
        .collect();
    let header = [
        "collective",
        "mostly last",
        "launches",
        "median skew",
        "longest",
        "at",
    ];
    write_table(&header, rows, 2, columns, out)?;
    let rows = ranks.ranges.iter().map(|range| {
        let (least, most) = (range.median_ns.iter().min(), range.median_ns.iter().max());
        let counts = &range.counts;
        let same = counts.windows(2).all(|pair| pair[0] == pair[1]);
        vec![
            range.range.clone(),
            format!("rank {}", range.slowest),
            match same {
                true => grouped(counts.first().copied().unwrap_or(0)),
                false => "differs".to_owned(),
            },
            time(least.copied().unwrap_or(0)),
            time(most.copied().unwrap_or(0)),
        ]
    });
    let header = ["range", "slowest", "count", "least median", "most"];
    write_table(&header, rows.collect(), 2, columns, out)?;
    if let Some(behind) = &ranks.behind {
        let last = behind.last_call.as_ref().map(|last| {
            let state = if last.in_flight { ", in flight" } else { "" };
            format!("; its last call: {} {}{state}", last.call, last.function)
        });
        writeln!(
            out,
            "\nbehind: rank {} {}{}",
            behind.rank,
            behind.why,
            last.unwrap_or_default()
        )?;
    }
    Ok(())
}

fn write_table(
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    left: usize,
    columns: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let more = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    writeln!(out)?;
    for line in table(header, rows, |place| place < left, columns) {
        writeln!(out, " {line}")?;
    }
    if more > 0 {
        writeln!(out, "  … {more} more, all in --format json")?;
    }
    Ok(())
}

/// Of the processes with one rank, the one with the most calls: children of a rank inherit its
/// number.
pub(super) fn by_rank(
    processes: impl IntoIterator<Item = (Option<u64>, u64, RankedCalls)>,
) -> BTreeMap<u64, RankedCalls> {
    let mut most: HashMap<u64, u64> = HashMap::new();
    let mut ranked = BTreeMap::new();
    for (rank, calls, found) in processes {
        let Some(rank) = rank else { continue };
        let known = most.entry(rank).or_insert(0);
        if calls > *known {
            *known = calls;
            ranked.insert(rank, found);
        }
    }
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank whose clock has begun that much later, with calls of one kernel at these ticks.
    fn rank(start: (u64, u64), calls: &[u64]) -> RankedCalls {
        let calls = calls.iter().zip(10..).map(|(ticks, index)| (index, *ticks));
        RankedCalls {
            calls: BTreeMap::from([("ncclAllReduce".to_owned(), calls.collect())]),
            in_graphs: BTreeMap::new(),
            ranges: BTreeMap::from([("step".to_owned(), vec![2_000, 4_000])]),
            last: Some(LastCall {
                call: 99,
                function: "cuCtxSynchronize".to_owned(),
                in_flight: true,
            }),
            clock: Some(ClockStart {
                unix_ns: start.0,
                ticks: start.1,
                rate: 1_000_000_000,
            }),
        }
    }

    fn ranks(all: Vec<RankedCalls>) -> Ranks {
        Ranks::of(&(0..).zip(all).collect()).unwrap()
    }

    #[test]
    fn the_last_rank_is_found() {
        let found = ranks(vec![
            rank((1_000, 500), &[1_000, 2_000, 3_000]),
            rank((1_400, 900), &[1_700, 2_900, 3_100]),
            rank((1_500, 1_000), &[1_100, 2_100, 3_200]),
        ]);
        assert_eq!(found.clocks, Clocks::Shared);
        let collective = &found.collectives[0];
        assert_eq!(collective.compared, 3);
        assert_eq!(collective.median_skew_ns, Some(700));
        assert_eq!(collective.max_skew_ns, Some(900));
        assert_eq!(
            (collective.max_number, collective.max_last),
            (Some(1), Some(1))
        );
        assert_eq!(collective.max_calls, [11, 11, 11]);
        assert_eq!(collective.last, [0, 2, 1]);
        let behind = found.behind.unwrap();
        assert_eq!(behind.rank, 1);
        assert_eq!(behind.why, "was last at 2 of 3 such calls");
        assert_eq!(found.ranges[0].median_ns, [4_000; 3]);
    }

    #[test]
    fn clocks_of_other_machines_go_by_the_system() {
        // The second machine has run for longer; its clock says the same time.
        let found = ranks(vec![
            rank((1_000_000_000, 0), &[100]),
            rank((1_000_000_000, 77_000_000_000), &[77_000_000_400]),
        ]);
        assert_eq!(found.clocks, Clocks::System);
        assert_eq!(found.collectives[0].max_skew_ns, Some(300));
        let mut unknown = rank((0, 0), &[1]);
        unknown.clock = None;
        let found = ranks(vec![rank((0, 0), &[1]), unknown]);
        assert_eq!(found.clocks, Clocks::Unknown);
        assert_eq!(found.collectives[0].max_skew_ns, None);
        assert!(found.behind.is_none() && found.ranges.is_empty());
    }

    #[test]
    fn a_rank_that_stopped_is_behind() {
        let found = ranks(vec![
            rank((0, 0), &[100, 200, 300]),
            rank((0, 0), &[150, 250, 350]),
            rank((0, 0), &[110, 210]),
        ]);
        let behind = found.behind.unwrap();
        assert_eq!((behind.rank, &*behind.why), (2, "made 2 of 3 such calls"));
        assert!(behind.last_call.unwrap().in_flight);
        assert_eq!(found.collectives[0].compared, 2);
    }

    #[test]
    fn one_process_stands_for_a_rank() {
        let process = |rank, calls| (rank, calls, RankedCalls::default());
        let found = by_rank([
            process(Some(0), 5),
            process(Some(0), 50),
            process(Some(0), 7),
            process(None, 900),
            process(Some(3), 1),
        ]);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert!(Ranks::of(&by_rank([process(Some(0), 5)])).is_none());
    }
}
