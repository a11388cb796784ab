//! Compares what the launches of two traces write.

use std::collections::{BTreeMap, BTreeSet};

use cutape_diff::Aligned;
use cutape_render::quantity::count;
use cutape_replay::{LaunchMemory, LaunchValues};

use crate::compared::{Compared, Replays, Side};
use crate::finding::{changed_by, finding};
use crate::kernels::{Kernels, changed};
use crate::launches::{Counterparts, Judged, Launch, judge};
use crate::names::{Kernel, Names};
use crate::read::{Read, read};
use crate::report::{IntroducedBy, NotReproducible, Report, Verdict};
use crate::run::{Ran, run};

/// How often launches are read, if those read before are dismissed; each time four times as many.
const ROUNDS: u32 = 6;

/// Compares two traces.
///
/// # Errors
/// A trace cannot be replayed, as a message.
pub fn compare(compared: &Compared<'_>, replays: &mut dyn Replays) -> Result<Report, String> {
    let counterparts: Counterparts = compared.aligned.pairs.iter().copied().collect();
    let mut report = Report::default();
    let (judged, varying) = by_digests(compared, &counterparts, replays, &mut report)?;
    let names = Names::of(compared, &judged, &varying);
    if let Some(&first) = varying.first() {
        report.not_reproducible = Some(NotReproducible {
            launches: varying.len() as u64,
            first: names.facts(Side::A, first, None),
        });
    }
    let candidates = judged.differing.into_iter();
    let candidates = candidates.filter(|launch| !varying.contains(&launch.calls.0));
    let mut search = Search {
        compared,
        counterparts: &counterparts,
        candidates: candidates.collect(),
        read: BTreeMap::new(),
        names: &names,
    };
    report.differing = search.candidates.len() as u64;
    let first = search.first(replays, &mut report);
    let kernels = changed(compared, &counterparts);
    let ran = search.run(replays, &kernels, first, &mut report);
    if let Some(first) = first.and_then(|first| search.candidates.get(first)) {
        let read = search.read.get(&first.calls.0);
        report.first = Some(finding(compared, (first, read), &names, &ran));
    }
    report.kernels = search.introduced(&ran);
    let introduced = report.kernels.iter().filter(|by| !by.was_run);
    report.introduced = introduced.map(|by| by.launches).sum();
    let is_found = report.first.is_some() || report.unread > 0;
    report.differs = is_found || report.only != [0, 0];
    report.left_out.sort();
    report.left_out.dedup();
    Ok(report)
}

/// Compares digests: what differs between A and B, and the launches that differ between two replays
/// of A.
fn by_digests(
    compared: &Compared<'_>,
    counterparts: &Counterparts,
    replays: &mut dyn Replays,
    report: &mut Report,
) -> Result<(Judged, BTreeSet<u64>), String> {
    let mut values = |side, name: &str| {
        let replay = replays.launches(side)?;
        if let Some(died) = &replay.died {
            return Err(format!("the replay of {name} {}", died.text));
        }
        if replay.divergence_count > 0 && (side == Side::A || compared.image.is_none()) {
            let divergences = count(replay.divergence_count, "divergence");
            report.left_out.push(format!(
                "the replay of {name} differs from its recording ({divergences}): `cutape replay` shows it"
            ));
        }
        Ok(replay.launch_values.unwrap_or_default())
    };
    let (a, b) = (values(Side::A, "A")?, values(Side::B, "B")?);
    let again = values(Side::A, "A")?;
    let judged = judge(&a.memory, &b.memory, counterparts, compared.aligned);
    let varying = varying(&a.memory, &again.memory);
    report.launches = judged.compared;
    report.only = judged.only;
    let reasons = |values: LaunchValues| values.not_digested;
    report.not_compared = [reasons(a), reasons(b)];
    if judged.incomplete > 0 {
        let why = "their digests were not complete".to_owned();
        let [in_a, _] = &mut report.not_compared;
        in_a.insert(why, judged.incomplete);
    }
    Ok((judged, varying))
}

/// The launches that write something else in two replays of one trace.
fn varying(one: &[LaunchMemory], other: &[LaunchMemory]) -> BTreeSet<u64> {
    let calls = one.iter().flat_map(|memory| [memory.call, memory.made]);
    let same = calls.map(|call| (call, call)).collect();
    let judged = judge(one, other, &same, &Aligned::default());
    judged
        .differing
        .iter()
        .map(|launch| launch.calls.0)
        .collect()
}

/// The search for what is reported.
struct Search<'s> {
    compared: &'s Compared<'s>,
    counterparts: &'s Counterparts,
    /// Launches that differ by their digests.
    candidates: Vec<Launch>,
    /// Those that were read, by call of A.
    read: BTreeMap<u64, Read>,
    names: &'s Names,
}

impl Search<'_> {
    /// Reads launches until one is found that differs: its position.
    fn first(&mut self, replays: &mut dyn Replays, report: &mut Report) -> Option<usize> {
        let mut wanted = self.representatives();
        for round in 1..=ROUNDS {
            self.read_some(&wanted, replays, report);
            let is_dismissed =
                |launch: &Launch| matches!(self.read.get(&launch.calls.0), Some(Read::Equal));
            let first = self
                .candidates
                .iter()
                .position(|launch| !is_dismissed(launch));
            let is_read = |at: usize| {
                let launch = self.candidates.get(at);
                launch.is_some_and(|launch| self.read.contains_key(&launch.calls.0))
            };
            match first {
                Some(first) if !is_read(first) => {
                    let unread = (first..self.candidates.len()).filter(|&at| !is_read(at));
                    let most = self.compared.most.max(1).saturating_mul(4usize.pow(round));
                    wanted = unread.take(most).collect();
                }
                found => {
                    report.dismissed = self.dismissed();
                    return found;
                }
            }
        }
        report.dismissed = self.dismissed();
        report.unread = (self.candidates.len() - self.read.len()) as u64;
        None
    }

    fn dismissed(&self) -> Vec<u64> {
        let equal = self
            .read
            .iter()
            .filter(|(_, read)| matches!(read, Read::Equal));
        equal.map(|(&call, _)| call).collect()
    }

    /// The first candidate, and the first launch with equal inputs of each kernel.
    fn representatives(&self) -> Vec<usize> {
        let mut kernels = BTreeSet::new();
        let mut chosen = Vec::new();
        for (at, launch) in self.candidates.iter().enumerate() {
            let is_new =
                launch.is_introduced() && kernels.insert(self.names.kernel(launch.calls.0));
            if (at == 0 || is_new) && chosen.len() < self.compared.most.max(1) {
                chosen.push(at);
            }
        }
        chosen
    }

    fn read_some(&mut self, wanted: &[usize], replays: &mut dyn Replays, report: &mut Report) {
        let launches = wanted.iter().filter_map(|&at| self.candidates.get(at));
        let launches: Vec<&Launch> = launches.collect();
        if launches.is_empty() {
            return;
        }
        match read(
            self.compared,
            self.counterparts,
            (&launches, self.names),
            replays,
            report,
        ) {
            Ok(read) => self.read.extend(read),
            Err(why) => {
                report.left_out.push(format!("contents of memory: {why}"));
                let calls = launches.iter().map(|launch| launch.calls.0);
                self.read
                    .extend(calls.map(|call| (call, Read::Failed(why.clone()))));
            }
        }
        for side in ["a", "b"] {
            // One that was not made is not there.
            let _ = std::fs::remove_file(self.compared.folder.join(side));
        }
    }

    /// Whether the inputs of a candidate are equal, as far as is known.
    fn has_equal_inputs(&self, launch: &Launch) -> bool {
        match self.read.get(&launch.calls.0) {
            Some(read) => read.verdict(launch) == Some(Verdict::Introduced),
            None => launch.is_introduced(),
        }
    }

    /// Runs B's kernels on the inputs of launches of A that have others in B: of each kernel with
    /// other code one, beginning with the first launch that differs.
    fn run(
        &self,
        replays: &mut dyn Replays,
        kernels: &Kernels,
        first: Option<usize>,
        report: &mut Report,
    ) -> Ran {
        let introduced = self
            .candidates
            .iter()
            .filter(|launch| self.has_equal_inputs(launch));
        let introduced = introduced.filter_map(|launch| self.names.kernel(launch.calls.0));
        let mut known: BTreeSet<&Kernel> = introduced.collect();
        let mut wanted = Vec::new();
        let order = first.into_iter().chain(0..self.candidates.len());
        for launch in order.filter_map(|at| self.candidates.get(at)) {
            let call = launch.calls.0;
            if let Some(name) = self.names.kernel(call)
                && !self.has_equal_inputs(launch)
                && !matches!(self.read.get(&call), Some(Read::Equal))
                && let Some(kernel) = kernels.get(name)
                && known.insert(name)
            {
                wanted.push((call, kernel.clone()));
            }
        }
        let rest = wanted.len().saturating_sub(self.compared.most);
        wanted.truncate(self.compared.most);
        if rest > 0 {
            let more = count(rest as u64, "kernel");
            let why = format!("{more} of B with other code, not run on A's inputs (--most)");
            report.left_out.push(why);
        }
        let ran = run(
            replays,
            wanted,
            (&self.compared.tolerance, self.names),
            report,
        );
        let same = ran.iter().filter(|(_, changed)| changed.is_none());
        let same = same.map(|(&call, _)| self.names.shown_kernel(call));
        report.same_on_inputs = same.collect();
        ran
    }

    /// The kernels that have introduced differences, that of the first such launch first.
    fn introduced(&self, ran: &Ran) -> Vec<IntroducedBy> {
        // Of a kernel whose first launch with equal digests does not count, none does.
        let refuted = self
            .candidates
            .iter()
            .filter(|launch| launch.is_introduced() && !self.has_equal_inputs(launch));
        let refuted = refuted.map(|launch| self.names.kernel(launch.calls.0));
        let refuted: BTreeSet<Option<&Kernel>> = refuted.collect();
        let mut kernels: Vec<(Option<&Kernel>, IntroducedBy)> = Vec::new();
        for launch in self
            .candidates
            .iter()
            .filter(|launch| self.has_equal_inputs(launch))
        {
            let call = launch.calls.0;
            let read = self.read.get(&call);
            let name = self.names.kernel(call);
            if read.is_none() && refuted.contains(&name) {
                continue;
            }
            if let Some((_, known)) = kernels.iter_mut().find(|(known, _)| *known == name) {
                known.launches += 1;
                continue;
            }
            let by = IntroducedBy {
                kernel: self.names.shown_kernel(call),
                launches: 1,
                first: call,
                was_run: false,
                changed: read.and_then(|read| changed_by(call, read, self.names)),
            };
            kernels.push((name, by));
        }
        let mut kernels: Vec<IntroducedBy> = kernels.into_iter().map(|(_, by)| by).collect();
        for (&call, changed) in ran {
            kernels.extend(changed.clone().map(|changed| IntroducedBy {
                kernel: self.names.shown_kernel(call),
                launches: 1,
                first: call,
                was_run: true,
                changed: Some(changed),
            }));
        }
        kernels
    }
}
