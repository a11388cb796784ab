//! The shape of the tables: functions, parameters, enums, structs, rules.

use crate::family::{Family, LinkOp, OptionArray};
use crate::generated::kinds::Kind;

/// One exported function of the driver. `FUNCTIONS[id]` has that id; ids are never reused.
#[derive(Debug)]
pub struct Function {
    /// The number that traces of this build carry for it.
    pub id: u16,
    /// The exported symbol, e.g. `cuMemAlloc_v2`.
    pub name: &'static str,
    /// The documented name that the symbol is a version of, e.g. `cuMemAlloc`.
    pub base: &'static str,
    /// The section of the CUDA driver API manual.
    pub section: &'static str,
    /// Who handles it.
    pub class: Class,
    /// Why, for `Opaque` and `Unreplayable`; empty otherwise.
    pub reason: &'static str,
    /// What the C function returns: true for `CUresult`, false for anything else (recorded as a number).
    pub returns_result: bool,
    /// In the order of the C prototype.
    pub params: &'static [Param],
    /// Position of the stream parameter that the work of this call is ordered on, if it enqueues work.
    pub stream: Option<u8>,
    /// Which per-thread default stream variant it is (`_ptsz`, `_ptds`): a NULL stream means the thread's own.
    pub per_thread: bool,
    /// What has completed when the call returns with success.
    pub waits: Waits,
    /// What code asks about it that its roles do not say.
    pub family: Family,
    /// Bytes of the memory, address range or variable that a successful call makes or finds.
    pub size: Option<Length>,
    /// The enum whose bits its parameter `flags` holds, or points at; empty if none is known.
    pub flags: &'static str,
}

impl Function {
    /// The position of the parameter of that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// The options of the JIT compiler or linker that it takes.
    pub const fn options(&self) -> Option<OptionArray> {
        match self.family {
            Family::ModuleLoad(load) | Family::LibraryLoad(load) => load.options,
            Family::Link(
                LinkOp::Create { options, .. }
                | LinkOp::AddData { options, .. }
                | LinkOp::AddFile { options, .. },
            ) => Some(options),
            _ => None,
        }
    }
}

/// Who handles a function, on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Recorded and replayed from this table alone.
    Plain,
    /// Has hand-written code: `interposer/src/overrides/X.rs`, `replay/src/overrides/X.rs`.
    Override,
    /// Recorded by value, not re-issued; `reason` says why.
    Opaque,
    /// Recorded in full, cannot be re-issued; `reason` says why.
    Unreplayable,
}

/// What a successful return proves complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    No,
    /// All work of the current context.
    Context,
    /// The work before it on the stream of that parameter.
    Stream(u8),
    /// The work before the event of that parameter was recorded.
    Event(u8),
}

/// One parameter.
#[derive(Debug)]
pub struct Param {
    /// Its name in cuda.h.
    pub name: &'static str,
    /// Its C type, e.g. `const char *`.
    pub c_type: &'static str,
    /// How its bits travel.
    pub width: Width,
    /// What it means.
    pub role: Role,
    /// The value it returns may differ from run to run (times, free memory); a replay reports no divergence for it.
    pub may_differ: bool,
}

impl Param {
    /// Whether it is a pointer.
    pub fn is_pointer(&self) -> bool {
        self.c_type.ends_with('*')
    }

    /// Bytes of the count that it points at, as far as lengths depend on such; `None` if it is no pointer.
    pub(crate) fn pointee_bytes(&self) -> Option<usize> {
        let pointee = self.c_type.strip_suffix('*')?;
        Some(if pointee.contains("int") { 4 } else { 8 })
    }

    /// Bytes of the handle that it points at, for roles that write one.
    pub fn handle_bytes(&self) -> usize {
        match self.c_type {
            "CUdevice *" | "CUdeviceptr_v1 *" => 4,
            _ => 8,
        }
    }
}

/// How a parameter's bits travel in the call and in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Unsigned integer, enum, flags, pointer or handle of 1, 2, 4 or 8 bytes.
    Unsigned(u8),
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Signed(u8),
    /// Floating point of 4 or 8 bytes; in a vector register.
    Float(u8),
    /// A struct by value of that many bytes (over 16): on the stack.
    Memory(u8),
}

impl Width {
    /// Bytes in the trace.
    pub const fn bytes(self) -> usize {
        match self {
            Width::Unsigned(n) | Width::Signed(n) | Width::Float(n) | Width::Memory(n) => {
                n as usize
            }
        }
    }
}

/// Where a new object hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Nowhere.
    None,
    /// On the calling thread's current context.
    CurrentContext,
    /// On the object in that parameter.
    Param(u8),
}

/// How many bytes or elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// That many.
    Fixed(u32),
    /// The value of that parameter (for a pointer parameter, the value it points at).
    Param(u8),
    /// The product of two parameters.
    Product(u8, u8),
    /// The value of a parameter times a constant.
    Scaled(u8, u32),
    /// width × height elements of a size, rows a pitch apart: (pitch, element size, width, height), all parameters.
    Pitched(u8, u8, u8, u8),
    /// As `Pitched`, the element size being a constant: (pitch, element size, width, height).
    PitchedBy(u8, u8, u8, u8),
    /// The value of a parameter, less a number, times a constant: strides between dimensions.
    AllBut(u8, u8, u32),
    /// The value of the attribute that parameter names, whose types the table lists.
    ByAttribute(u8, &'static [AttributeType]),
    /// Known to the override alone.
    Override,
}

/// What the value of an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeType {
    /// The attribute's number in its enum.
    pub attribute: u32,
    /// Bytes of its value.
    pub bytes: u32,
    /// What the bits stand for.
    pub meaning: Meaning,
}

impl Length {
    /// The type of an attribute's value, for lengths that depend on one.
    pub fn attribute_type(self, attribute: u64) -> Option<&'static AttributeType> {
        let Length::ByAttribute(_, types) = self else {
            return None;
        };
        // Enums travel in 32 bits.
        types
            .iter()
            .find(|entry| u64::from(entry.attribute) == attribute & 0xffff_ffff)
    }
}

/// What the bits of a struct's member or of an attribute's value stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Themselves: a number, an enum, flags; or nothing that anybody looks at.
    Plain,
    /// A handle; 0 means none.
    Handle(Kind),
    /// A device address, or a host address that stands in for one.
    Address,
    /// A number that may differ from run to run.
    MayDiffer,
    /// A pointer to what the registry does not describe; 0 means nothing.
    Pointer,
    /// A member of a union of which nothing tells when it is the one that counts.
    Unknown,
}

/// What a parameter means: what is behind it, which way it goes, what the call does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A number, an enum, flags.
    Value,
    /// A handle by value; 0 means none or the default.
    Use(Kind),
    /// A handle by value whose object a successful call ends.
    Destroy(Kind),
    /// A pointer to where a new object's handle is written; the caller owns the object.
    Make(Kind, Parent),
    /// A pointer to where a handle is written that belongs to the parent and may be handed out again.
    Find(Kind, Parent),
    /// As `Find`, for an array of that many handles.
    FindMany(Kind, Parent, Length),
    /// A pointer to where a handle of an object that exists already is written.
    Get(Kind),
    /// An array of handles that is read.
    UseMany(Kind, Length),
    /// A pointer to a value or struct of that many bytes that is read.
    In(Length),
    /// A pointer to a value or struct of that many bytes that is written.
    Out(Length),
    /// A pointer to a value or struct of that many bytes that is read, then written.
    InOut(Length),
    /// A NUL-terminated string that is read.
    String,
    /// A pointer to where a `const char *` owned by the driver is written.
    OutString,
    /// A character buffer that is written, NUL-terminated within that length.
    Text(Length),
    /// Host bytes that the call reads (host to device).
    HostRead(Length),
    /// Host bytes that the call writes, now or when the stream gets there (device to host).
    HostWrite(Length),
    /// A device address by value, read from there on.
    DeviceRead(Length),
    /// A device address by value, written from there on.
    DeviceWrite(Length),
    /// A host address by value whose bytes are not looked at.
    HostAddress,
    /// A module image: cubin, fatbin or PTX, size known from its content.
    Image,
    /// The entry address of a function of the program.
    Callback,
    /// Known to the override alone, or recorded as a bare pointer.
    Pointer,
}

/// A C enum: names and values as cuda.h has them.
#[derive(Debug)]
pub struct Enum {
    /// The typedef's name.
    pub name: &'static str,
    /// (name, value), in the order of cuda.h, aliases included.
    pub values: &'static [(&'static str, i64)],
}

impl Enum {
    /// The first name of a value.
    pub fn name_of(&self, value: i64) -> Option<&'static str> {
        self.values
            .iter()
            .find(|entry| entry.1 == value)
            .map(|entry| entry.0)
    }
}

/// A C struct's layout on x86-64.
#[derive(Debug)]
pub struct Struct {
    /// The typedef's name.
    pub name: &'static str,
    /// Bytes.
    pub size: u32,
    /// Its content is the driver's own: what a call is given must be what another call has returned.
    pub token: bool,
    /// In order of offset; unions list each member at the same offset.
    pub fields: &'static [Field],
}

/// A member of a struct.
#[derive(Debug)]
pub struct Field {
    /// Its name; nested members are dotted.
    pub name: &'static str,
    /// Its C type.
    pub c_type: &'static str,
    /// Bytes from the start.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// What its bits stand for.
    pub meaning: Meaning,
    /// For a member of a union: when it is the one that counts.
    pub when: Option<When>,
}

/// The condition under which a member of a union counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Where in the whole struct the 32-bit selector stands.
    pub offset: u32,
    /// Any of these values selects the member.
    pub values: &'static [u32],
}

impl When {
    /// Whether the selector of that struct has one of the values; false where the bytes end before it.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        bytes
            .get(self.offset as usize..)
            .and_then(|rest| rest.first_chunk())
            .is_some_and(|word| self.values.contains(&u32::from_le_bytes(*word)))
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Might be better.
    Advice,
    /// Works by luck or on this driver only.
    Warning,
    /// Wrong by the manual, or seen to fail.
    Error,
}

/// A rule of the catalogue.
#[derive(Debug)]
pub struct Rule {
    /// Stable name, e.g. `module-double-unload`.
    pub id: &'static str,
    /// First word of the id's area.
    pub area: &'static str,
    /// Unless a finding lowers or raises it.
    pub severity: Severity,
    /// What must hold, in one or two sentences.
    pub statement: &'static str,
    /// The CUDA manual's section that it follows from.
    pub manual: &'static str,
    /// What to do instead.
    pub advice: &'static str,
    /// What was seen on a real driver, with driver and date.
    pub observed: &'static str,
    /// Why a trace cannot decide it (then nothing checks it), or empty.
    pub undecidable: &'static str,
}
