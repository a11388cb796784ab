//! What can be removed from a trace, and what is.

use crate::pack::synthetic::Contents;
use crate::payload_policy::PayloadPolicies;
use crate::read::signature::Signature;

/// The meta entry that lists what was removed.
pub const REDACTED: &str = "redacted";

/// What can be removed from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Secret {
    /// Bytes that are copied to devices and from them, hashes and digests of these.
    Payloads,
    /// Parameters of kernels, but for addresses and handles.
    Parameters,
    /// Variables of the environment, and the arguments of the program.
    Environment,
    /// Paths, of programs, libraries, sources and images; names of threads; texts that may hold
    /// paths: logs of the driver.
    Paths,
    /// Names of functions, variables, ranges and marks, and the images, which hold such names.
    Names,
    /// Bytes of code images.
    Images,
}

impl Secret {
    /// All of them.
    pub const EVERY: [Self; 6] = [
        Self::Payloads,
        Self::Parameters,
        Self::Environment,
        Self::Paths,
        Self::Names,
        Self::Images,
    ];

    /// Its word in options and in the meta entry [`REDACTED`].
    pub const fn word(self) -> &'static str {
        match self {
            Self::Payloads => "payloads",
            Self::Parameters => "parameters",
            Self::Environment => "environment",
            Self::Paths => "paths",
            Self::Names => "names",
            Self::Images => "images",
        }
    }

    /// The secret of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|secret| secret.word() == word)
    }
}

/// Some of what can be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Secrets(u8);

impl Secrets {
    /// Whether it is among them. Names are in images too.
    pub fn has(self, secret: Secret) -> bool {
        let own = |secret: Secret| self.0 & 1 << secret as u8 != 0;
        own(secret) || secret == Secret::Images && own(Secret::Names)
    }

    /// Whether it is nothing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These and others.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// One by one.
    pub fn iter(self) -> impl Iterator<Item = Secret> {
        Secret::EVERY
            .into_iter()
            .filter(move |&secret| self.has(secret))
    }

    /// The words, separated by commas.
    pub fn words(self) -> String {
        let words: Vec<&str> = self.iter().map(Secret::word).collect();
        words.join(",")
    }

    /// Those that a trace says were removed from it.
    pub fn of_words(words: &str) -> Self {
        words.split(',').filter_map(Secret::from_word).collect()
    }
}

impl FromIterator<Secret> for Secrets {
    fn from_iter<T: IntoIterator<Item = Secret>>(secrets: T) -> Self {
        let bits = secrets.into_iter().map(|secret| 1 << secret as u8);
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

/// What the bytes behind a parameter are, or the parameter itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// What the driver needs to do its work.
    Call,
    /// A string that is a path.
    Path,
    /// A string that is a name.
    Name,
    /// A text that may hold paths and names.
    Text,
    /// Parameters of a kernel.
    Parameters,
    /// An image, or a part of one.
    Image,
}

/// What is removed from a trace.
#[derive(Clone, Copy)]
pub struct Redaction<'a> {
    /// What.
    pub secrets: Secrets,
    /// What takes the place of bytes that were copied to devices.
    pub contents: Contents,
    /// What is kept of payloads that stay.
    pub policies: PayloadPolicies,
    /// What a parameter, by its position, holds or points at.
    pub subject: &'a (dyn Fn(&Signature, usize) -> Subject + Sync),
    /// What is left of the parameters of a kernel: as many bytes.
    pub parameters: &'a (dyn Fn(&[u8]) -> Vec<u8> + Sync),
}
