//! When device memory is digested.

/// At which points of the program device memory is digested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestPoints {
    /// At none.
    Off,
    /// All memory, when a context or the process ends.
    End,
    /// Also when the program has waited for work.
    Sync,
    /// What a launch can reach, after each launch; all memory at the end.
    Launch,
}

impl DigestPoints {
    /// The word of the meta entry; `None` if there is none.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Off => None,
            Self::End => Some("end"),
            Self::Sync => Some("sync"),
            Self::Launch => Some("launch"),
        }
    }
}
