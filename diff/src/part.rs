//! The parts of a call that are compared, without addresses and handles.

use std::borrow::Cow;

use crate::report::Kind;

/// A call: thread, position in it.
pub(crate) type Place = (u32, u32);

/// Which aspect of a call a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Facet {
    /// The name of the kernel.
    Kernel,
    /// Grid, block, shared memory and attributes of a launch.
    Shape,
    /// Other arguments.
    Argument,
    /// Bytes that the call was given.
    Data,
    /// The code of an image.
    Code,
    /// What the call wrote for the program.
    Output,
    /// The result code.
    Result,
}

/// The label of the parameters of a launched kernel.
pub(crate) const KERNEL_PARAMETERS: &str = "kernel parameters";
/// In place of the C type of a number: eight bytes or less of no known type.
pub(crate) const WORD: &str = "word";

/// How many facets there are.
pub(crate) const FACETS: usize = 7;

impl Facet {
    /// All, by their numbers.
    pub(crate) const ALL: [Self; FACETS] = [
        Self::Kernel,
        Self::Shape,
        Self::Argument,
        Self::Data,
        Self::Code,
        Self::Output,
        Self::Result,
    ];

    /// The kind of difference in it.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Kernel => Kind::Kernel,
            Self::Shape => Kind::Shape,
            Self::Argument => Kind::Argument,
            Self::Data => Kind::Data,
            Self::Code => Kind::Code,
            Self::Output => Kind::Output,
            Self::Result => Kind::Result,
        }
    }
}

/// Where in a call a part is.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) struct Label {
    /// The parameter.
    pub(crate) name: &'static str,
    /// Which element of an array.
    pub(crate) element: Option<u32>,
    /// The member of a struct.
    pub(crate) member: &'static str,
    /// Offset in the element.
    pub(crate) byte: Option<u32>,
}

impl Label {
    pub(crate) const fn of(name: &'static str) -> Self {
        Self {
            name,
            element: None,
            member: "",
            byte: None,
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.name.to_owned();
        if let Some(element) = self.element {
            text += &format!("[{element}]");
        }
        if !self.member.is_empty() {
            text += &format!(".{}", self.member);
        }
        if let Some(byte) = self.byte {
            text += &format!(" at byte {byte}");
        }
        text
    }
}

/// Bytes that the program copied, or an image.
#[derive(Clone, Debug)]
pub(crate) struct Payload<'a> {
    pub(crate) length: u64,
    /// The start of their blake3 hash; `None` if the trace does not tell their content.
    pub(crate) hash: Option<[u8; 16]>,
    /// If they were asked for and the trace has them.
    pub(crate) bytes: Option<Cow<'a, [u8]>>,
}

/// One value of a call.
#[derive(Clone, Debug)]
pub(crate) enum Part<'a> {
    /// A number, and its C type.
    Number(u64, &'static str),
    /// Bytes of no known type.
    Bytes(&'a [u8]),
    /// A string.
    Text(Cow<'a, [u8]>),
    /// Bytes that the program copied.
    Payload(Payload<'a>),
    /// The code of an image, as a hash, and the image.
    Code(u64, Payload<'a>),
    /// A place in an object, by the object's number: its handle, or an address.
    Place {
        object: u32,
        offset: u64,
        is_alive: bool,
    },
    /// An address outside of all objects that the trace shows.
    Unknown,
    /// A null pointer or handle.
    Null,
}

/// Takes the parts of a call one after the other.
pub(crate) trait Sink {
    /// Whether payloads are to come with their bytes.
    fn wants_bytes(&self) -> bool {
        false
    }

    /// The next part of the call.
    fn part(&mut self, facet: Facet, label: Label, part: Part<'_>);

    /// What an earlier call has turned out to write.
    fn late(&mut self, call: Place, label: Label, part: Part<'_>);
}
