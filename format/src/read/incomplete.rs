//! What a trace lacks because its recorder could not write it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::{CONTROL_INCOMPLETE, CONTROL_LENGTH, CONTROL_POSITION, Incomplete};
use crate::layout::{chunk_kind, note_kind};
use crate::read::note::text;
use crate::read::record::records;
use crate::read::trace::Trace;

/// Since this minor version, the control chunk says what is missing.
const SINCE_MINOR: u32 = 8;
/// Meta entries of a packed trace: `calls`, `payloads`, both or `others`, and the reason.
const LACKS: &str = "incomplete";
const WHY: &str = "incomplete.why";

/// Whether a meta entry of that name is about what is missing.
pub(crate) fn is_meta(key: &str) -> bool {
    [LACKS, WHY].contains(&key)
}

/// That a recording lacks something, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The recording ended early: calls that the program made later are missing.
    pub lacks_calls: bool,
    /// Payloads are missing, which the policies would have kept. If neither is, only call stacks,
    /// markers or facts about program and machine are.
    pub lacks_payloads: bool,
    /// Why, for people.
    pub why: String,
}

impl Trace {
    /// What the recorder could not write; `None` for a trace that has everything.
    pub fn shortfall(&self) -> Option<Shortfall> {
        if let Some(lacks) = self.meta_value(LACKS) {
            return Some(Shortfall {
                lacks_calls: lacks.split(' ').any(|word| word == Shortfall::CALLS),
                lacks_payloads: lacks.split(' ').any(|word| word == Shortfall::PAYLOADS),
                why: self.meta_value(WHY).unwrap_or("unknown reason").to_owned(),
            });
        }
        if self.source.is_packed() {
            return None;
        }
        let known = self.stored_shortfall().map(|incomplete| Shortfall {
            lacks_calls: incomplete.lacks_calls,
            lacks_payloads: incomplete.lacks_payloads,
            why: match incomplete.error {
                _ if incomplete.is_limited => {
                    "the trace is as long as --max-size allows".to_owned()
                }
                0 => "the trace could not grow".to_owned(),
                error => {
                    let error = io::Error::from_raw_os_error(error.cast_signed());
                    format!("the trace could not grow: {error}")
                }
            },
        });
        known.or_else(|| self.stopped_note())
    }

    /// True if all calls of the program are here: what is missing at the end, the program left out.
    pub fn has_all_calls(&self) -> bool {
        let lacks_calls = self
            .shortfall()
            .is_some_and(|shortfall| shortfall.lacks_calls);
        !lacks_calls && !self.is_still_recorded()
    }

    fn stored_shortfall(&self) -> Option<Incomplete> {
        let place = CONTROL_POSITION as usize;
        let head = self.source.head_at(place)?;
        let is_inside = place + CONTROL_LENGTH <= self.source.length;
        if self.head().minor < SINCE_MINOR || head.kind != chunk_kind::CONTROL || !is_inside {
            return None;
        }
        let word = self.source.address(place + CONTROL_INCOMPLETE);
        // SAFETY: within the map and the file, and aligned, since maps begin with a page. The
        // recorder uses it as an atomic as well.
        let word = unsafe { &*word.cast::<AtomicU64>() }.load(Ordering::Acquire);
        Incomplete::from_word(word)
    }

    /// What earlier recorders wrote last, if they had room for it.
    fn stopped_note(&self) -> Option<Shortfall> {
        let last_of_threads = self.threads.iter().filter_map(|chunks| chunks.last());
        let mut records = last_of_threads.flat_map(|&chunk| records(self.body(chunk)));
        let (_, _, record) =
            records.find(|(_, head, _)| head.is_note() && head.function == note_kind::STOPPED)?;
        Some(Shortfall {
            lacks_calls: true,
            lacks_payloads: false,
            why: text(record),
        })
    }
}

impl Shortfall {
    const CALLS: &str = "calls";
    const PAYLOADS: &str = "payloads";
    const OTHERS: &str = "others";

    /// As the meta entries of a packed trace.
    pub(crate) fn meta(&self) -> [(String, String); 2] {
        let lacks = match (self.lacks_calls, self.lacks_payloads) {
            (true, false) => Self::CALLS.to_owned(),
            (false, true) => Self::PAYLOADS.to_owned(),
            (true, true) => format!("{} {}", Self::CALLS, Self::PAYLOADS),
            (false, false) => Self::OTHERS.to_owned(),
        };
        [
            (LACKS.to_owned(), lacks),
            (WHY.to_owned(), self.why.clone()),
        ]
    }
}
