//! What a replay found, in a form that can be written as JSON.

mod died;
mod exchanges;
mod launch_outputs;
mod pending;
mod put_during_wait;
pub(crate) mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::process::lesson::Misplaced;
use crate::process::strategy::PlacementStrategy;
pub use crate::report::died::{CurrentCall, Died, PendingCall, PendingStream};
pub(crate) use crate::report::exchanges::OneExchange;
pub use crate::report::exchanges::{ExchangeCounts, LeftOutExchange, MissingOutput};
pub use crate::report::launch_outputs::{
    DifferingRange, LaunchDifference, LaunchMemory, LaunchOutputs, LaunchValues, MemoryPieces,
};
pub use crate::report::put_during_wait::PutDuringWait;

/// The outcome of a replay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Calls in the trace.
    pub calls: u64,
    /// Calls given to the driver.
    pub calls_replayed: u64,
    /// Calls that the replay answered itself because the memory is placed, by name.
    pub calls_emulated: BTreeMap<String, u64>,
    /// Calls that were re-issued without comparing results, because the selection leaves them out.
    pub calls_not_compared: u64,
    /// Calls that were not re-issued, by reason and name.
    pub skipped: Vec<Skipped>,
    /// Differences from the recording, in order; at most [`Report::DIVERGENCES_KEPT`].
    pub divergences: Vec<Divergence>,
    /// All differences.
    pub divergence_count: u64,
    /// What follows from calls that were not re-issued, by cause: data that is missing, and
    /// differences that may follow, which are no divergences.
    #[serde(default)]
    pub consequences: Vec<Consequence>,
    /// Copies whose recorded bytes a host function of the program may have changed, and that
    /// differ; at most [`Report::DIVERGENCES_KEPT`]. They are no divergences: a replay does not run
    /// it.
    #[serde(default)]
    pub host_changed: Vec<Divergence>,
    /// All such copies.
    #[serde(default)]
    pub host_changed_count: u64,
    /// Bytes from the device, and digests of its memory, that differ while copies read other bytes
    /// than recorded; at most [`Report::DIVERGENCES_KEPT`]. They are no divergences.
    #[serde(default)]
    pub changed_input: Vec<Divergence>,
    /// All such differences.
    #[serde(default)]
    pub changed_input_count: u64,
    /// Copies that were given other bytes than recorded, in order.
    #[serde(default)]
    pub replaced: Vec<ReplacedInput>,
    /// Copies whose bytes were saved, in order.
    #[serde(default)]
    pub saved: Vec<SavedOutput>,
    /// How much memory is at its recorded address.
    pub placed: Placed,
    /// Memory whose address differs from the recorded one.
    pub translated: Vec<Translated>,
    /// Words in copied host bytes and kernel parameters that look like addresses of memory listed
    /// in `translated` and were not replaced.
    pub stale_addresses: u64,
    /// The calls that carry them; at most [`Report::STALE_KEPT`].
    pub stale: Vec<Stale>,
    /// Kernel parameters that were taken for the handle of a texture or surface object, because
    /// they are equal to it, and were replaced by its handle in the replay.
    #[serde(default)]
    pub assumed_handle_count: u64,
    /// The first of them; at most [`Report::STALE_KEPT`].
    #[serde(default)]
    pub assumed_handles: Vec<AssumedHandle>,
    /// How this machine differs from the recorded one.
    pub machine: Vec<Difference>,
    /// What else the reader must know, e.g. options that could not be passed on.
    pub notes: BTreeMap<String, u64>,
    /// Launches of kernels and graphs.
    #[serde(default)]
    pub launches: u64,
    /// Result codes of the driver that were compared.
    #[serde(default)]
    pub results_compared: u64,
    /// Copies whose returned bytes were compared.
    #[serde(default)]
    pub copies_compared: u64,
    /// Bytes that the device returned and that were equal.
    pub bytes_compared: u64,
    /// Those of them of which the trace has only a hash.
    #[serde(default)]
    pub bytes_compared_by_hash: u64,
    /// Bytes that were returned and could not be compared: left out of the trace, or depending on
    /// what was.
    pub bytes_not_compared: u64,
    /// Those of them that differ, and may depend on calls that the recorder has left out.
    #[serde(default)]
    pub bytes_unknown: u64,
    /// Calls that the recorder has left out because it was paused, before calls of the trace.
    #[serde(default)]
    pub calls_left_out: u64,
    /// Digests of device memory that the recorder kept.
    #[serde(default)]
    pub digests: DigestCounts,
    /// Bytes of pinned and managed memory, written by the program itself or by kernels, that were
    /// put where they had been.
    pub host_bytes_put: u64,
    /// Flags among them that were put while a call waited for the device; at most
    /// [`PutDuringWait::KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub put_during_waits: Vec<PutDuringWait>,
    /// The first launch of each kernel that was seen to wait for bytes of host memory, which the
    /// next replay of the trace then knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_launches: Vec<u64>,
    /// Bytes of memory that notes of a cut trace hold in place of the calls that computed them, and
    /// that were put there.
    #[serde(default)]
    pub memory_bytes_put: u64,
    /// Work that exchanged data with other processes, which are not here.
    #[serde(default)]
    pub exchanges: ExchangeCounts,
    /// With [`Options::sync_each`](crate::Options::sync_each): the first launch whose work failed.
    #[serde(default)]
    pub error_cause: Option<ErrorCause>,
    /// If the replay hung: work that the recording does not show to be complete before the call
    /// that hung, by stream.
    #[serde(default)]
    pub pending: Vec<PendingStream>,
    /// The replaying process died.
    pub died: Option<Died>,
    /// How the replaying process ended, if that was not as it should after its report was complete.
    /// It is no divergence: the program's calls were over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<String>,
    /// Whether address randomisation was on in the replaying process.
    pub randomised: bool,
    /// Child processes that were tried before this one and did not fit.
    pub attempts: u32,
    /// In those of them where the driver was to place memory: what it placed elsewhere first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misplaced: Vec<Misplaced>,
    /// How many replays the verdicts rest on; 0 for a single one.
    #[serde(default)]
    pub replays: u32,
    /// With several replays: what launches write, compared between them.
    #[serde(default)]
    pub launch_outputs: Option<LaunchOutputs>,
    /// What the launches of this one replay write, if it digested them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_values: Option<LaunchValues>,
    /// From the first call to the last.
    pub wall_seconds: f64,
    /// By name, if requested.
    pub timing: BTreeMap<String, Timing>,
    /// From the first to the last measured call, if requested.
    #[serde(default)]
    pub span: Option<Span>,
}

/// Something that was not re-issued, and what follows from it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Consequence {
    /// What was not re-issued, e.g. `private memory of the driver (libnvoptix.so.1)`, or is not known.
    pub cause: String,
    /// Index of the first call that was left out because of it, or at which it is not known.
    pub first: u64,
    /// Calls that were left out because of it; 0 if it is something that is not known. [`Report::skipped`](crate::Report::skipped) counts
    /// them as well.
    pub left_out: u64,
    /// Those of them that copied, filled or computed data, which is missing.
    pub lost: u64,
    /// Later differences that may follow from it. They are no divergences.
    pub differences: u64,
    /// The first of them.
    pub first_difference: Option<Divergence>,
}

impl Report {
    /// How many calls that carry stale addresses are listed.
    pub const STALE_KEPT: usize = 1000;

    /// How many divergences are kept with their text.
    pub const DIVERGENCES_KEPT: usize = 100;

    /// True if all that was compared was equal, no data is missing because a call was left out, and
    /// the process lived.
    pub fn agrees(&self) -> bool {
        self.agrees_but_for(&[])
    }

    /// As above, but for divergences with one of these verdicts. A divergence that is not listed has
    /// no verdict.
    pub fn agrees_but_for(&self, allowed: &[Verdict]) -> bool {
        let is_allowed = |divergence: &Divergence| allowed.contains(&divergence.verdict);
        self.divergence_count == self.divergences.len() as u64
            && self.divergences.iter().all(is_allowed)
            && (self.consequences.is_empty() || allowed.contains(&Verdict::Consequence))
            && self.died.is_none()
    }

    /// How many differences may follow from calls that were not re-issued.
    pub fn following_differences(&self) -> u64 {
        let causes = self.consequences.iter();
        causes.map(|cause| cause.differences).sum()
    }

    /// How many calls were not re-issued.
    pub fn calls_skipped(&self) -> u64 {
        self.skipped.iter().map(|skipped| skipped.count).sum()
    }

    pub(crate) fn skip(&mut self, function: &str, reason: &str, index: u64) {
        tally(&mut self.skipped, function, reason, index);
    }

    /// Sorts what threads that ran at once have entered.
    pub(crate) fn in_call_order(&mut self) {
        self.divergences.sort_by_key(|divergence| divergence.call);
        self.host_changed.sort_by_key(|changed| changed.call);
        self.changed_input.sort_by_key(|changed| changed.call);
        self.replaced.sort_by_key(|input| input.call);
        self.saved.sort_by_key(|output| output.call);
        self.skipped.sort_by_key(|skipped| skipped.first);
        self.translated.sort_by_key(|translated| translated.call);
        self.stale.sort_by_key(|stale| stale.call);
        self.assumed_handles.sort_by_key(|assumed| assumed.call);
    }

    pub(crate) fn stale(&mut self, stale: Stale) {
        self.stale_addresses += stale.words;
        if self.stale.len() < Self::STALE_KEPT {
            self.stale.push(stale);
        }
    }

    pub(crate) fn assume(&mut self, assumed: AssumedHandle) {
        self.assumed_handle_count += 1;
        if self.assumed_handles.len() < Self::STALE_KEPT {
            self.assumed_handles.push(assumed);
        }
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        *self.notes.entry(text.into()).or_default() += 1;
    }

    /// The program has, or may have, called a function that the recorder did not know.
    pub(crate) fn unknown(&mut self, name: &str) {
        self.note(format!(
            "calls of {} are not in the trace: the recorder did not know the function",
            name.escape_debug()
        ));
    }

    /// Adds a difference to the list of its verdict.
    pub(crate) fn diverge(&mut self, mut divergence: Divergence) {
        // What comes from the device may depend on the bytes that it was given. Results may not:
        // an error that the recording does not have is one.
        if divergence.verdict == Verdict::NotReproduced
            && matches!(divergence.what, What::Bytes | What::Digest)
            && self.replaced.iter().any(|input| input.differs)
        {
            divergence.verdict = Verdict::ChangedInput;
        }
        let (count, list) = match divergence.verdict {
            Verdict::HostChanged => (&mut self.host_changed_count, &mut self.host_changed),
            Verdict::ChangedInput => (&mut self.changed_input_count, &mut self.changed_input),
            _ => (&mut self.divergence_count, &mut self.divergences),
        };
        *count += 1;
        if list.len() < Self::DIVERGENCES_KEPT {
            list.push(divergence);
        }
    }
}

/// Counts one more call of a function for a reason.
pub(crate) fn tally(list: &mut Vec<Skipped>, function: &str, reason: &str, index: u64) {
    let known = list
        .iter_mut()
        .find(|entry| entry.function == function && entry.reason == reason);
    match known {
        Some(entry) => {
            entry.count += 1;
            entry.first = entry.first.min(index);
        }
        None => list.push(Skipped {
            function: function.to_owned(),
            reason: reason.to_owned(),
            count: 1,
            first: index,
        }),
    }
}

/// Calls of one function that were not re-issued for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The exported name.
    pub function: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// Index of the first.
    pub first: u64,
}

/// What differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The result code.
    Result,
    /// A value that the call gave back.
    OutParameter,
    /// Bytes that came from the device.
    Bytes,
    /// A string.
    Text,
    /// The digest of device memory.
    Digest,
}

/// Why something differs from the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The replay did not reproduce something. Also where nothing shows another cause, for example
    /// because the trace was replayed once.
    #[default]
    NotReproduced,
    /// It differs between replays of the same calls.
    Nondeterministic,
    /// It depends on bytes that no call and no kernel had written.
    UninitialisedRead,
    /// A host function of the program may have changed the recorded bytes after they had arrived.
    /// Such differences are in [`Report::host_changed`].
    HostChanged,
    /// It may follow from a call that was not re-issued. Such differences are counted in
    /// [`Report::consequences`].
    Consequence,
    /// It may depend on bytes that the user has given in place of recorded ones. Such differences
    /// are in [`Report::changed_input`].
    ChangedInput,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NotReproduced,
        Self::Nondeterministic,
        Self::UninitialisedRead,
        Self::Consequence,
        Self::HostChanged,
        Self::ChangedInput,
    ];

    /// As reports and options have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotReproduced => "not-reproduced",
            Self::Nondeterministic => "nondeterministic",
            Self::UninitialisedRead => "uninitialised-read",
            Self::Consequence => "consequence",
            Self::HostChanged => "host-changed",
            Self::ChangedInput => "changed-input",
        }
    }
}

/// A copy that was given other bytes than recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedInput {
    /// The copy.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// How many bytes were given.
    pub bytes: u64,
    /// They are not the recorded ones, or the trace does not have those.
    pub differs: bool,
    /// Why the recorded ones were used.
    pub error: Option<String>,
}

/// A copy whose bytes were saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedOutput {
    /// The copy.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// How many bytes it brought.
    pub bytes: u64,
    /// Why they could not be saved.
    pub error: Option<String>,
}

/// A difference from the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Divergence {
    /// The call.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// What differs.
    pub what: What,
    /// The parameter, if one differs.
    pub parameter: Option<String>,
    /// What the recording says.
    pub expected: String,
    /// What the replay got.
    pub received: String,
    /// Why, as far as the replays show.
    #[serde(default)]
    pub verdict: Verdict,
    /// BLAKE3 of the bytes that the replay got, where `received` shows a part of them.
    #[serde(default)]
    pub received_hash: Option<String>,
    /// Offset of the first byte that differs.
    pub first_differing_byte: Option<u64>,
    /// How many bytes differ.
    pub differing_bytes: Option<u64>,
    /// For bytes that a copy enqueued earlier brought: that copy's call index.
    pub enqueued_by: Option<u64>,
    /// For a digest behind a launch: the kernel's name in its image, if known.
    #[serde(default)]
    pub kernel: Option<String>,
    /// The objects that the call names: where they come from, where they ended.
    pub history: Vec<String>,
}

/// Digests of device memory that the recorder kept; see `record --digests`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestCounts {
    /// Digests of the calls that were replayed, one for each range of memory.
    pub recorded: u64,
    /// Those that were equal.
    pub equal: u64,
    /// Bytes that these cover, the same memory as often as it was digested.
    pub bytes: u64,
    /// Those that differed. Of a range, only the first that differs is among the divergences.
    pub differing: u64,
    /// The call of the first that differed.
    pub first_differing: Option<u64>,
    /// Those that differed while memory was at other addresses than recorded, so that pointers in
    /// it differ: they are no divergences.
    pub unclear: u64,
    /// Those that were not compared; the notes say why.
    pub not_compared: u64,
}

/// A launch whose work failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCause {
    /// The launch.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// The kernel's name in its image, if known.
    pub kernel: Option<String>,
    /// What waiting for it returned.
    pub error: String,
}

/// How much memory is at its recorded address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// How.
    #[serde(default)]
    pub strategy: PlacementStrategy,
    /// Device and pinned allocations and registrations re-made. Managed memory and that of graphs
    /// counts only where the driver places them in the recorded address space: they cannot be
    /// placed otherwise.
    pub allocations: u64,
    /// Of these, at the recorded address.
    pub at_recorded_address: u64,
}

/// Memory at another address than recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Translated {
    /// The call that made or found it.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// Recorded address.
    pub recorded: u64,
    /// Address in the replay.
    pub replayed: u64,
    /// Bytes.
    pub length: u64,
    /// Why it is not at its recorded address.
    pub reason: String,
}

/// A call whose bytes name memory that is at another address than recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// The call.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// How many words look like such addresses.
    pub words: u64,
    /// The first of them, as recorded.
    pub address: u64,
    /// What lay there.
    pub memory: String,
}

/// A kernel parameter that was replaced on the assumption that it is an object's handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssumedHandle {
    /// The call with the parameter.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// Where the parameter begins, in bytes.
    pub offset: u32,
    /// The recorded handle.
    pub recorded: u64,
    /// The handle in the replay.
    pub replayed: u64,
    /// The object.
    pub object: String,
}

/// A difference between the recorded machine and this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What, e.g. `driver version`.
    pub what: String,
    /// In the trace.
    pub recorded: String,
    /// Here.
    pub here: String,
    /// Whether the replay is refused because of it unless forced.
    pub fatal: bool,
    /// Why it matters, if that is not obvious.
    #[serde(default)]
    pub why: String,
}

impl Difference {
    /// In one line.
    pub fn text(&self) -> String {
        let why = match self.why.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        format!(
            "{}: recorded {}, here {}{why}",
            self.what, self.recorded, self.here
        )
    }
}

/// How long the calls of one function took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// How many.
    pub calls: u64,
    /// In the replay.
    pub nanoseconds: u64,
    /// In the recording; 0 where its clock is a mere counter.
    pub recorded_nanoseconds: u64,
}

/// From when the first measured call was taken up until the last was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Index of the first.
    pub first: u64,
    /// Index of the last.
    pub last: u64,
    /// How many were measured.
    pub calls: u64,
    /// From the beginning of the first to the end of the last, with all that lies between.
    pub nanoseconds: u64,
    /// Of these, how long the measured calls were in the driver, added up; with threads at once it
    /// may be more. `None` if single calls were not measured.
    pub driver_nanoseconds: Option<u64>,
    /// The same span in the recording, in which the program had its time too; 0 where its clock is
    /// a mere counter.
    pub recorded_nanoseconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_calls_are_counted_by_name_and_reason() {
        let mut report = Report::default();
        for (function, reason, index) in [
            ("cuGraphLaunch", "not yet", 4),
            ("cuGraphLaunch", "not yet", 9),
            ("cuArrayCreate", "not yet", 5),
        ] {
            report.skip(function, reason, index);
        }
        let counts: Vec<_> = report
            .skipped
            .iter()
            .map(|s| (s.function.as_str(), s.count, s.first))
            .collect();
        assert_eq!(counts, [("cuGraphLaunch", 2, 4), ("cuArrayCreate", 1, 5)]);
        assert_eq!(report.calls_skipped(), 3);
        assert!(report.agrees(), "what was skipped is no difference");
    }

    #[test]
    fn a_report_survives_json() {
        let mut report = Report {
            calls: 7,
            died: None,
            ..Report::default()
        };
        report.diverge(Divergence {
            call: 3,
            function: "cuInit".into(),
            what: What::OutParameter,
            parameter: None,
            expected: "a".into(),
            received: "b".into(),
            verdict: Verdict::UninitialisedRead,
            received_hash: None,
            first_differing_byte: Some(2),
            differing_bytes: None,
            enqueued_by: None,
            kernel: None,
            history: vec![],
        });
        let text = serde_json::to_string(&report).unwrap();
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        assert!(text.contains("\"out-parameter\"") && !back.agrees());
        for verdict in Verdict::ALL {
            let json = serde_json::to_string(&verdict).unwrap();
            assert_eq!(json, format!("\"{}\"", verdict.word()));
            let allowed = back.agrees_but_for(&[Verdict::Nondeterministic, verdict]);
            assert_eq!(allowed, verdict == Verdict::UninitialisedRead, "{json}");
        }
        let mut changed = report.divergences[0].clone();
        changed.verdict = Verdict::HostChanged;
        report.diverge(changed);
        assert_eq!((report.divergence_count, report.host_changed_count), (1, 1));
        assert!(report.agrees_but_for(&[Verdict::UninitialisedRead]));
        // With other inputs, other bytes are no divergence; another result is.
        for (differs, what, count) in [
            (false, What::Bytes, 2),
            (true, What::Bytes, 2),
            (true, What::Digest, 2),
            (true, What::Result, 3),
        ] {
            report.replaced = vec![ReplacedInput {
                call: 1,
                function: "cuMemcpyHtoD_v2".into(),
                bytes: 4,
                differs,
                error: None,
            }];
            let mut other = report.divergences[0].clone();
            (other.what, other.verdict) = (what, Verdict::NotReproduced);
            report.diverge(other);
            assert_eq!(report.divergence_count, count, "{what:?}");
        }
        assert_eq!(report.changed_input_count, 2);
        report.divergences.truncate(1);
        report.divergence_count = 1;
        report.divergence_count += 1;
        assert!(!report.agrees_but_for(&Verdict::ALL), "one is not listed");
    }
}
