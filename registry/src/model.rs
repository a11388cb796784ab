//! The shape of the tables: functions, parameters, enums, structs, rules.

use crate::family::{CopyOp, Family, LinkOp, OptionArray};
use crate::generated::attribute_table::AttributeTable;
use crate::generated::kinds::Kind;

/// An exported function of the driver. `FUNCTIONS[id]` has that id; ids are never reused.
#[derive(Debug)]
pub struct Function {
    /// The number that traces of this build have for it.
    pub id: u16,
    /// The exported symbol, e.g. `cuMemAlloc_v2`.
    pub name: &'static str,
    /// The documented name that the symbol is a version of, e.g. `cuMemAlloc`.
    pub base: &'static str,
    /// The version of the API (1000 × major + 10 × minor) that introduced the symbol.
    pub since: u32,
    /// The section of the CUDA driver API manual.
    pub section: &'static str,
    /// How it is recorded and replayed.
    pub class: Class,
    /// Why it is not replayed, if its class is `Opaque` or `Unreplayable`; empty otherwise.
    pub reason: &'static str,
    /// What to use instead, if it is deprecated; empty otherwise.
    pub deprecated: &'static str,
    /// Whether it returns a `CUresult`. Anything else is recorded as a number.
    pub returns_result: bool,
    /// In the order of the C prototype.
    pub params: &'static [Param],
    /// Position of the stream that orders the work of the call, if it enqueues any.
    pub stream: Option<u8>,
    /// Whether it is a variant for the per-thread default stream (`_ptsz`, `_ptds`): a NULL stream
    /// means the thread's own.
    pub per_thread: bool,
    /// What a successful return proves complete.
    pub waits: Waits,
    /// What a successful return proves complete although the manual does not promise it.
    pub implicit_wait: ImplicitWait,
    /// What it does, as far as its roles do not say it.
    pub family: Family,
    /// Bytes of the memory, address range or variable that a successful call makes or finds.
    pub size: Option<Length>,
    /// Position in `ENUMS` of the enum whose bits its parameter `flags` holds, or points at.
    pub(crate) flags: Option<u16>,
}

impl Function {
    /// The position of the parameter of that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// Whether it copies to the host in the default stream and returns when the copy, and so all
    /// earlier work of that stream, is complete (manual, API synchronization behavior).
    pub fn is_synchronous_readback(&self) -> bool {
        let is_written = |param: &Param| matches!(param.role, Role::HostWrite(_));
        self.stream.is_none()
            && matches!(self.family, Family::Copy(_))
            && self.params.iter().any(is_written)
    }

    /// Whether it copies between host and device in the default stream, of which all earlier work is
    /// complete when it returns: so it is measured for copies from the host, too, of 4 bytes and of
    /// 4 MiB, from pageable and from page-locked memory (H100, driver 580). From pageable memory
    /// its own work may not be (manual, API synchronization behavior).
    pub fn waits_for_default_stream(&self) -> bool {
        let is_of_host =
            |param: &Param| matches!(param.role, Role::HostRead(_) | Role::HostWrite(_));
        self.stream.is_none()
            && matches!(self.family, Family::Copy(_))
            && self.params.iter().any(is_of_host)
    }

    /// The operands of a copy in the default stream between memory of any kind. Unless both are in
    /// memory of the device, it waits as a copy between host and device does: so it is measured for
    /// pageable, page-locked, registered and managed memory, also between the last and memory of the
    /// device (H100, driver 580).
    pub fn unified_without_stream(&self) -> Option<[u8; 2]> {
        match self.family {
            Family::Copy(CopyOp::Unified(at)) if self.stream.is_none() => {
                Some([at.target, at.source])
            }
            _ => None,
        }
    }

    /// Whether it fills memory in the default stream. Page-locked and managed memory it has filled
    /// when it returns, so that all earlier work of that stream is complete; other memory it may
    /// fill later (manual, API synchronization behavior).
    pub fn is_memset_without_stream(&self) -> bool {
        self.stream.is_none() && self.family == Family::Memset
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

/// How a function is recorded and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The roles describe what to record. Code may still treat its family in a special way.
    Plain,
    /// The roles are incomplete: `interposer/src/overrides/`, `replay/src/overrides/` or both add
    /// the rest.
    Override,
    /// Recorded, not replayed; `reason` says why.
    Opaque,
    /// Recorded, and no other process can make the call; `reason` says why.
    Unreplayable,
}

/// What a successful return proves complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    No,
    /// All work of the current context.
    Context,
    /// The earlier work on the stream in that parameter.
    Stream(u8),
    /// The work before the last record of the event in that parameter.
    Event(u8),
}

/// What a call that is no wait waits for, as measured (driver 580.159.04, H200, 2026-11-23: a kernel
/// of one second runs on a non-blocking stream, then the call).
///
/// A call that ends an object waits for the context that the object is of, whichever is current
/// (driver 580.159.04, H100, 2026-11-25). While such a kernel runs in the current context B, calls
/// that free or unregister memory, unload a module, or destroy an array of a context A return after
/// 0.6 ms at most, and the kernel still runs. To free memory of B takes 1000 ms, also while A is
/// current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImplicitWait {
    /// Nothing, or it was not measured.
    No,
    /// All work of the context that the object is of which it ends; of the current context if it
    /// ends none.
    Context,
    /// The same, unless the object is memory of a pool.
    ContextUnlessPool,
    /// All work of the current context, if code of the library was loaded into it.
    ContextIfLoaded,
}

/// A parameter.
#[derive(Debug)]
pub struct Param {
    /// Its name in cuda.h.
    pub name: &'static str,
    /// Its C type, e.g. `const char *`.
    pub c_type: &'static str,
    /// How the call and the trace pass its bits.
    pub width: Width,
    /// What it means.
    pub role: Role,
    /// The value that it returns may differ from run to run (times, free memory), so a replay does
    /// not compare it.
    pub may_differ: bool,
}

impl Param {
    /// Bytes of the count that it points at; `None` if it is no pointer.
    pub(crate) fn pointee_bytes(&self) -> Option<usize> {
        let pointee = self.c_type.strip_suffix('*')?;
        Some(if pointee.contains("int") { 4 } else { 8 })
    }

    /// Bytes of the handle that it points at.
    pub fn handle_bytes(&self) -> usize {
        match self.c_type {
            "CUdevice *" | "CUdeviceptr_v1 *" => 4,
            _ => 8,
        }
    }
}

/// How the call and the trace pass a parameter's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Unsigned integer, enum, flags, pointer or handle of 1, 2, 4 or 8 bytes.
    Unsigned(u8),
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Signed(u8),
    /// Floating point of 4 or 8 bytes, in a vector register.
    Float(u8),
    /// A struct by value of that many bytes (more than 16), on the stack.
    Memory(u8),
}

impl Width {
    /// True for what integer registers pass, as long as there are some.
    pub const fn is_integer(self) -> bool {
        matches!(self, Width::Unsigned(_) | Width::Signed(_))
    }

    /// Bytes in the trace.
    pub const fn bytes(self) -> usize {
        match self {
            Width::Unsigned(n) | Width::Signed(n) | Width::Float(n) | Width::Memory(n) => {
                n as usize
            }
        }
    }
}

/// The object that a new object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// None.
    None,
    /// The calling thread's current context.
    CurrentContext,
    /// The object in that parameter.
    Param(u8),
}

/// How many bytes; for arrays of handles, how many elements. `Length::evaluate` computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// That many.
    Fixed(u32),
    /// The value of that parameter; for a pointer, the value that it points at.
    Param(u8),
    /// The product of two parameters.
    Product(u8, u8),
    /// The value of a parameter times a constant.
    Scaled(u8, u32),
    /// Rows of elements: (pitch, element size, width, height), all of them parameters.
    Pitched(u8, u8, u8, u8),
    /// As `Pitched`, with a constant element size: (pitch, element size, width, height).
    PitchedBy(u8, u8, u8, u8),
    /// (The value of a parameter, minus a number) times a constant: strides between dimensions.
    AllBut(u8, u8, u32),
    /// The size of the attribute in that parameter; the table lists the types.
    ByAttribute(u8, AttributeTable),
    /// Only hand-written code knows it.
    Override,
}

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeType {
    /// Its number in the enum.
    pub attribute: u32,
    /// Bytes of its value.
    pub bytes: u32,
    /// What the value means.
    pub meaning: Meaning,
}

impl AttributeType {
    /// The row of an attribute in a table of `attributes`.
    pub fn of(types: &'static [Self], attribute: u64) -> Option<&'static Self> {
        // An enum has 32 bits; the rest of the register is arbitrary.
        types
            .iter()
            .find(|entry| u64::from(entry.attribute) == attribute & 0xffff_ffff)
    }
}

/// What a member of a struct or the value of an attribute means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A number, an enum, flags, or padding.
    Plain,
    /// A handle; 0 means none, except for devices.
    Handle(Kind),
    /// A device address, or a host address where the driver accepts either.
    Address,
    /// A number that may differ from run to run.
    MayDiffer,
    /// A pointer to something that the registry does not describe.
    Pointer,
    /// A member of a union without a known selector.
    Unknown,
}

/// What a parameter means: direction, extent, and what the call does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A number, an enum, flags.
    Value,
    /// A handle by value; 0 means none or the default.
    Use(Kind),
    /// A handle by value whose object a successful call ends.
    Destroy(Kind),
    /// A pointer to the handle of a new object, which the caller owns.
    Make(Kind, Parent),
    /// A pointer to the handle of an object of the parent; later calls may return the same handle.
    Find(Kind, Parent),
    /// As `Find`, for an array of handles.
    FindMany(Kind, Parent, Length),
    /// A pointer to the handle of an object that exists already.
    Get(Kind),
    /// An array of handles that the call reads.
    UseMany(Kind, Length),
    /// A pointer to bytes that the call reads.
    In(Length),
    /// A pointer to bytes that the call writes.
    Out(Length),
    /// A pointer to bytes that the call reads, then writes.
    InOut(Length),
    /// A NUL-terminated string that the call reads.
    String,
    /// A pointer to a `const char *`; the string belongs to the driver.
    OutString,
    /// A buffer of characters that the call writes, with a NUL within that length.
    Text(Length),
    /// Host memory that the call reads (host to device).
    HostRead(Length),
    /// Host memory that the call writes, at once or in the order of its stream (device to host).
    HostWrite(Length),
    /// A device address by value; the call reads from there.
    DeviceRead(Length),
    /// A device address by value; the call writes from there.
    DeviceWrite(Length),
    /// A host address by value; the bytes behind it are not recorded.
    HostAddress,
    /// A module image: a cubin, fatbin or PTX, whose content tells its size.
    Image,
    /// A function of the program.
    Callback,
    /// A pointer that only the override follows, or that is recorded as a number.
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
    /// Only the driver fills it: a call must be given bytes that another call returned.
    pub token: bool,
    /// In the order of their offsets; the members of a union have the same offset.
    pub fields: &'static [Field],
}

/// A member of a struct.
#[derive(Debug)]
pub struct Field {
    /// Its name; dotted for a member of a member.
    pub name: &'static str,
    /// Its C type.
    pub c_type: &'static str,
    /// Bytes from the start of the struct.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// What it means.
    pub meaning: Meaning,
    /// For a member of a union: when it is the valid one.
    pub when: Option<When>,
}

/// The condition under which a member of a union is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Offset of the 32-bit selector in the whole struct.
    pub offset: u32,
    /// The values that select the member.
    pub values: &'static [u32],
}

impl When {
    /// Whether the selector in a struct's bytes has one of the values; false if they end before it.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        bytes
            .get(self.offset as usize..)
            .and_then(|rest| rest.first_chunk())
            .is_some_and(|word| self.values.contains(&u32::from_le_bytes(*word)))
    }
}

/// What a finding rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The calls, with the arguments, arrays and structs that they pass.
    Certain,
    /// Bytes that the recorder saw: images, the contents of memory.
    Contents,
    /// That a kernel's parameter is a pointer which the kernel follows.
    Assumed,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Could be better.
    Advice,
    /// Works by chance, or on this driver only.
    Warning,
    /// Wrong according to the manual, or failed on a real driver.
    Error,
}

/// A rule of the catalogue.
#[derive(Debug)]
pub struct Rule {
    /// Stable name, e.g. `module-double-unload`.
    pub id: &'static str,
    /// The first word of the id.
    pub area: &'static str,
    /// The severity of its findings, unless one of them has another.
    pub severity: Severity,
    /// What its findings rest on, unless one of them rests on something else.
    pub confidence: Confidence,
    /// What must hold.
    pub statement: &'static str,
    /// The section of the CUDA manual that it follows from.
    pub manual: &'static str,
    /// What to do instead.
    pub advice: &'static str,
    /// What a real driver did, with its version and the date.
    pub observed: &'static str,
    /// Why a trace cannot decide it; empty if it can.
    pub undecidable: &'static str,
    /// Forms of the mistake that a trace does not show.
    pub cannot_see: &'static str,
    /// A finding as `cutape check` prints it; empty if there is none.
    pub example: &'static str,
}
