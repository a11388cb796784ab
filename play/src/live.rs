//! A call of the program, read as the recorder would have read it. The recorded call that it is
//! compared with says which memory.

use std::borrow::Cow;

use cutape_format::layout::field;
use cutape_format::{Bytes, Call, MadeCall, Snapshot};
use cutape_model::described_accesses_in;
use cutape_registry::{
    CopyOp, Family, Field, Function, INTEGER_REGISTERS, ImageSource, LaunchOp, LinkOp, Location,
    Locations, Role,
};

use crate::kernels::Kernels;
use crate::memory;
use crate::rows::{rows_of, rows_of_ranges};

/// CU_LAUNCH_PARAM_BUFFER_POINTER of cuda.h.
const BUFFER_POINTER: u64 = 1;
/// More words than an `extra` array has.
const MOST_EXTRA: u64 = 16;

/// A call of the program: registers and words of the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveCall<'a> {
    pub(crate) function: &'static Function,
    pub(crate) words: &'a [u64],
}

impl LiveCall<'_> {
    /// The argument at each position; 0 for numbers with a fraction and structs by value.
    pub(crate) fn arguments(&self) -> Vec<u64> {
        let mut locations = Locations::new();
        let widths = self.function.params.iter().map(|param| param.width);
        let places = widths.map(|width| match locations.next(width) {
            Location::Register(at) => Some(usize::from(at)),
            Location::Stack(at) if width.is_integer() => Some(usize::from(INTEGER_REGISTERS + at)),
            Location::Stack(_) | Location::Vector(_) => None,
        });
        places
            .map(|at| at.and_then(|at| self.words.get(at)).copied().unwrap_or(0))
            .collect()
    }

    /// The call as a reader of traces sees it, with the memory that the recorded call has.
    pub(crate) fn read(&self, recorded: &Call<'_>, kernels: &Kernels, host: Host<'_>) -> MadeCall {
        let arguments = self.arguments();
        let mut made = MadeCall::new(recorded.signature, &arguments);
        let reading = Reading {
            function: self.function,
            arguments,
            recorded,
            kernels,
            host,
        };
        let mut ranges = reading.source_ranges().into_iter();
        for snapshot in recorded.snapshots() {
            match reading.bytes(&snapshot, &mut ranges).or_of_file(&snapshot) {
                Found::Bytes(bytes) => {
                    made.put_before(snapshot.parameter, snapshot.field, bytes.as_deref());
                }
                Found::AsRecorded => made.repeat_before(&snapshot),
            }
        }
        made
    }

    /// Adds what pointers lead to after the call.
    pub(crate) fn add_outputs(&self, made: &mut MadeCall, recorded: &Call<'_>, result: i32) {
        let arguments = self.arguments();
        made.returned(result);
        for snapshot in recorded.leave.iter().flat_map(|leave| leave.snapshots()) {
            let position = usize::from(snapshot.parameter);
            let param = self.function.params.get(position);
            let is_read = param.is_some_and(|param| {
                matches!(
                    param.role,
                    Role::Make(..)
                        | Role::Find(..)
                        | Role::FindMany(..)
                        | Role::Get(_)
                        | Role::Out(_)
                        | Role::InOut(_)
                )
            });
            let address = arguments.get(position).copied().unwrap_or(0);
            let address = match snapshot.field {
                field::POINTEE if is_read => Some(address),
                // The graphs of a conditional node.
                field::ELEMENTS => member_at(self.function, position, "phGraph_out", address),
                _ => None,
            };
            if let Some(address) = address {
                let length = snapshot.bytes.length().unwrap_or(0);
                let bytes = memory::read(address, length as usize);
                made.put_after(snapshot.parameter, snapshot.field, bytes.as_deref());
            }
        }
    }
}

/// What is known of the program's host memory.
#[derive(Clone, Copy)]
pub(crate) struct Host<'h> {
    /// Where a recorded address is in the program.
    pub(crate) live: &'h dyn Fn(u64) -> Option<u64>,
    /// The bytes that the call reads are not compared: pending work may write them, or they are read
    /// when a graph runs.
    pub(crate) reads_pending: bool,
}

/// What there is of a snapshot in the program.
enum Found {
    /// The program's bytes; `None` if they cannot be read.
    Bytes(Option<Vec<u8>>),
    /// They are the recorded ones, or not compared.
    AsRecorded,
}

impl Found {
    /// Bytes that the recording left in a file, which need not be on this machine, are compared by
    /// their digest.
    fn or_of_file(self, snapshot: &Snapshot<'_>) -> Self {
        match (&self, snapshot.bytes) {
            (Self::Bytes(Some(bytes)), Bytes::InFile(range)) if range.has_digest_of(bytes) => {
                Self::AsRecorded
            }
            _ => self,
        }
    }
}

struct Reading<'a> {
    function: &'static Function,
    arguments: Vec<u64>,
    recorded: &'a Call<'a>,
    kernels: &'a Kernels,
    host: Host<'a>,
}

impl Reading<'_> {
    fn argument(&self, position: usize) -> u64 {
        self.arguments.get(position).copied().unwrap_or(0)
    }

    fn bytes(&self, snapshot: &Snapshot<'_>, ranges: &mut dyn Iterator<Item = Rows>) -> Found {
        let position = usize::from(snapshot.parameter);
        let address = self.argument(position);
        let Some(length) = snapshot.bytes.length() else {
            return Found::AsRecorded;
        };
        let length = length as usize;
        let array = |member: &str| {
            let pointer = self.member(position, member)?;
            memory::read(pointer, length)
        };
        Found::Bytes(match snapshot.field {
            field::POINTEE if self.is_string(position) => memory::string(address),
            // The program's text may be longer or shorter.
            field::POINTEE if self.is_ptx(position) => memory::string(address),
            field::POINTEE if self.host.reads_pending && self.reads_host(position) => {
                return Found::AsRecorded;
            }
            field::HOST_BYTES if self.host.reads_pending => return Found::AsRecorded,
            field::POINTEE | field::OPTIONS | field::LIBRARY_OPTIONS => {
                memory::read(address, length)
            }
            field::KERNEL_PARAMETERS => match self.parameters(position, length) {
                Some(bytes) => Some(bytes),
                None => return Found::AsRecorded,
            },
            field::ATTRIBUTES => array("attrs"),
            field::ELEMENTS => match array("paramArray").or_else(|| array("accessDescs")) {
                Some(bytes) => Some(bytes),
                None => return Found::AsRecorded,
            },
            field::FATBIN => memory::read(address, 24)
                .and_then(|wrapper| cutape_image::wrapper_data(&wrapper))
                .and_then(|wrapper| memory::read(wrapper.data, length)),
            field::FILE => self.file(position),
            field::HOST_BYTES => {
                let rows = match self.function.family {
                    Family::Copy(_) => self.source_rows(),
                    _ => ranges.next().flatten(),
                };
                let bytes = rows.and_then(|rows| memory::gather(&rows));
                // Which sources of a batch the recorder took is up to the driver.
                match bytes.filter(|bytes| bytes.len() == length) {
                    Some(bytes) => Some(bytes),
                    None => return Found::AsRecorded,
                }
            }
            _ => return Found::AsRecorded,
        })
    }

    fn is_string(&self, position: usize) -> bool {
        let param = self.function.params.get(position);
        param.is_some_and(|param| param.role == Role::String)
    }

    fn is_ptx(&self, position: usize) -> bool {
        let param = self.function.params.get(position);
        let is_image = param.is_some_and(|param| param.role == Role::Image);
        let start = memory::read(self.argument(position), 16).filter(|_| is_image);
        start.is_some_and(|start| cutape_image::kind(&start) == cutape_image::ImageKind::Ptx)
    }

    fn reads_host(&self, position: usize) -> bool {
        let param = self.function.params.get(position);
        param.is_some_and(|param| matches!(param.role, Role::HostRead(_)))
    }

    /// The content of the file that the call names.
    fn file(&self, position: usize) -> Option<Vec<u8>> {
        let at = match self.function.family {
            Family::ModuleLoad(load) | Family::LibraryLoad(load) => match load.source {
                ImageSource::File(at) => at,
                ImageSource::Data(_) | ImageSource::FatBinary(_) => return None,
            },
            Family::Link(LinkOp::AddFile { path, .. }) => path,
            // What was linked belongs to the driver.
            _ => position as u8,
        };
        let mut name = memory::string(self.argument(at.into()))?;
        name.pop();
        std::fs::read(String::from_utf8(name).ok()?).ok()
    }

    fn member(&self, position: usize, name: &str) -> Option<u64> {
        member_at(self.function, position, name, self.argument(position))
    }

    /// The parameters of a kernel, packed; `None` if the recording does not say how.
    fn parameters(&self, position: usize, length: usize) -> Option<Vec<u8>> {
        let (array, extra, recorded_kernel) = match self.function.family {
            Family::Launch(LaunchOp::Arguments(at)) => (
                self.argument(at.parameters.into()),
                at.extra.map(|at| self.argument(at.into())),
                self.recorded.argument(at.function.into()),
            ),
            Family::Launch(LaunchOp::Config(at)) => (
                self.argument(at.parameters.into()),
                Some(self.argument(at.extra.into())),
                self.recorded.argument(at.function.into()),
            ),
            Family::Launch(_) => return None,
            _ => (
                self.member(position, "kernelParams")?,
                self.member(position, "extra"),
                self.recorded_kernel(position)?,
            ),
        };
        if array == 0 {
            let extra = extra?;
            let mut pairs = (0..MOST_EXTRA).map_while(|at| {
                let key = memory::word(extra.checked_add(at * 16)?)?;
                (key != 0).then(|| Some((key, memory::word(extra + at * 16 + 8)?)))?
            });
            let (_, buffer) = pairs.find(|&(key, _)| key == BUFFER_POINTER)?;
            return memory::read(buffer, length);
        }
        let layout = self.kernels.layout(self.recorded.index, recorded_kernel)?;
        let pointers = memory::read(array, layout.len() * 8)?;
        let pointers = pointers.as_chunks::<8>().0.iter();
        let values = pointers.zip(layout);
        let values: Vec<(u64, u64)> = values
            .map(|(pointer, &(_, size))| (u64::from_le_bytes(*pointer), size.into()))
            .collect();
        let values = memory::gather(&values)?;
        let (mut packed, mut values) = (vec![0; length], &values[..]);
        for &(offset, size) in layout {
            let (value, rest) = values.split_at_checked(size as usize)?;
            values = rest;
            let place = packed.get_mut(offset as usize..offset as usize + size as usize)?;
            place.copy_from_slice(value);
        }
        Some(packed)
    }

    /// The kernel of a node, as recorded.
    fn recorded_kernel(&self, position: usize) -> Option<u64> {
        let bytes = self.recorded.snapshot(position, field::POINTEE)?;
        let bytes = bytes.bytes.inline()?;
        let handles = ["func", "kern"].into_iter().filter_map(|name| {
            let field = member_of(self.function, position, name)?;
            let word = bytes.get(field.offset as usize..)?.first_chunk()?;
            Some(u64::from_le_bytes(*word))
        });
        handles.into_iter().find(|&handle| handle != 0)
    }

    /// The host memory that a copy reads, as far as this process can read it.
    fn source_rows(&self) -> Rows {
        if let Family::Copy(CopyOp::Unified(at)) = self.function.family {
            let [source, bytes] = [at.source, at.bytes].map(|at| self.argument(at.into()));
            return Some(vec![(source, bytes)]);
        }
        let read = |position: usize| {
            let snapshot = self.recorded.snapshot(position, field::POINTEE)?;
            let length = snapshot.bytes.length()? as usize;
            Some(Cow::Owned(memory::read(self.argument(position), length)?))
        };
        let accesses = described_accesses_in(self.function, &read)?;
        let mut rows = Vec::new();
        for access in accesses.iter().filter(|access| !access.is_write) {
            if memory::read(access.start, 1).is_some() {
                rows.extend(rows_of(access)?);
            }
        }
        Some(rows)
    }

    /// The host memory that each copy of a graph reads, in the program.
    fn source_ranges(&self) -> Vec<Rows> {
        let ranges = rows_of_ranges(self.recorded, 1).into_iter();
        let live = |(_, rows): (u64, Vec<(u64, u64)>)| {
            let rows = rows.into_iter();
            rows.map(|(address, length)| Some(((self.host.live)(address)?, length)))
                .collect()
        };
        ranges.map(live).collect()
    }
}

/// A member of the struct that a parameter points at, by the last part of its name.
fn member_of(function: &Function, position: usize, name: &str) -> Option<&'static Field> {
    let c_type = function.params.get(position)?.c_type;
    let structure = cutape_registry::structure_behind(c_type)?;
    let mut fields = structure.fields.iter();
    fields.find(|field| field.name.rsplit('.').next() == Some(name))
}

/// Its value in the struct at an address.
fn member_at(function: &Function, position: usize, name: &str, address: u64) -> Option<u64> {
    let field = member_of(function, position, name)?;
    memory::word(address.checked_add(field.offset.into())?)
}

/// Rows of memory: address, length; `None` if they are not known.
type Rows = Option<Vec<(u64, u64)>>;
