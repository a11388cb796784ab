//! What a launch, or a kernel node of a graph, passes.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{
    Family, GraphOp, LaunchArguments, LaunchAttribute, LaunchConfig, LaunchOp, NodeKind,
    NodeParams, OccupancyOp,
};

const CONFIG: &str = "CUlaunchConfig";
const CONFIG_STREAM: usize = offset_of(CONFIG, "hStream");
const CONFIG_ATTRIBUTES: usize = offset_of(CONFIG, "attrs");
const CONFIG_COUNT: usize = offset_of(CONFIG, "numAttrs");
const ATTRIBUTE_SIZE: usize = size_of("CUlaunchAttribute");
const ATTRIBUTE_VALUE: usize = offset_of("CUlaunchAttribute", "value.pad");
const NODE_KERNEL: usize = offset_of("CUgraphNodeParams", "kernel.func");
const LIST_ENTRY: usize = size_of("CUDA_LAUNCH_PARAMS");
/// CU_GRAPH_NODE_TYPE_KERNEL.
const NODE_TYPE_KERNEL: u32 = 0;

/// Where the members of a struct that describes a launch are. Six dimensions begin at `grid`.
struct Members {
    function: Option<usize>,
    grid: usize,
    shared: usize,
    stream: Option<usize>,
    pointers: Option<usize>,
    extra: Option<usize>,
    /// The kernel that replaces a function of NULL.
    kernel: Option<usize>,
}

const OF_CONFIG: Members = Members {
    function: None,
    grid: offset_of(CONFIG, "gridDimX"),
    shared: offset_of(CONFIG, "sharedMemBytes"),
    stream: Some(CONFIG_STREAM),
    pointers: None,
    extra: None,
    kernel: None,
};

const OF_NODE: Members = Members {
    function: Some(offset_of("CUDA_KERNEL_NODE_PARAMS", "func")),
    grid: offset_of("CUDA_KERNEL_NODE_PARAMS", "gridDimX"),
    shared: offset_of("CUDA_KERNEL_NODE_PARAMS", "sharedMemBytes"),
    stream: None,
    pointers: Some(offset_of("CUDA_KERNEL_NODE_PARAMS", "kernelParams")),
    extra: Some(offset_of("CUDA_KERNEL_NODE_PARAMS", "extra")),
    kernel: Some(offset_of("CUDA_KERNEL_NODE_PARAMS", "kern")),
};

const OF_LIST: Members = Members {
    function: Some(offset_of("CUDA_LAUNCH_PARAMS", "function")),
    grid: offset_of("CUDA_LAUNCH_PARAMS", "gridDimX"),
    shared: offset_of("CUDA_LAUNCH_PARAMS", "sharedMemBytes"),
    stream: Some(offset_of("CUDA_LAUNCH_PARAMS", "hStream")),
    pointers: Some(offset_of("CUDA_LAUNCH_PARAMS", "kernelParams")),
    extra: None,
    kernel: None,
};

/// One kernel as a call passes it.
#[derive(Clone, Debug)]
pub(crate) struct Launch<'c> {
    /// Handle of the function or kernel.
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
    /// `None` for a node of a graph, and where the call is only a question.
    pub(crate) stream: Option<u64>,
    /// `kernelParams`, and the position whose snapshot has what it leads to.
    pub(crate) pointers: (u64, usize),
    /// `extra`, and the position of its snapshots.
    pub(crate) extra: (u64, usize),
    pub(crate) attributes: LaunchAttributes<'c>,
    /// Launched by the call for cooperative launches, or by attribute.
    pub(crate) is_cooperative: bool,
}

impl<'c> Launch<'c> {
    /// The kernels that a call launches, adds as nodes or asks about. Empty if the trace does not
    /// show them.
    pub(crate) fn of(family: Family, call: &Call<'c>) -> Vec<Self> {
        let one = |launch: Option<Self>| launch.into_iter().collect();
        match family {
            Family::Launch(LaunchOp::Arguments(launch)) => vec![Self::of_arguments(launch, call)],
            Family::Launch(LaunchOp::Config(launch)) => one(Self::of_config(launch, call)),
            Family::Occupancy(OccupancyOp::Config { config, function }) => {
                one(Self::of_question(config, function, call))
            }
            Family::Launch(LaunchOp::MultiDevice { list, .. }) => {
                let bytes = pointee(call, list.into()).unwrap_or_default();
                let entries = bytes.chunks_exact(LIST_ENTRY);
                let launches = entries.filter_map(|entry| Self::read(entry, 0, list, &OF_LIST));
                launches.collect()
            }
            Family::Graph(
                GraphOp::AddNode(node) | GraphOp::SetNode(node) | GraphOp::SetExecNode(node),
            ) => one(Self::of_node(node, call)),
            _ => Vec::new(),
        }
    }

    fn of_arguments(launch: LaunchArguments, call: &Call<'c>) -> Self {
        let word = |at: u8| call.argument(usize::from(at));
        let side = |index: u8| word(launch.grid + index) as u32;
        let extra = launch.extra.map(|at| (word(at), usize::from(at)));
        Self {
            function: word(launch.function),
            grid: [side(0), side(1), side(2)],
            block: [side(3), side(4), side(5)],
            shared: word(launch.shared) as u32,
            stream: Some(word(launch.stream)),
            pointers: (word(launch.parameters), launch.parameters.into()),
            extra: extra.unwrap_or_default(),
            attributes: LaunchAttributes::default(),
            is_cooperative: launch.extra.is_none(),
        }
    }

    fn of_config(launch: LaunchConfig, call: &Call<'c>) -> Option<Self> {
        let word = |at: u8| (call.argument(usize::from(at)), usize::from(at));
        let of = Self::of_question(launch.config, launch.function, call)?;
        let bytes = pointee(call, launch.config.into())?;
        Some(Self {
            stream: u64_at(bytes, CONFIG_STREAM),
            pointers: word(launch.parameters),
            extra: word(launch.extra),
            ..of
        })
    }

    fn of_question(config: u8, function: u8, call: &Call<'c>) -> Option<Self> {
        let bytes = pointee(call, config.into())?;
        let attributes = LaunchAttributes::of(call, config.into());
        let cooperative = attributes.number(LaunchAttribute::Cooperative);
        Some(Self {
            function: call.argument(function.into()),
            stream: None,
            attributes,
            is_cooperative: cooperative.is_some_and(|value| value != 0),
            ..Self::read(bytes, 0, config, &OF_CONFIG)?
        })
    }

    fn of_node(node: NodeParams, call: &Call<'c>) -> Option<Self> {
        let bytes = pointee(call, node.position.into())?;
        match node.kind {
            NodeKind::Kernel => Self::read(bytes, 0, node.position, &OF_NODE),
            NodeKind::Any if u32_at(bytes, 0)? == NODE_TYPE_KERNEL => {
                Self::read(bytes, NODE_KERNEL, node.position, &OF_NODE)
            }
            _ => None,
        }
    }

    fn read(bytes: &[u8], base: usize, position: u8, members: &Members) -> Option<Self> {
        let word = |at: Option<usize>| at.and_then(|at| u64_at(bytes, base + at));
        let side = |index: usize| u32_at(bytes, base + members.grid + 4 * index);
        let function = word(members.function).unwrap_or(0);
        let kernel = || word(members.kernel).unwrap_or(0);
        let position = usize::from(position);
        Some(Self {
            function: if function == 0 { kernel() } else { function },
            grid: [side(0)?, side(1)?, side(2)?],
            block: [side(3)?, side(4)?, side(5)?],
            shared: u32_at(bytes, base + members.shared)?,
            stream: word(members.stream),
            pointers: (word(members.pointers).unwrap_or(0), position),
            extra: (word(members.extra).unwrap_or(0), position),
            attributes: LaunchAttributes::default(),
            is_cooperative: false,
        })
    }

    /// The threads of a block.
    pub(crate) fn threads(&self) -> u64 {
        product(self.block)
    }

    /// The cluster shape that the launch asks for by attribute.
    pub(crate) fn cluster(&self) -> Option<[u32; 3]> {
        self.attributes.shape(LaunchAttribute::ClusterDimension)
    }
}

/// The product of three sizes.
pub(crate) fn product(sizes: [u32; 3]) -> u64 {
    let sizes = sizes.into_iter().map(u64::from);
    sizes.fold(1, u64::saturating_mul)
}

/// `4×1×1`.
pub(crate) fn shape(sizes: [u32; 3]) -> String {
    format!("{}×{}×{}", sizes[0], sizes[1], sizes[2])
}

/// The attributes of a launch, as the call passes them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaunchAttributes<'c> {
    /// `attrs` and `numAttrs`.
    pub(crate) address: u64,
    pub(crate) count: u32,
    bytes: &'c [u8],
}

impl<'c> LaunchAttributes<'c> {
    /// Those of the configuration behind a parameter.
    pub(crate) fn of(call: &Call<'c>, config: usize) -> Self {
        let bytes = pointee(call, config).unwrap_or_default();
        let address = u64_at(bytes, CONFIG_ATTRIBUTES).unwrap_or(0);
        if address == 0 {
            let count = u32_at(bytes, CONFIG_COUNT).unwrap_or(0);
            return Self {
                count,
                ..Self::default()
            };
        }
        let entries = call.snapshot(config, field::ATTRIBUTES);
        Self {
            address,
            count: u32_at(bytes, CONFIG_COUNT).unwrap_or(0),
            bytes: entries.and_then(|s| s.bytes.inline()).unwrap_or_default(),
        }
    }

    /// Number and value of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &'c [u8])> + use<'c> {
        let entries = self.bytes.chunks_exact(ATTRIBUTE_SIZE);
        entries.filter_map(|entry| Some((u32_at(entry, 0)?, entry.get(ATTRIBUTE_VALUE..)?)))
    }

    /// The value of the last attribute with that number.
    pub(crate) fn value(&self, attribute: LaunchAttribute) -> Option<&'c [u8]> {
        let values = self.iter().filter(|(id, _)| *id == attribute as u32);
        values.map(|(_, value)| value).last()
    }

    /// A value that begins with a number.
    pub(crate) fn number(&self, attribute: LaunchAttribute) -> Option<u32> {
        u32_at(self.value(attribute)?, 0)
    }

    /// A value that begins with three sizes.
    pub(crate) fn shape(&self, attribute: LaunchAttribute) -> Option<[u32; 3]> {
        let value = self.value(attribute)?;
        Some([u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?])
    }
}

/// The bytes of a struct that a parameter points at.
pub(crate) fn pointee<'c>(call: &Call<'c>, position: usize) -> Option<&'c [u8]> {
    call.snapshot(position, field::POINTEE)?.bytes.inline()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}
