//! Functions that need more than the registry's roles, by what they are about; the files are named as the interposer's.

pub(crate) mod batch;
pub(crate) mod callback;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod entry_point;
pub(crate) mod graph;
pub(crate) mod graph_node;
pub(crate) mod jit;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod origin;
pub(crate) mod pointer;
pub(crate) mod stream_memory;
pub(crate) mod virtual_memory;

use cutape_format::Call;
use cutape_registry::Function;

use crate::issue::player::{Played, Player};

/// Plays one call.
pub(crate) type Play = for<'t> fn(&mut Player<'t>, &Call<'t>, &'static Function) -> Played;

/// By documented name; a name speaks for all its ABI variants, which the class of the symbol has let through.
const TABLE: &[(&str, Play)] = &[
    ("cuDeviceGetByPCIBusId", device::by_bus_id),
    ("cuDevicePrimaryCtxSetFlags", context::set_flags),
    ("cuGetExportTable", entry_point::export_table),
    ("cuGetProcAddress", entry_point::proc_address),
    ("cuGraphAddBatchMemOpNode", graph_node::given),
    ("cuGraphAddHostNode", graph_node::given),
    ("cuGraphAddKernelNode", graph_node::given),
    ("cuGraphAddMemAllocNode", graph_node::given),
    ("cuGraphAddMemcpyNode", graph_node::given),
    ("cuGraphAddMemsetNode", graph_node::given),
    ("cuGraphAddNode", graph_node::given),
    ("cuGraphBatchMemOpNodeGetParams", graph_node::asked),
    ("cuGraphBatchMemOpNodeSetParams", graph_node::given),
    ("cuGraphConditionalHandleCreate", graph::condition),
    ("cuGraphDebugDotPrint", graph::dot),
    ("cuGraphExecBatchMemOpNodeSetParams", graph_node::given),
    ("cuGraphExecHostNodeSetParams", graph_node::given),
    ("cuGraphExecKernelNodeSetParams", graph_node::given),
    ("cuGraphExecMemcpyNodeSetParams", graph_node::given),
    ("cuGraphExecMemsetNodeSetParams", graph_node::given),
    ("cuGraphExecNodeSetParams", graph_node::given),
    ("cuGraphGetEdges", graph::list_nodes),
    ("cuGraphGetNodes", graph::list_nodes),
    ("cuGraphGetRootNodes", graph::list_nodes),
    ("cuGraphHostNodeGetParams", graph_node::asked),
    ("cuGraphHostNodeSetParams", graph_node::given),
    ("cuGraphInstantiateWithParams", graph::instantiate),
    ("cuGraphKernelNodeGetAttribute", graph::get_attribute),
    ("cuGraphKernelNodeGetParams", graph_node::asked),
    ("cuGraphKernelNodeSetAttribute", graph::set_attribute),
    ("cuGraphKernelNodeSetParams", graph_node::given),
    ("cuGraphLaunch", graph::launch),
    ("cuGraphMemAllocNodeGetParams", graph_node::asked),
    ("cuGraphMemcpyNodeGetParams", graph_node::asked),
    ("cuGraphMemcpyNodeSetParams", graph_node::given),
    ("cuGraphMemsetNodeGetParams", graph_node::asked),
    ("cuGraphMemsetNodeSetParams", graph_node::given),
    ("cuGraphNodeGetDependencies", graph::list_nodes),
    ("cuGraphNodeGetDependentNodes", graph::list_nodes),
    ("cuGraphNodeSetParams", graph_node::given),
    ("cuLaunchCooperativeKernel", launch::cooperative),
    ("cuLaunchCooperativeKernelMultiDevice", launch::multi_device),
    ("cuLaunchHostFunc", callback::host_function),
    ("cuLaunchKernel", launch::kernel),
    ("cuLaunchKernelEx", launch::kernel_ex),
    ("cuLibraryLoadData", library::load_data),
    ("cuLibraryLoadFromFile", library::load_file),
    ("cuLinkAddData", link::add_data),
    ("cuLinkAddFile", link::add_file),
    ("cuLinkComplete", link::complete),
    ("cuLinkCreate", link::create),
    ("cuLinkDestroy", link::destroy),
    ("cuMemAddressFree", virtual_memory::free),
    ("cuMemAddressReserve", virtual_memory::reserve),
    ("cuMemAlloc", memory::allocate),
    ("cuMemAllocHost", memory::allocate_host),
    ("cuMemAllocPitch", memory::allocate),
    ("cuMemFree", memory::free),
    ("cuMemFreeAsync", memory::free),
    ("cuMemFreeHost", memory::free_host),
    ("cuMemGetAddressRange", memory::address_range),
    ("cuMemHostAlloc", memory::allocate_host),
    ("cuMemHostGetDevicePointer", memory::device_pointer),
    ("cuMemHostGetFlags", memory::host_flags),
    ("cuMemHostRegister", memory::register),
    ("cuMemHostUnregister", memory::unregister),
    ("cuMemRangeGetAttributes", pointer::range_attributes),
    ("cuMemcpy", copy::unified),
    ("cuMemcpy2D", copy::described),
    ("cuMemcpy2DAsync", copy::described),
    ("cuMemcpy2DUnaligned", copy::described),
    ("cuMemcpy3D", copy::described),
    ("cuMemcpy3DAsync", copy::described),
    ("cuMemcpy3DBatchAsync", batch::boxes),
    ("cuMemcpy3DPeer", copy::described),
    ("cuMemcpy3DPeerAsync", copy::described),
    ("cuMemcpyAsync", copy::unified),
    ("cuMemcpyBatchAsync", batch::lines),
    ("cuModuleLoad", module::load_file),
    ("cuModuleLoadData", module::load_data),
    ("cuModuleLoadDataEx", module::load_data),
    ("cuModuleLoadFatBinary", module::load_data),
    ("cuOccupancyMaxActiveClusters", launch::clusters),
    ("cuOccupancyMaxPotentialClusterSize", launch::clusters),
    ("cuPointerGetAttribute", pointer::attribute),
    ("cuPointerGetAttributes", pointer::attributes),
    ("cuPointerSetAttribute", pointer::set_attribute),
    ("cuStreamAddCallback", callback::stream_callback),
    ("cuStreamBatchMemOp", stream_memory::batch),
    ("cuStreamGetCaptureInfo", graph::capture_info),
    ("cuStreamWaitValue32", stream_memory::wait),
    ("cuStreamWaitValue64", stream_memory::wait),
    ("cuUserObjectCreate", graph::user_object),
];

/// What plays the calls of a function, if the registry's roles alone do not.
pub(crate) fn of(function: &Function) -> Option<Play> {
    TABLE
        .binary_search_by(|entry| entry.0.cmp(function.base))
        .ok()
        .map(|position| TABLE[position].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_registry::{Class, FUNCTIONS};

    #[test]
    fn the_table_is_sorted_and_names_functions() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (name, _) in TABLE {
            assert!(
                FUNCTIONS.iter().any(|function| function.base == *name),
                "{name}"
            );
        }
    }

    #[test]
    fn every_override_of_the_registry_is_played() {
        for function in FUNCTIONS
            .iter()
            .filter(|function| function.class == Class::Override)
        {
            assert!(of(function).is_some(), "{} has no override", function.name);
        }
    }
}
