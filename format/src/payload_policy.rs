//! What a trace keeps of payloads: bytes that the program copied to devices or back.

/// The meta entry that says what is to be removed when the trace is packed.
pub const REDACT: &str = "redact";

/// What is kept of the bytes that are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PayloadPolicy {
    /// All of them.
    #[default]
    All,
    /// Their number, and the first 16 bytes of their blake3 hash. A recorder writes all bytes;
    /// `pack` hashes them.
    Hash,
    /// Their number.
    None,
}

impl PayloadPolicy {
    /// All policies; each keeps less than the one before.
    pub const EVERY: [Self; 3] = [Self::All, Self::Hash, Self::None];

    /// Its word in the meta entries `payloads` and `outputs`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hash => "hash",
            Self::None => "none",
        }
    }

    /// The policy of a word.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        Self::EVERY
            .into_iter()
            .find(|policy| policy.word().as_bytes() == word)
    }
}

/// The policies for both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadPolicies {
    /// For bytes that go to devices, including changes of host memory that devices read.
    pub payloads: PayloadPolicy,
    /// For bytes that come back.
    pub outputs: PayloadPolicy,
    /// Bytes that the trace refers to by a file of the program's data are copied from it.
    pub embeds_files: bool,
}
