//! Why an image could not be read.

use core::fmt;

/// What kind of problem there is; a driver maps it to an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// No image.
    NotAnImage,
    /// The bytes end before what the headers promise.
    Truncated,
    /// Headers or tables contradict themselves.
    Malformed,
    /// PTX text that a compiler certainly refuses.
    Syntax,
    /// Well-formed as far as it was read, but of an unknown kind.
    Unsupported,
    /// Beyond a limit of this crate.
    TooLarge,
}

/// Where a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Byte offset from the start of the image or of the (decompressed) entry.
    Byte(u64),
    /// Line of a text, from 1.
    Line(u32),
    /// The image as a whole.
    Whole,
}

/// Why an image, or one entry of it, could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// Where it is.
    pub place: Place,
    /// What is wrong, in words.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, place: Place, what: impl Into<String>) -> Self {
        Problem {
            kind,
            place,
            what: what.into(),
        }
    }

    pub(crate) fn malformed(at: u64, what: impl Into<String>) -> Self {
        Problem::new(ProblemKind::Malformed, Place::Byte(at), what)
    }

    pub(crate) fn truncated(at: u64, what: impl Into<String>) -> Self {
        Problem::new(ProblemKind::Truncated, Place::Byte(at), what)
    }

    pub(crate) fn syntax(line: u32, what: impl Into<String>) -> Self {
        Problem::new(ProblemKind::Syntax, Place::Line(line), what)
    }

    pub(crate) fn too_large(what: impl Into<String>) -> Self {
        Problem::new(ProblemKind::TooLarge, Place::Whole, what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Byte(at) => write!(f, "at byte {at:#x}: {}", self.what),
            Place::Line(line) => write!(f, "line {line}: {}", self.what),
            Place::Whole => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Problem {}
