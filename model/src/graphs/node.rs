//! What nodes do, from the structs that describe them and from captured calls.

use std::sync::Arc;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{
    CopyOp, Extent, Family, LaunchOp, MemoryOp, MemoryType, NodeKind, Role, Struct,
};

use super::graph::{Graph, KernelWork, Operand, Work};
use crate::copied::{DescribedAccess, described_accesses, described_copy};
use crate::effects::{Action, CallArguments, Effects};
use crate::launch_shape::LaunchShape;

/// Numbers of `CUgraphNodeType`.
mod kind {
    pub(super) const KERNEL: u64 = 0;
    pub(super) const COPY: u64 = 1;
    pub(super) const MEMSET: u64 = 2;
    pub(super) const HOST: u64 = 3;
    pub(super) const GRAPH: u64 = 4;
    pub(super) const EMPTY: u64 = 5;
    pub(super) const WAIT_EVENT: u64 = 6;
    pub(super) const EVENT_RECORD: u64 = 7;
    pub(super) const SIGNAL: u64 = 8;
    pub(super) const WAIT: u64 = 9;
    pub(super) const ALLOCATION: u64 = 10;
    pub(super) const FREE: u64 = 11;
    pub(super) const MEMORY_OPERATIONS: u64 = 12;
    pub(super) const CONDITIONAL: u64 = 13;
}

/// Reads members of a struct.
struct Members<'a> {
    structure: &'static Struct,
    bytes: &'a [u8],
    /// Before the name of every member, e.g. `memset.`.
    prefix: &'static str,
}

impl Members<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        let field = self
            .structure
            .fields
            .iter()
            .find(|field| field.name.strip_prefix(self.prefix) == Some(name))?;
        let bytes = self.bytes.get(field.offset as usize..)?;
        let size = field.size as usize;
        let mut word = [0; 8];
        word.get_mut(..size)?.copy_from_slice(bytes.get(..size)?);
        Some(u64::from_le_bytes(word))
    }

    /// A copy that a `CUDA_MEMCPY3D` or the like describes.
    fn copy(&self) -> Option<Work> {
        let sides = described_copy(&|name| self.number(name))?;
        Some(copy_of(&sides))
    }
}

/// A copy of described memory.
fn copy_of(sides: &[DescribedAccess]) -> Work {
    let operands = sides.iter().filter(|side| side.is_in_order);
    let operands = operands.map(|side| Operand {
        address: side.base,
        start: side.start,
        extent: side.extent,
        is_write: side.is_write,
        is_device: side.memory == MemoryType::Device,
        name: match (side.memory, side.is_write) {
            (MemoryType::Host, false) => "srcHost",
            (MemoryType::Host, true) => "dstHost",
            (_, false) => "srcDevice",
            (_, true) => "dstDevice",
        },
    });
    Work::Memory(operands.collect())
}

/// The bytes behind a parameter: as the driver left them, else as the program passed them.
fn struct_bytes<'a>(call: &Call<'a>, position: usize) -> Option<&'a [u8]> {
    let after = call
        .leave
        .and_then(|leave| leave.snapshot(position, field::POINTEE));
    let snapshot = after.or_else(|| call.snapshot(position, field::POINTEE));
    snapshot.and_then(|snapshot| snapshot.bytes.inline())
}

/// What a struct of node parameters describes; `child` makes the copy of a child graph.
pub(super) fn described(
    effects: &Effects,
    call: &Call<'_>,
    (position, node): (usize, NodeKind),
    child: &dyn Fn(u64) -> Arc<Graph>,
) -> Work {
    let read = || {
        let param = effects.function.params.get(position)?;
        match node {
            NodeKind::ChildGraph => return Some(Work::Child(child(call.argument(position)))),
            NodeKind::Host => return Some(Work::Host),
            NodeKind::Semaphores => return Some(Work::Semaphores),
            NodeKind::MemoryOps => return Some(Work::MemoryOperations),
            _ => {}
        }
        let name = param.c_type.trim_start_matches("const ");
        let structure = cutape_registry::structure(name.trim_end_matches([' ', '*']))?;
        let bytes = struct_bytes(call, position)?;
        let members = |prefix| Members {
            structure,
            bytes,
            prefix,
        };
        work_of(&members, (call, position), node, child)
    };
    read().unwrap_or(Work::Unknown)
}

fn work_of<'a>(
    members: &dyn Fn(&'static str) -> Members<'a>,
    (call, position): (&Call<'_>, usize),
    node: NodeKind,
    child: &dyn Fn(u64) -> Arc<Graph>,
) -> Option<Work> {
    let kernel = |prefix| {
        let members = members(prefix);
        let function = members.number("func").filter(|&function| function != 0);
        let three = |[x, y, z]: [&str; 3]| {
            Some([members.number(x)?, members.number(y)?, members.number(z)?])
        };
        Work::Kernel(KernelWork {
            function: function.or_else(|| members.number("kern")).unwrap_or(0),
            grid: three(["gridDimX", "gridDimY", "gridDimZ"]),
            block: three(["blockDimX", "blockDimY", "blockDimZ"]),
            shared: members.number("sharedMemBytes"),
            parameters: parameters(call, [Some(position), None]),
        })
    };
    let memset = |prefix| {
        let members = members(prefix);
        let address = members.number("dst")?;
        let [width, rows] = [members.number("width")?, members.number("height")?];
        let row = width.saturating_mul(members.number("elementSize")?);
        let is_empty = row == 0 || rows == 0;
        let extent = match rows {
            1 => Extent::flat(row),
            _ => Extent {
                row,
                pitch: members.number("pitch")?,
                rows,
            },
        };
        let operand = Operand {
            address,
            start: address,
            extent,
            is_write: true,
            is_device: true,
            name: "dst",
        };
        Some(Work::Memory(
            (!is_empty).then_some(operand).into_iter().collect(),
        ))
    };
    let allocation = |prefix| {
        let members = members(prefix);
        Some(Work::Allocation {
            address: members.number("dptr")?,
            size: members.number("bytesize")?,
        })
    };
    match node {
        NodeKind::Kernel => Some(kernel("")),
        NodeKind::Copy => members("").copy(),
        NodeKind::Memset => memset(""),
        NodeKind::Host => Some(Work::Host),
        NodeKind::Semaphores => Some(Work::Semaphores),
        NodeKind::MemoryOps => Some(Work::MemoryOperations),
        NodeKind::Allocation => allocation(""),
        NodeKind::ChildGraph => None,
        NodeKind::Any => match members("").number("type")? {
            kind::KERNEL => Some(kernel("kernel.")),
            kind::COPY => members("memcpy.copyParams.").copy(),
            kind::MEMSET => memset("memset."),
            kind::HOST => Some(Work::Host),
            kind::GRAPH => members("graph.")
                .number("graph")
                .map(child)
                .map(Work::Child),
            kind::EMPTY => Some(Work::Empty),
            kind::WAIT_EVENT | kind::EVENT_RECORD => Some(Work::Event),
            kind::SIGNAL | kind::WAIT => Some(Work::Semaphores),
            kind::ALLOCATION => allocation("alloc."),
            kind::FREE => {
                let address = members("free.").number("dptr")?;
                Some(Work::Free { address })
            }
            kind::MEMORY_OPERATIONS => Some(Work::MemoryOperations),
            kind::CONDITIONAL => Some(Work::Conditional),
            _ => None,
        },
    }
}

/// The bytes of kernel parameters behind these positions.
fn parameters(call: &Call<'_>, positions: [Option<usize>; 2]) -> Arc<[u8]> {
    let mut positions = positions.into_iter().flatten();
    let snapshot = positions.find_map(|position| call.snapshot(position, field::KERNEL_PARAMETERS));
    let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
    bytes.unwrap_or_default().into()
}

/// The node that a call becomes whose roles say everything.
pub(super) fn plain(effects: &Effects, call: &Call<'_>, child: &dyn Fn(u64) -> Arc<Graph>) -> Work {
    let params = || effects.function.params.iter().enumerate();
    if let Some(position) = effects.at("childGraph") {
        return Work::Child(child(call.argument(position)));
    }
    if let Some((position, _)) = params().find(|(_, param)| param.c_type == "CUdeviceptr") {
        return Work::Free {
            address: call.argument(position),
        };
    }
    let has_event =
        params().any(|(_, param)| matches!(param.role, Role::Use(cutape_registry::Kind::Event)));
    match has_event {
        true => Work::Event,
        false => Work::Empty,
    }
}

/// The node that a captured call becomes.
pub(crate) fn captured(effects: &Effects, call: &Call<'_>) -> Work {
    let function = effects.function;
    let kernel = |positions: [Option<u8>; 2]| {
        let shape = LaunchShape::of(function, call);
        Work::Kernel(KernelWork {
            function: shape.kernel.unwrap_or(0),
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared,
            parameters: parameters(call, positions.map(|position| position.map(usize::from))),
        })
    };
    match function.family {
        Family::Launch(LaunchOp::Arguments(launch)) => {
            kernel([Some(launch.parameters), launch.extra])
        }
        Family::Launch(LaunchOp::Config(launch)) => {
            kernel([Some(launch.parameters), Some(launch.extra)])
        }
        Family::Copy(CopyOp::Described(_)) => {
            described_accesses(function, call).map_or(Work::Unknown, |sides| copy_of(&sides))
        }
        Family::Copy(CopyOp::Batch { .. } | CopyOp::Batch3D { .. }) => Work::Unknown,
        Family::Copy(_) | Family::Memset => {
            let is_unified = matches!(function.family, Family::Copy(CopyOp::Unified(_)));
            let params = function.params.iter().enumerate();
            let operands = params.filter_map(|(position, param)| {
                let (length, is_device, is_write) = match param.role {
                    Role::DeviceRead(length) => (length, !is_unified, false),
                    Role::DeviceWrite(length) => (length, !is_unified, true),
                    Role::HostRead(length) => (length, false, false),
                    Role::HostWrite(length) => (length, false, true),
                    _ => return None,
                };
                let extent = length.evaluate(function, &CallArguments(call));
                Some(Operand {
                    address: call.argument(position),
                    start: call.argument(position),
                    extent: extent.unwrap_or(Extent::flat(1)),
                    is_write,
                    is_device,
                    name: param.name,
                })
            });
            Work::Memory(operands.filter(|operand| operand.address != 0).collect())
        }
        Family::Memory(MemoryOp::AllocateAsync) => {
            let kind = cutape_registry::Kind::Memory;
            let output = effects.objects.iter().find_map(|(position, effect)| {
                matches!(effect, crate::effects::Effect::Create(..)).then_some(*position)
            });
            let address = output.and_then(|position| call.out(position));
            match address {
                Some(address) => Work::Allocation {
                    address,
                    size: effects.size_of(call, kind),
                },
                None => Work::Unknown,
            }
        }
        Family::Memory(MemoryOp::FreeAsync) => Work::Free {
            address: call.argument(0),
        },
        Family::HostFunction | Family::StreamCallback => Work::Host,
        Family::StreamMemory(_) => Work::MemoryOperations,
        _ if effects.action == Action::UnknownWait => Work::Semaphores,
        _ => Work::Unknown,
    }
}
