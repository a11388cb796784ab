//! Several replays of one trace, each in a process of its own, and what their differences say about
//! the cause of each divergence.

mod launches;

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use cutape_format::Trace;

use crate::error::Error;
use crate::guard::{Guard, run_guarded};
use crate::options::DigestedLaunches;
use crate::plan::has_launch_digests;
use crate::report::{Divergence, LaunchOutputs, Report, Verdict};

/// How often to replay.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// How many replays; at least three with `fill`, else a difference of the last one could be
    /// either's.
    pub count: u32,
    /// New memory is filled with this byte, and in the last replay with its complement.
    pub fill: Option<u8>,
    /// Whether what launches write is compared between replays. If the trace has no digests at
    /// launches, as many further replays digest it.
    pub compares_launches: bool,
}

/// What the child of one of several replays does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneReplay {
    /// New memory is filled with this byte.
    pub fill: Option<u8>,
    /// Which launches are digested.
    pub launches: DigestedLaunches,
}

impl Repeat {
    /// True if the last replay has another byte than the others.
    fn has_other_byte(self) -> bool {
        self.fill.is_some() && self.count > 1
    }

    /// How many replays have the same byte.
    fn alike(self) -> usize {
        self.count as usize - usize::from(self.has_other_byte())
    }

    /// The byte of each replay.
    fn fills(self) -> impl Iterator<Item = Option<u8>> {
        let last = self.count.saturating_sub(1);
        (0..self.count).map(move |number| match self.fill {
            Some(byte) if self.has_other_byte() && number == last => Some(!byte),
            fill => fill,
        })
    }
}

/// As [`run_guarded`], several times. The children must keep going after a divergence and do what
/// `command` is given. The report is that of the first replay, with the divergences of all of them
/// and their verdicts.
///
/// The replays that digest launches for themselves come after the others: they load a kernel, fill
/// new memory and put the work of streams in order, so their other results are not looked at.
///
/// # Errors
///
/// As [`run_guarded`].
pub fn run_repeated(
    trace: &Trace,
    command: &dyn Fn(OneReplay) -> Command,
    guard: &Guard,
    repeat: Repeat,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Error> {
    // What digests need of the driver moves memory: what follows from that is not kept.
    let apart = Guard {
        keep_placement: None,
        ..guard.clone()
    };
    let has_digests = has_launch_digests(trace);
    let mut run = |one: OneReplay| {
        let is_further = one.launches != DigestedLaunches::None && !has_digests;
        let guard = if is_further { &apart } else { guard };
        let command = || command(one);
        run_guarded(trace, &command, guard, progress)
    };
    let kept = match repeat.compares_launches && has_digests {
        true => DigestedLaunches::All,
        false => DigestedLaunches::None,
    };
    let mut reports = Vec::new();
    for fill in repeat.fills() {
        let launches = kept;
        reports.push(run(OneReplay { fill, launches })?);
    }
    let outputs = match repeat.compares_launches {
        true => compare_launches(trace, repeat, &mut reports, &mut run),
        false => None,
    };
    let fill = repeat.fill.filter(|_| repeat.has_other_byte());
    Ok(Report {
        launch_outputs: outputs,
        ..judge(reports, fill)
    })
}

/// Compares what launches write in these replays, or in further ones if these have not digested it.
/// `None` if there is no launch.
fn compare_launches(
    trace: &Trace,
    repeat: Repeat,
    reports: &mut [Report],
    run: &mut dyn FnMut(OneReplay) -> Result<Report, Error>,
) -> Option<LaunchOutputs> {
    let fill = Some(repeat.fill.unwrap_or(0));
    let unable = |problem: String| {
        Some(LaunchOutputs {
            problem: Some(problem),
            ..LaunchOutputs::default()
        })
    };
    if let Some(died) = reports.iter().find_map(|report| report.died.as_ref()) {
        return unable(format!("a replay {}", died.text));
    }
    if reports.iter().all(|report| report.launches == 0) {
        return None;
    }
    let mut further = Vec::new();
    if !has_launch_digests(trace) {
        for _ in 0..repeat.count {
            let launches = DigestedLaunches::All;
            let report = match run(OneReplay { fill, launches }) {
                Ok(report) => report,
                Err(error) => return unable(error.to_string()),
            };
            if let Some(died) = &report.died {
                return unable(format!("a replay that digested launches {}", died.text));
            }
            further.push(report);
        }
    }
    let alike = repeat.alike();
    let compared: &mut [Report] = match further.is_empty() {
        true => reports.get_mut(..alike)?,
        false => &mut further,
    };
    let addresses_differ = compared
        .iter()
        .any(|report| Some(&report.translated) != compared.first().map(|first| &first.translated));
    let values = compared
        .iter_mut()
        .map(|report| report.launch_values.take().unwrap_or_default());
    let values: Vec<_> = values.collect();
    let mut outputs = launches::compare(trace, &values);
    outputs.addresses_differ = addresses_differ;
    if let Some(first) = &mut outputs.first_differing {
        let launches = DigestedLaunches::One(first.call);
        let mut pieces = Vec::new();
        for _ in 0..values.len() {
            // A replay that fails leaves the ranges unknown.
            let report = run(OneReplay { fill, launches }).ok();
            let found = report.and_then(|report| report.launch_values);
            pieces.extend(found.map(|found| found.pieces));
        }
        launches::locate(first, &pieces);
    }
    Some(outputs)
}

/// What a divergence is about: the call, what differs, the parameter, the call that enqueued it,
/// and which of such divergences it is.
type Key<'a> = (u64, u8, Option<&'a str>, Option<u64>, u32);

/// What a replay got instead of the recorded value.
type Received<'a> = (&'a str, Option<&'a str>);

fn keyed(report: &Report) -> Vec<(Key<'_>, &Divergence)> {
    let mut seen: HashMap<Key<'_>, u32> = HashMap::new();
    let mut keyed = Vec::new();
    for divergence in &report.divergences {
        let what = divergence.what as u8;
        let parameter = divergence.parameter.as_deref();
        let key = (divergence.call, what, parameter, divergence.enqueued_by, 0);
        let before = seen.entry(key).or_default();
        keyed.push(((key.0, key.1, key.2, key.3, *before), divergence));
        *before += 1;
    }
    keyed
}

fn received(divergence: &Divergence) -> Received<'_> {
    (&divergence.received, divergence.received_hash.as_deref())
}

/// True if a report would list a divergence of that call.
fn shows(report: &Report, call: u64) -> bool {
    let before_end = report
        .died
        .as_ref()
        .is_none_or(|died| Some(call) < died.call);
    let is_whole = report.divergence_count == report.divergences.len() as u64;
    let last = report.divergences.last().map_or(0, |last| last.call);
    before_end && (is_whole || call < last)
}

/// Joins the reports of several replays; with `fill`, the last had another byte in new memory.
fn judge(mut reports: Vec<Report>, fill: Option<u8>) -> Report {
    let count = reports.len();
    let keys: Vec<_> = reports.iter().map(keyed).collect();
    let mut all: BTreeMap<Key<'_>, (usize, &Divergence)> = BTreeMap::new();
    for (number, keys) in keys.iter().enumerate() {
        for &(key, divergence) in keys {
            all.entry(key).or_insert((number, divergence));
        }
    }
    let received_in: Vec<HashMap<Key<'_>, Received<'_>>> = keys
        .iter()
        .map(|keys| {
            let received = keys.iter().map(|&(key, found)| (key, received(found)));
            received.collect()
        })
        .collect();
    let alike = if fill.is_some() {
        count.saturating_sub(1)
    } else {
        count
    };
    let mut divergences = Vec::new();
    let mut added = 0;
    for (key, (first, divergence)) in all {
        let shown: Vec<(usize, Option<&Received<'_>>)> = reports
            .iter()
            .zip(&received_in)
            .enumerate()
            .filter(|(_, (report, _))| shows(report, key.0))
            .map(|(number, (_, received))| (number, received.get(&key)))
            .collect();
        let same = || {
            shown
                .iter()
                .filter(|shown| shown.0 < alike)
                .map(|shown| shown.1)
        };
        let other = shown.iter().find(|shown| shown.0 >= alike);
        let differs = |received: Option<&Received<'_>>| same().any(|same| same != received);
        let mut divergence = divergence.clone();
        if divergence.verdict != Verdict::default() {
            // The replay itself knows the cause.
        } else if same().any(differs) {
            divergence.verdict = Verdict::Nondeterministic;
        } else if let Some((_, other)) = other
            && differs(*other)
            && let Some(byte) = fill
        {
            divergence.verdict = Verdict::UninitialisedRead;
            divergence.history.push(format!(
                "replay {count} filled new memory with {:#04x}, the others with {byte:#04x}",
                !byte
            ));
        }
        if first > 0 {
            added += 1;
            let line = format!("equal to the recording before replay {}", first + 1);
            divergence.history.push(line);
        }
        divergences.push(divergence);
    }
    let died = reports.iter().enumerate().find_map(|(number, report)| {
        let died = report.died.clone()?;
        Some((number, died))
    });
    let cause = reports.iter().find_map(|report| report.error_cause.clone());
    let mut report = match reports.is_empty() {
        true => Report::default(),
        false => reports.swap_remove(0),
    };
    divergences.truncate(Report::DIVERGENCES_KEPT);
    report.divergences = divergences;
    report.divergence_count += added;
    report.error_cause = cause;
    report.replays = count as u32;
    if let Some((number, mut died)) = died {
        died.text = format!("{} (replay {} of {count})", died.text, number + 1);
        report.died = Some(died);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Died, What};

    /// A report with divergences of these calls, by what was received.
    fn report(divergences: &[(u64, &str)]) -> Report {
        let divergences: Vec<_> = divergences
            .iter()
            .map(|&(call, received)| Divergence {
                call,
                function: "cuMemcpyDtoH_v2".into(),
                what: What::Bytes,
                parameter: Some("dstHost".into()),
                expected: "as recorded".into(),
                received: received.into(),
                verdict: Verdict::default(),
                received_hash: None,
                first_differing_byte: None,
                differing_bytes: None,
                enqueued_by: None,
                kernel: None,
                history: vec![],
            })
            .collect();
        Report {
            divergence_count: divergences.len() as u64,
            divergences,
            ..Report::default()
        }
    }

    fn verdicts(report: &Report) -> Vec<(u64, Verdict)> {
        let divergences = report.divergences.iter();
        divergences
            .map(|found| (found.call, found.verdict))
            .collect()
    }

    #[test]
    fn verdicts_follow_from_what_the_replays_got() {
        use Verdict::{Nondeterministic, NotReproduced, UninitialisedRead};
        type Replays<'a> = &'a [&'a [(u64, &'a str)]];
        type Row<'a> = (Replays<'a>, Option<u8>, &'a [(u64, Verdict)]);
        let table: [Row<'_>; 8] = [
            (&[&[], &[]], None, &[]),
            (&[&[(5, "a")], &[(5, "a")]], None, &[(5, NotReproduced)]),
            (&[&[(5, "a")], &[(5, "b")]], None, &[(5, Nondeterministic)]),
            // As recorded in one replay.
            (&[&[], &[(5, "b")]], None, &[(5, Nondeterministic)]),
            (
                &[&[(5, "a"), (7, "c")], &[(5, "b"), (7, "c")]],
                None,
                &[(5, Nondeterministic), (7, NotReproduced)],
            ),
            (
                &[&[(5, "a")], &[(5, "a")], &[(5, "b")]],
                Some(1),
                &[(5, UninitialisedRead)],
            ),
            (&[&[], &[], &[(5, "b")]], Some(1), &[(5, UninitialisedRead)]),
            (
                &[&[(5, "a")], &[(5, "c")], &[(5, "b"), (6, "x")]],
                Some(1),
                &[(5, Nondeterministic), (6, UninitialisedRead)],
            ),
        ];
        for (replays, fill, expected) in table {
            let joined = judge(replays.iter().copied().map(report).collect(), fill);
            assert_eq!(verdicts(&joined), expected, "{replays:?} {fill:?}");
            assert_eq!(joined.divergence_count, expected.len() as u64);
            assert_eq!(joined.replays as usize, replays.len());
        }
    }

    #[test]
    fn a_replay_that_did_not_come_so_far_says_nothing() {
        let died = |call| {
            Some(Died {
                signal: Some(11),
                hung: false,
                call: Some(call),
                function: None,
                text: "died".into(),
                threads: vec![],
                may_wait_for: vec![],
            })
        };
        for (call, verdict) in [(4, Verdict::NotReproduced), (6, Verdict::Nondeterministic)] {
            let second = Report {
                died: died(call),
                ..report(&[])
            };
            let joined = judge(vec![report(&[(5, "a")]), second], None);
            assert_eq!(verdicts(&joined), [(5, verdict)], "died in call {call}");
            assert_eq!(joined.died.unwrap().text, "died (replay 2 of 2)");
        }
        // Of the second replay only the first divergences are listed.
        let mut second = report(&[(3, "a")]);
        second.divergence_count = 9;
        let joined = judge(vec![report(&[(3, "a"), (5, "a")]), second], None);
        let expected = [(3, Verdict::NotReproduced), (5, Verdict::NotReproduced)];
        assert_eq!(verdicts(&joined), expected);
    }

    #[test]
    fn the_last_replay_has_another_byte() {
        let fills = |count, fill| {
            let repeat = Repeat {
                count,
                fill,
                compares_launches: true,
            };
            repeat.fills().collect::<Vec<_>>()
        };
        assert_eq!(fills(2, None), [None, None]);
        assert_eq!(fills(1, Some(1)), [Some(1)]);
        assert_eq!(fills(3, Some(0xa5)), [Some(0xa5), Some(0xa5), Some(0x5a)]);
    }
}
