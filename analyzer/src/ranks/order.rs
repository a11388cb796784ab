//! Whether all ranks of a communicator launch the same collectives, in the same order.

use std::collections::{BTreeMap, BTreeSet};

use cutape_registry::rules;

use super::collectives::{Collectives, Launch, Member, Shape};
use super::finding::{finding, sentence};
use super::process::Process;
use super::recording::{ProcessEnd, RankTraces};
use crate::finding::{CallSite, Finding};

/// A launch of a member.
type Launched<'m> = (&'m Member, Launch);

/// What is wrong in a communicator.
#[derive(Debug)]
struct Mistake {
    rule: &'static str,
    title: String,
    message: String,
    call: (usize, u64),
    related: Vec<(&'static str, (usize, u64))>,
}

/// Signals by which a process ends through its own fault, not because somebody stops it.
const CRASHES: [i64; 5] = [4, 6, 7, 8, 11];
const SIGKILL: i64 = 9;

/// The findings about all communicators.
pub(super) fn check(
    collectives: &Collectives,
    processes: &[Process],
    traces: &dyn RankTraces,
    found: &mut Vec<Finding>,
) {
    let communicators = collectives.communicators();
    let mistakes = communicators.iter().filter_map(|members| {
        let communicator = Communicator {
            collectives,
            processes,
            members,
        };
        communicator.mistake()
    });
    let mistakes: Vec<Mistake> = mistakes.collect();
    let mut wanted: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for mistake in &mistakes {
        let related = mistake.related.iter().map(|(_, site)| *site);
        for (process, call) in related.chain([mistake.call]) {
            wanted.entry(process).or_default().insert(call);
        }
    }
    let sites = sites(processes, traces, &wanted);
    for mistake in mistakes {
        let Some(call) = sites.get(&mistake.call) else {
            continue;
        };
        let related = mistake.related.into_iter();
        let related = related.filter_map(|(what, site)| Some((what, sites.get(&site)?.clone())));
        found.push(finding(
            mistake.rule,
            mistake.title,
            mistake.message,
            call.clone(),
            related.collect(),
            None,
        ));
    }
}

/// The calls as findings name them: the traces are read again up to them.
fn sites(
    processes: &[Process],
    traces: &dyn RankTraces,
    wanted: &BTreeMap<usize, BTreeSet<u64>>,
) -> BTreeMap<(usize, u64), CallSite> {
    let mut found = BTreeMap::new();
    for (&number, calls) in wanted {
        let known = processes.get(number).zip(traces.context(number));
        let Some((process, context)) = known else {
            continue;
        };
        let mut process = process.anew();
        let mut left = calls.len();
        traces.each_call(number, &mut |call| {
            if calls.contains(&call.index) {
                found.insert((number, call.index), process.site(context, call));
                left -= 1;
            }
            process.trace.observe(call);
            left > 0
        });
    }
    found
}

struct Communicator<'c> {
    collectives: &'c Collectives,
    processes: &'c [Process],
    members: &'c [&'c Member],
}

impl Communicator<'_> {
    fn label(&self, member: &Member) -> &str {
        let process = self.processes.get(member.process);
        process.map_or("", |process| &process.label)
    }

    /// The first mistake: what follows it is a consequence.
    fn mistake(&self) -> Option<Mistake> {
        let lengths = self.members.iter().map(|member| member.launches.len());
        let shortest = lengths.min()?;
        let clear = self.members.iter().filter_map(|member| member.unclear_from);
        let clear = clear.min().unwrap_or(usize::MAX);
        for at in 0..shortest.min(clear) {
            let launches: Vec<(&Member, Launch)> = self
                .members
                .iter()
                .filter_map(|member| Some((*member, *member.launches.get(at)?)))
                .collect();
            if let Some((one, other)) = odd_one_out(&launches, |launch| launch.kernel) {
                return Some(self.order(at, one, other));
            }
            if let Some((one, other)) = odd_one_out(&launches, |launch| launch.shape) {
                return Some(self.shape(at, one, other));
            }
        }
        (shortest < clear).then(|| self.missing(shortest)).flatten()
    }

    /// `Rank 1, rank 2 and rank 3`.
    fn names<'m>(&self, members: impl Iterator<Item = &'m Member>) -> String {
        let names: Vec<&str> = members.map(|member| self.label(member)).collect();
        match names.as_slice() {
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            _ => names.concat(),
        }
    }

    fn order(&self, at: usize, one: Launched<'_>, other: Launched<'_>) -> Mistake {
        let (from, to) = (self.label(other.0), self.label(one.0));
        let (wanted, got) = (
            self.collectives.kernel(other.1.kernel),
            self.collectives.kernel(one.1.kernel),
        );
        let later = one.0.launches.iter().skip(at);
        let later = later
            .clone()
            .position(|launch| launch.kernel == other.1.kernel);
        let later = match later {
            Some(distance) => {
                let number = ordinal(at + distance);
                format!(" {} launches {wanted} as its {number}.", sentence(to))
            }
            None => String::new(),
        };
        let number = ordinal(at);
        let message = format!(
            "{} form a communicator: their launches reach the same memory. {} launches {got} as \
             its {number} collective there, {from} {wanted}.{later} Each waits for the others to \
             run the same, so they hang or compute wrong values.",
            sentence(&self.names(self.members.iter().copied())),
            sentence(to),
        );
        Mistake {
            rule: rules::RANKS_COLLECTIVE_ORDER,
            title: format!("{to} and {from} launch different collectives as their {number}"),
            message,
            call: (one.0.process, one.1.call),
            related: vec![(
                "launched by the other rank",
                (other.0.process, other.1.call),
            )],
        }
    }

    fn shape(&self, at: usize, one: Launched<'_>, other: Launched<'_>) -> Mistake {
        let (from, to) = (self.label(other.0), self.label(one.0));
        let number = ordinal(at);
        let message = format!(
            "{} form a communicator: their launches reach the same memory. {} launches the \
             {number} collective, {}, {}, {from} {}. The shape of a collective follows from its \
             count and type, which must be the same in all ranks.",
            sentence(&self.names(self.members.iter().copied())),
            sentence(to),
            self.collectives.kernel(one.1.kernel),
            shape_text(self.collectives.shape(one.1.shape)),
            shape_text(self.collectives.shape(other.1.shape)),
        );
        Mistake {
            rule: rules::RANKS_COLLECTIVE_SHAPE,
            title: format!("{to} and {from} launch the {number} collective with different shapes"),
            message,
            call: (one.0.process, one.1.call),
            related: vec![(
                "launched by the other rank",
                (other.0.process, other.1.call),
            )],
        }
    }

    /// One rank ended by itself before a collective that all others launched and never completed.
    fn missing(&self, at: usize) -> Option<Mistake> {
        let lacks = |member: &&&Member| member.launches.len() == at;
        let mut absent = self.members.iter().filter(lacks);
        let (Some(absent), None) = (absent.next(), absent.next()) else {
            return None;
        };
        let process = self.processes.get(absent.process)?;
        let others = || {
            let members = self.members.iter().copied();
            members.filter(|member| member.process != absent.process)
        };
        let ends = || {
            let processes = others().filter_map(|member| self.processes.get(member.process));
            processes.map(|process| process.end)
        };
        let is_crash = |end| matches!(end, ProcessEnd::Killed(by) if CRASHES.contains(&by));
        let has_ended = match process.end {
            // It may have given up because another rank crashed.
            ProcessEnd::Exited(_) => !ends().any(is_crash),
            ProcessEnd::Killed(SIGKILL) => ends().all(|end| end != ProcessEnd::Killed(SIGKILL)),
            ProcessEnd::Killed(signal) => CRASHES.contains(&signal),
            ProcessEnd::Unknown => false,
        };
        let all_are_well = ends().all(|end| end == ProcessEnd::Exited(0));
        let is_complete = others().any(|member| member.completed > at);
        if !has_ended || all_are_well || is_complete || at == 0 {
            return None;
        }
        let last = process.last_call?;
        let name = &process.label;
        let (first, launch) =
            others().find_map(|member| Some((member, member.launches.get(at)?)))?;
        let kernel = self.collectives.kernel(launch.kernel);
        let number = ordinal(at);
        let how = match process.end {
            ProcessEnd::Killed(signal) => format!("was killed by signal {signal}"),
            ProcessEnd::Exited(status) => format!("exited with status {status}"),
            ProcessEnd::Unknown => "ended".to_owned(),
        };
        let message = format!(
            "{} launched {kernel} as the {number} collective of a communicator with {name}: their \
             launches reach the same memory. {} launched {at} of them and {how}. Nothing shows \
             that the others got past it.",
            sentence(&self.names(others())),
            sentence(name),
        );
        let mut related = vec![("launched by another rank", (first.process, launch.call))];
        let own = absent.launches.last();
        related.extend(own.map(|own| ("its last collective", (absent.process, own.call))));
        Some(Mistake {
            rule: rules::RANKS_COLLECTIVE_MISSING,
            title: format!("{name} never launches the {number} collective"),
            message,
            call: (absent.process, last),
            related,
        })
    }
}

/// A launch that differs from most others, and one of these.
fn odd_one_out<'m>(
    launches: &[Launched<'m>],
    what: impl Fn(&Launch) -> u32,
) -> Option<(Launched<'m>, Launched<'m>)> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, launch) in launches {
        *counts.entry(what(launch)).or_default() += 1;
    }
    if counts.len() < 2 {
        return None;
    }
    let count = |entry: &&(&Member, Launch)| counts.get(&what(&entry.1)).copied();
    // Of equally many, the first rank is taken to be right.
    let usual = launches.iter().rev().max_by_key(count)?;
    let differs = |entry: &&(&Member, Launch)| what(&entry.1) != what(&usual.1);
    Some((*launches.iter().find(differs)?, *usual))
}

/// `3rd` for the place 2.
fn ordinal(at: usize) -> String {
    let number = at + 1;
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn shape_text((grid, block, shared): Shape) -> String {
    let three = |[x, y, z]: [u64; 3]| format!("{x}×{y}×{z}");
    let shared = match shared {
        0 => String::new(),
        bytes => format!(" and {bytes} bytes of dynamic shared memory"),
    };
    format!(
        "with a grid of {} blocks of {}{shared}",
        three(grid),
        three(block)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals() {
        for (at, expected) in [
            (0, "1st"),
            (1, "2nd"),
            (2, "3rd"),
            (3, "4th"),
            (10, "11th"),
            (20, "21st"),
        ] {
            assert_eq!(ordinal(at), expected);
        }
    }
}
