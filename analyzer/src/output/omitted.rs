//! What is not among the printed findings, by reason.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::finding::Class;

/// How many findings were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Omitted {
    /// By class: not misuse.
    pub hidden: BTreeMap<Class, u64>,
    /// Of other rules or calls than asked for.
    pub not_chosen: u64,
    /// Matched by a suppression.
    pub suppressed: u64,
    /// In the baseline.
    pub known: u64,
    /// Less certain than asked for.
    pub uncertain: u64,
    /// With the key of others, beyond the limit.
    pub repeated: u64,
    /// Calls that failed only because of one that a finding is about.
    pub consequences: u64,
}

impl Omitted {
    /// `3 probes, 2 suppressed`; empty if nothing was left out.
    pub fn text(&self) -> String {
        let classes = self.hidden.iter().map(|(class, count)| {
            (
                format!("of class {} (--all shows them)", class.word()),
                *count,
            )
        });
        let others = [
            ("of other rules or calls".to_owned(), self.not_chosen),
            ("suppressed".to_owned(), self.suppressed),
            ("in the baseline".to_owned(), self.known),
            ("below --confidence".to_owned(), self.uncertain),
            ("repeated".to_owned(), self.repeated),
            (
                "as consequences (failed calls)".to_owned(),
                self.consequences,
            ),
        ];
        let parts = classes.chain(others).filter(|(_, count)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        parts.join(", ")
    }
}
