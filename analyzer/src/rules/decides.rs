//! Which rules each check decides: what `check --explain-silence` goes by. A debug build, and so
//! every test, fails if a check finds something of a rule that is not in its row.

use cutape_registry::rules;

use super::Rule::{self, Cause, Consequence};
use super::{
    capture, context, copy, errata, errors, events, function, graph, graph_structure, growth,
    image, init, jit_options, launch, library, lifetime, link, link_inputs, memory, module, peer,
    pool, race, tensor_map, texture, threads, undefined, usage, virtual_memory,
};

/// Checks, with the ids of the rules that they decide.
pub(super) type Decides = &'static [(Rule, &'static [&'static str])];

/// Rows of [`Decides`]: the kind of a check, its function, the rules.
macro_rules! decides {
    ($($kind:ident $module:ident::$check:ident => $($rule:ident)+;)*) => {
        &[$(($kind($module::$check), &[$(rules::$rule),+]),)*]
    };
}

const DECIDES: Decides = decides! {
    Consequence capture::asked_after => STREAM_CAPTURE_WAIT_ON_CAPTURED;
    Consequence capture::open_at_destroy => STREAM_CAPTURE_BRACKET;
    Consequence capture::refused => STREAM_CAPTURE_BRACKET STREAM_CAPTURE_CROSS_DEPENDENCY
        STREAM_CAPTURE_FORBIDDEN_CALL STREAM_CAPTURE_LEGACY_STREAM STREAM_CAPTURE_UNJOINED
        STREAM_CAPTURE_WAIT_ON_CAPTURED;
    Consequence context::checkpoint => CONTEXT_CHECKPOINT_STATE;
    Consequence context::green => CONTEXT_GREEN_MISUSE;
    Consequence context::limit => CONTEXT_LIMIT_ORDER;
    Cause context::reset_shared => CONTEXT_PRIMARY_RESET_SHARED;
    Cause copy::batch => MEMORY_BATCH_COPY_INVALID;
    Consequence copy::descriptor => MEMORY_COPY_DESCRIPTOR;
    Consequence copy::memset => MEMORY_COPY_DESCRIPTOR;
    Cause errata::address_range => DRIVER_DMA_BUF_MANAGED_POOL;
    Cause errata::capture_end => DRIVER_CONDITIONAL_CAPTURE_INVALIDATED;
    Cause errata::encoded_tensor_map => DRIVER_TENSOR_MAP_SMALL_ALLOCATION;
    Cause errata::graph_launch => DRIVER_GRAPH_LAUNCHED_WHILE_RUNNING;
    Cause errata::host_allocation => DRIVER_HOST_NUMA_ALLOCATION;
    Cause errata::image => DRIVER_JIT_AND_NOT;
    Cause errata::instantiation => DRIVER_CONDITIONAL_BODY_EMPTY
        DRIVER_CONDITIONAL_BODY_EMPTY_NODE;
    Cause errata::memset_node => DRIVER_GRAPH_MEMSET_POOL_MEMORY;
    Cause errata::pool_allocation => DRIVER_POOL_AFTER_PRIMARY_RESET
        DRIVER_POOL_OPPORTUNISTIC_REUSE;
    Cause errata::pool_creation => DRIVER_POOL_ACCESS_INHERITED;
    Cause errata::volume_copy => DRIVER_COPY_3D_POOL_MEMORY;
    Consequence errors::deprecated => ERRORS_DEPRECATED_API;
    Consequence errors::of_earlier_work => ERRORS_ASYNC_MISATTRIBUTED ERRORS_RESULT_IGNORED
        ERRORS_STICKY_CONTINUE MEMORY_HOST_POINTER_AS_KERNEL_ARGUMENT;
    Consequence errors::reserved => ERRORS_RESERVED_ARGUMENT_NONZERO;
    Cause errors::skipped_function => ERRORS_HOST_FUNCTION_SKIPPED;
    Consequence events::attachment => MEMORY_MANAGED_STREAM_ATTACHMENT;
    Consequence events::elapsed_early => EVENT_ELAPSED_NOT_COMPLETE;
    Consequence events::flags => EVENT_FLAGS_MISUSED;
    Consequence events::record_elsewhere => EVENT_RECORD_CONTEXT_MISMATCH;
    Consequence events::unattached => MEMORY_MANAGED_STREAM_ATTACHMENT;
    Cause events::waited_early => EVENT_WAIT_UNRECORDED;
    Consequence graph::allocation => GRAPH_ALLOCATION_LIFETIME;
    Cause graph::instantiate => GRAPH_ALLOCATION_LIFETIME GRAPH_BAKED_MODULE_UNLOADED
        GRAPH_BAKED_POINTER_FREED;
    Cause graph::launch => GRAPH_BAKED_MODULE_UNLOADED GRAPH_BAKED_POINTER_FREED
        GRAPH_DEVICE_UPDATABLE_RESTRICTIONS GRAPH_UPDATE_INCOMPATIBLE;
    Consequence graph::relaunch => GRAPH_RELAUNCH_UNFREED_ALLOCATION;
    Cause graph::unload => GRAPH_BAKED_MODULE_UNLOADED;
    Consequence graph_structure::forbidden => GRAPH_DEVICE_UPDATABLE_RESTRICTIONS
        GRAPH_MEMORY_NODE_RESTRICTIONS;
    Consequence graph_structure::instantiate => GRAPH_DEVICE_LAUNCH_RESTRICTIONS
        GRAPH_DEVICE_UPDATABLE_RESTRICTIONS GRAPH_MEMORY_NODE_RESTRICTIONS GRAPH_STRUCTURE_INVALID;
    Consequence graph_structure::structure => GRAPH_STRUCTURE_INVALID;
    Consequence graph_structure::user_objects => GRAPH_USER_OBJECT_REFERENCES;
    Cause growth::in_context => CONTEXT_OBJECTS_LEFT_BEHIND MEMORY_LEAK MODULE_LIVE_GROWTH;
    Cause growth::modules => MODULE_LIVE_GROWTH;
    Cause image::check => MODULE_FATBINARY_WRONG_KIND MODULE_FILE_NOT_FOUND
        MODULE_IMAGE_UNRECOGNISED MODULE_NO_BINARY_FOR_DEVICE MODULE_PTX_JIT_FAILURE
        MODULE_PTX_UNTERMINATED MODULE_UNRESOLVED_SYMBOL;
    Cause image::failed_input => MODULE_FATBINARY_WRONG_KIND MODULE_FILE_NOT_FOUND
        MODULE_IMAGE_UNRECOGNISED MODULE_NO_BINARY_FOR_DEVICE MODULE_PTX_JIT_FAILURE
        MODULE_PTX_UNTERMINATED MODULE_UNRESOLVED_SYMBOL;
    Consequence image::failed_later => MODULE_NO_BINARY_FOR_DEVICE MODULE_PTX_JIT_FAILURE
        MODULE_UNRESOLVED_SYMBOL;
    Consequence init::proc_address => INIT_PROC_ADDRESS_UNUSABLE;
    Cause jit_options::check => LINK_ADD_REJECTED_OPTION LINK_LTO_IR_TOO_NEW LINK_OPTION_CONFLICT
        LINK_OPTION_VALUE_BY_ADDRESS MODULE_JIT_OPTIONS_MALFORMED MODULE_JIT_OUTPUT_REUSED;
    Consequence library::kernel_as_function => LIBRARY_KERNEL_AS_FUNCTION;
    Cause library::launched => LIBRARY_FUNCTION_ATTRIBUTE_SHADOWS_KERNEL
        LIBRARY_GLOBAL_WRONG_CONTEXT;
    Consequence library::peer_copy => LIBRARY_GLOBAL_WRONG_CONTEXT;
    Cause library::preserved => LIBRARY_PRESERVED_IMAGE_FREED;
    Consequence library::shadowed => LIBRARY_FUNCTION_ATTRIBUTE_SHADOWS_KERNEL;
    Cause library::unmapped => LIBRARY_IMAGE_UNMAPPED;
    Consequence library::without_context => LIBRARY_GLOBAL_WRONG_CONTEXT;
    Consequence lifetime::current_context => CONTEXT_PRIMARY_RESET_SHARED CONTEXT_USE_AFTER_DESTROY;
    Cause lifetime::handles => CONTEXT_GREEN_MISUSE CONTEXT_PRIMARY_RESET_SHARED
        CONTEXT_RESOURCE_AFTER_DESTROY CONTEXT_USE_AFTER_DESTROY EVENT_USE_AFTER_DESTROY
        GRAPH_USE_AFTER_DESTROY LIBRARY_USE_AFTER_UNLOAD LINK_USE_AFTER_DESTROY MEMORY_DOUBLE_FREE
        MEMORY_POOL_MISUSE MEMORY_VMM_MAP_ORDER MODULE_DOUBLE_UNLOAD MODULE_FUNCTION_AFTER_UNLOAD
        MODULE_FUNCTION_NAME_AFTER_UNLOAD MODULE_USE_AFTER_UNLOAD STREAM_USE_AFTER_DESTROY;
    Cause link::check => LINK_ADD_AFTER_COMPLETE LINK_OPTION_VALUES_LIFETIME;
    Cause link::cubin_after_destroy => LINK_CUBIN_AFTER_DESTROY LINK_LOG_BUFFER_SHARED;
    Cause link::destroyed => LINK_OPTION_VALUES_LIFETIME;
    Cause link::leaked_in_context => LINK_STATE_LEAK;
    Cause link::memory_reused => LIBRARY_PRESERVED_IMAGE_FREED LINK_OPTION_VALUES_LIFETIME;
    Cause link::shared => LINK_LOG_BUFFER_SHARED;
    Consequence link_inputs::added => LINK_ADDRESS_SIZE_MISMATCH LINK_INPUT_TYPE_MISMATCH
        LINK_LTO_IR_TOO_NEW LINK_NON_RELOCATABLE_INPUT LINK_OPTION_WITHOUT_EFFECT
        LINK_PTX_UNTERMINATED;
    Consequence link_inputs::completed => ERRORS_RESULT_IGNORED LINK_NON_RELOCATABLE_INPUT
        MODULE_UNRESOLVED_SYMBOL;
    Consequence link_inputs::lacking => ERRORS_RESULT_IGNORED;
    Cause memory::described => CONTEXT_PRIMARY_RESET_SHARED CONTEXT_RESOURCE_AFTER_DESTROY
        LIBRARY_USE_AFTER_UNLOAD MEMORY_COPY_OUT_OF_BOUNDS MEMORY_USE_AFTER_FREE_OPERAND
        MODULE_GLOBAL_AFTER_UNLOAD;
    Cause memory::freed => CONTEXT_PRIMARY_RESET_SHARED CONTEXT_RESOURCE_AFTER_DESTROY
        LIBRARY_USE_AFTER_UNLOAD MEMORY_USE_AFTER_FREE_OPERAND MODULE_GLOBAL_AFTER_UNLOAD;
    Cause memory::live => MEMORY_COPY_OUT_OF_BOUNDS MEMORY_FREE_WRONG_KIND;
    Cause memory::parameters => CONTEXT_PRIMARY_RESET_SHARED CONTEXT_RESOURCE_AFTER_DESTROY
        LIBRARY_USE_AFTER_UNLOAD MEMORY_USE_AFTER_FREE_KERNEL_ARGUMENT MODULE_GLOBAL_AFTER_UNLOAD;
    Consequence memory::registered => MEMORY_HOST_REGISTER_OVERLAP;
    Cause module::both_null => MODULE_GLOBAL_OUTPUTS_BOTH_NULL;
    Cause module::enumerate => MODULE_ENUMERATE_TRUNCATED;
    Consequence module::null_unloaded => MODULE_DOUBLE_UNLOAD;
    Cause module::unload => MODULE_UNLOAD_LIBRARY_OWNED MODULE_UNLOAD_RUNTIME_OWNED
        MODULE_UNLOAD_WORK_PENDING MODULE_UNLOAD_WRONG_CONTEXT;
    Cause module::unload_library => MODULE_UNLOAD_WORK_PENDING;
    Cause peer::access_missing => PEER_ACCESS_MISSING;
    Consequence peer::copy_context => PEER_COPY_CONTEXT_MISMATCH;
    Consequence peer::enable_state => PEER_ENABLE_STATE;
    Consequence pool::refused => MEMORY_POOL_MISUSE;
    Cause race::changed_at_wait => MEMORY_RACE_HOST_ACCESS;
    Cause race::freed_while_pending => MEMORY_FREE_PENDING_WORK MEMORY_FREE_POOL_POINTER_IN_USE
        MEMORY_HOST_BUFFER_FREED_WHILE_PENDING MEMORY_POOL_ACCESS_UNORDERED;
    Cause race::overwritten => MEMORY_RACE_HOST_ACCESS;
    Cause race::reused => MEMORY_REUSE_CROSS_STREAM;
    Cause race::uninitialised => MEMORY_UNINITIALISED_READ;
    Cause race::unordered => MEMORY_PAGEABLE_H2D_UNORDERED MEMORY_POOL_ACCESS_UNORDERED
        MEMORY_RACE_CROSS_STREAM;
    Cause tensor_map::extent => TEXTURE_TENSOR_MAP_CONSTRAINTS;
    Cause tensor_map::launched => TEXTURE_TENSOR_MAP_STALE;
    Consequence tensor_map::refused => TEXTURE_TENSOR_MAP_CONSTRAINTS;
    Consequence texture::descriptor => TEXTURE_DESCRIPTOR_CONSTRAINTS;
    Cause texture::launched => TEXTURE_OBJECT_STALE;
    Consequence texture::mirrored => TEXTURE_DESCRIPTOR_CONSTRAINTS;
    Cause threads::destroyed_in_use => THREADING_DESTROY_WHILE_IN_USE;
    Consequence threads::graph_shared => THREADING_GRAPH_CONCURRENT_USE;
    Consequence threads::hidden_order => STREAM_MEMOP_HIDDEN_ORDER;
    Consequence threads::in_destructor => THREADING_HOST_FUNCTION_CALLS_CUDA;
    Consequence threads::in_host_function => THREADING_HOST_FUNCTION_CALLS_CUDA;
    Consequence threads::stuck_load => LIBRARY_LOAD_BEHIND_RUNNING_KERNEL;
    Consequence threads::stuck_value => STREAM_MEMOP_SELF_DEADLOCK;
    Consequence threads::value_operand => STREAM_MEMOP_OPERAND;
    Consequence undefined::not_found => MODULE_SYMBOL_NOT_FOUND;
    Consequence undefined::used => ERRORS_RESULT_IGNORED MODULE_LOAD_ALLOCATION_FAILURE
        MODULE_SYMBOL_NOT_FOUND;
    Consequence usage::elapsed => EVENT_ELAPSED_INVALID;
    Consequence usage::none_current => CONTEXT_NONE_CURRENT CONTEXT_UNBALANCED;
    Consequence usage::popped_too_often => CONTEXT_UNBALANCED;
    Consequence usage::released_too_often => CONTEXT_UNBALANCED;
    Cause virtual_memory::multicast => MEMORY_MULTICAST_ORDER;
    Consequence virtual_memory::operand_access => MEMORY_VMM_ACCESS_NOT_SET;
    Cause virtual_memory::parameter_access => MEMORY_VMM_ACCESS_NOT_SET;
    Consequence virtual_memory::refused => MEMORY_VMM_ACCESS_NOT_SET MEMORY_VMM_MAP_ORDER;
};

/// The rules that a check decides.
pub(super) fn decided_by(check: Rule) -> impl Iterator<Item = &'static str> {
    let tables = [DECIDES, launch::DECIDES, function::DECIDES];
    let rows = tables.into_iter().flatten();
    // Equal functions may have one address. No function has two: the compiler copies only those
    // that call nothing, and a check that finds something calls.
    let rows = rows.filter(move |(known, _)| known.address() == check.address());
    rows.flat_map(|(_, rules)| rules.iter().copied())
}

/// Whether some check of calls decides the rule.
pub(super) fn is_decided_at_calls(rule: &str) -> bool {
    let mut tables = [DECIDES, launch::DECIDES, function::DECIDES]
        .into_iter()
        .flatten();
    tables.any(|(_, rules)| rules.contains(&rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::rules::rules_of;

    #[test]
    fn every_check_has_a_row() {
        for function in &cutape_registry::FUNCTIONS {
            for (at, (_, check)) in rules_of(&Plan::new(function)).into_iter().enumerate() {
                let rules = decided_by(check).count();
                assert!(rules > 0, "check {at} of {}", function.name);
            }
        }
    }
}
