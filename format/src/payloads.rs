//! What a trace keeps of payloads: bytes that the program copied to devices, and bytes that came back.

/// What is kept of the bytes that are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PayloadPolicy {
    /// All of them.
    #[default]
    All,
    /// How many they are, and the first 16 bytes of their blake3 hash. A recorder writes all bytes; `pack` makes this of them.
    Hash,
    /// How many they are.
    None,
}

impl PayloadPolicy {
    /// All of them, in order: each keeps less than the one before.
    pub const EVERY: [Self; 3] = [Self::All, Self::Hash, Self::None];

    /// The word for it, as it stands in the meta entries `payloads` and `outputs`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hash => "hash",
            Self::None => "none",
        }
    }

    /// What a word stands for.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        Self::EVERY
            .into_iter()
            .find(|payloads| payloads.word().as_bytes() == word)
    }
}

/// What is kept of both kinds of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadPolicies {
    /// Of the bytes that go to devices, changes of host memory that devices read among them.
    pub payloads: PayloadPolicy,
    /// Of the bytes that come back.
    pub outputs: PayloadPolicy,
}
