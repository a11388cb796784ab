//! Functions that need more than the registry's roles, by what they are about; the files are named as the interposer's.

pub(crate) mod callback;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod entry_point;
pub(crate) mod jit;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod virtual_memory;

use cutape_format::Call;
use cutape_registry::Function;

use crate::interpret::{Played, Player};

/// Plays one call.
pub(crate) type Play = for<'t> fn(&mut Player<'t>, &Call<'t>, &'static Function) -> Played;

/// By documented name; a name speaks for all its ABI variants, which the class of the symbol has let through.
const TABLE: &[(&str, Play)] = &[
    ("cuDevicePrimaryCtxSetFlags", context::set_flags),
    ("cuGetExportTable", entry_point::export_table),
    ("cuGetProcAddress", entry_point::proc_address),
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
    ("cuMemcpy", copy::unified),
    ("cuMemcpy2D", copy::described),
    ("cuMemcpy2DAsync", copy::described),
    ("cuMemcpy2DUnaligned", copy::described),
    ("cuMemcpy3D", copy::described),
    ("cuMemcpy3DAsync", copy::described),
    ("cuMemcpy3DPeer", copy::described),
    ("cuMemcpy3DPeerAsync", copy::described),
    ("cuMemcpyAsync", copy::unified),
    ("cuModuleLoad", module::load_file),
    ("cuModuleLoadData", module::load_data),
    ("cuModuleLoadDataEx", module::load_data),
    ("cuModuleLoadFatBinary", module::load_data),
    ("cuStreamAddCallback", callback::stream_callback),
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
            assert!(FUNCTIONS.iter().any(|function| function.base == *name), "{name}");
        }
    }

    #[test]
    fn every_override_of_the_registry_is_played() {
        for function in FUNCTIONS.iter().filter(|function| function.class == Class::Override) {
            assert!(of(function).is_some(), "{} has no override", function.name);
        }
    }
}
