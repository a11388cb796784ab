//! Which rules each check decides: what `check --explain-silence` goes by. A debug build, and so
//! every test, fails if a check finds something of a rule that is not in its row.

use cutape_registry::rules;

use super::Rule::{self, Cause, Consequence};
use super::{
    capture, context, copy, errors, events, function, graph, graph_structure, growth, image, init,
    jit_options, launch, library, lifetime, link, link_inputs, memory, module, peer, pool, race,
    tensor_map, texture, threads, undefined, usage, virtual_memory,
};

/// Checks, with the ids of the rules that they decide.
pub(super) type Decides = &'static [(Rule, &'static [&'static str])];

const DECIDES: Decides = &[
    (
        Consequence(capture::asked_after),
        &[rules::STREAM_CAPTURE_WAIT_ON_CAPTURED],
    ),
    (
        Consequence(capture::open_at_destroy),
        &[rules::STREAM_CAPTURE_BRACKET],
    ),
    (
        Consequence(capture::refused),
        &[
            rules::STREAM_CAPTURE_BRACKET,
            rules::STREAM_CAPTURE_CROSS_DEPENDENCY,
            rules::STREAM_CAPTURE_FORBIDDEN_CALL,
            rules::STREAM_CAPTURE_LEGACY_STREAM,
            rules::STREAM_CAPTURE_UNJOINED,
            rules::STREAM_CAPTURE_WAIT_ON_CAPTURED,
        ],
    ),
    (
        Consequence(context::checkpoint),
        &[rules::CONTEXT_CHECKPOINT_STATE],
    ),
    (Consequence(context::green), &[rules::CONTEXT_GREEN_MISUSE]),
    (Consequence(context::limit), &[rules::CONTEXT_LIMIT_ORDER]),
    (
        Cause(context::reset_shared),
        &[rules::CONTEXT_PRIMARY_RESET_SHARED],
    ),
    (Cause(copy::batch), &[rules::MEMORY_BATCH_COPY_INVALID]),
    (
        Consequence(copy::descriptor),
        &[rules::MEMORY_COPY_DESCRIPTOR],
    ),
    (Consequence(copy::memset), &[rules::MEMORY_COPY_DESCRIPTOR]),
    (
        Consequence(errors::deprecated),
        &[rules::ERRORS_DEPRECATED_API],
    ),
    (
        Consequence(errors::of_earlier_work),
        &[
            rules::ERRORS_ASYNC_MISATTRIBUTED,
            rules::ERRORS_RESULT_IGNORED,
            rules::ERRORS_STICKY_CONTINUE,
            rules::MEMORY_HOST_POINTER_AS_KERNEL_ARGUMENT,
        ],
    ),
    (
        Consequence(errors::reserved),
        &[rules::ERRORS_RESERVED_ARGUMENT_NONZERO],
    ),
    (
        Cause(errors::skipped_function),
        &[rules::ERRORS_HOST_FUNCTION_SKIPPED],
    ),
    (
        Consequence(events::attachment),
        &[rules::MEMORY_MANAGED_STREAM_ATTACHMENT],
    ),
    (
        Consequence(events::elapsed_early),
        &[rules::EVENT_ELAPSED_NOT_COMPLETE],
    ),
    (Consequence(events::flags), &[rules::EVENT_FLAGS_MISUSED]),
    (
        Consequence(events::record_elsewhere),
        &[rules::EVENT_RECORD_CONTEXT_MISMATCH],
    ),
    (Cause(events::waited_early), &[rules::EVENT_WAIT_UNRECORDED]),
    (
        Consequence(graph::allocation),
        &[rules::GRAPH_ALLOCATION_LIFETIME],
    ),
    (
        Cause(graph::instantiate),
        &[
            rules::GRAPH_ALLOCATION_LIFETIME,
            rules::GRAPH_BAKED_MODULE_UNLOADED,
            rules::GRAPH_BAKED_POINTER_FREED,
        ],
    ),
    (
        Cause(graph::launch),
        &[
            rules::GRAPH_BAKED_MODULE_UNLOADED,
            rules::GRAPH_BAKED_POINTER_FREED,
            rules::GRAPH_DEVICE_UPDATABLE_RESTRICTIONS,
            rules::GRAPH_UPDATE_INCOMPATIBLE,
        ],
    ),
    (
        Consequence(graph::relaunch),
        &[rules::GRAPH_RELAUNCH_UNFREED_ALLOCATION],
    ),
    (Cause(graph::unload), &[rules::GRAPH_BAKED_MODULE_UNLOADED]),
    (
        Consequence(graph_structure::forbidden),
        &[
            rules::GRAPH_DEVICE_UPDATABLE_RESTRICTIONS,
            rules::GRAPH_MEMORY_NODE_RESTRICTIONS,
        ],
    ),
    (
        Consequence(graph_structure::instantiate),
        &[
            rules::GRAPH_DEVICE_LAUNCH_RESTRICTIONS,
            rules::GRAPH_DEVICE_UPDATABLE_RESTRICTIONS,
            rules::GRAPH_MEMORY_NODE_RESTRICTIONS,
            rules::GRAPH_STRUCTURE_INVALID,
        ],
    ),
    (
        Consequence(graph_structure::structure),
        &[rules::GRAPH_STRUCTURE_INVALID],
    ),
    (
        Consequence(graph_structure::user_objects),
        &[rules::GRAPH_USER_OBJECT_REFERENCES],
    ),
    (
        Cause(growth::in_context),
        &[
            rules::CONTEXT_OBJECTS_LEFT_BEHIND,
            rules::MEMORY_LEAK,
            rules::MODULE_LIVE_GROWTH,
        ],
    ),
    (Cause(growth::modules), &[rules::MODULE_LIVE_GROWTH]),
    (
        Cause(image::check),
        &[
            rules::MODULE_FATBINARY_WRONG_KIND,
            rules::MODULE_FILE_NOT_FOUND,
            rules::MODULE_IMAGE_UNRECOGNISED,
            rules::MODULE_NO_BINARY_FOR_DEVICE,
            rules::MODULE_PTX_JIT_FAILURE,
            rules::MODULE_PTX_UNTERMINATED,
            rules::MODULE_UNRESOLVED_SYMBOL,
        ],
    ),
    (
        Cause(image::failed_input),
        &[
            rules::MODULE_FATBINARY_WRONG_KIND,
            rules::MODULE_FILE_NOT_FOUND,
            rules::MODULE_IMAGE_UNRECOGNISED,
            rules::MODULE_NO_BINARY_FOR_DEVICE,
            rules::MODULE_PTX_JIT_FAILURE,
            rules::MODULE_PTX_UNTERMINATED,
            rules::MODULE_UNRESOLVED_SYMBOL,
        ],
    ),
    (
        Consequence(image::failed_later),
        &[
            rules::MODULE_NO_BINARY_FOR_DEVICE,
            rules::MODULE_PTX_JIT_FAILURE,
            rules::MODULE_UNRESOLVED_SYMBOL,
        ],
    ),
    (
        Consequence(init::proc_address),
        &[rules::INIT_PROC_ADDRESS_UNUSABLE],
    ),
    (
        Cause(jit_options::check),
        &[
            rules::LINK_ADD_REJECTED_OPTION,
            rules::LINK_LTO_IR_TOO_NEW,
            rules::LINK_OPTION_CONFLICT,
            rules::LINK_OPTION_VALUE_BY_ADDRESS,
            rules::MODULE_JIT_OPTIONS_MALFORMED,
            rules::MODULE_JIT_OUTPUT_REUSED,
        ],
    ),
    (
        Consequence(library::kernel_as_function),
        &[rules::LIBRARY_KERNEL_AS_FUNCTION],
    ),
    (
        Cause(library::launched),
        &[
            rules::LIBRARY_FUNCTION_ATTRIBUTE_SHADOWS_KERNEL,
            rules::LIBRARY_GLOBAL_WRONG_CONTEXT,
        ],
    ),
    (
        Consequence(library::peer_copy),
        &[rules::LIBRARY_GLOBAL_WRONG_CONTEXT],
    ),
    (
        Cause(library::preserved),
        &[rules::LIBRARY_PRESERVED_IMAGE_FREED],
    ),
    (
        Consequence(library::shadowed),
        &[rules::LIBRARY_FUNCTION_ATTRIBUTE_SHADOWS_KERNEL],
    ),
    (Cause(library::unmapped), &[rules::LIBRARY_IMAGE_UNMAPPED]),
    (
        Consequence(library::without_context),
        &[rules::LIBRARY_GLOBAL_WRONG_CONTEXT],
    ),
    (
        Consequence(lifetime::current_context),
        &[
            rules::CONTEXT_PRIMARY_RESET_SHARED,
            rules::CONTEXT_USE_AFTER_DESTROY,
        ],
    ),
    (
        Cause(lifetime::handles),
        &[
            rules::CONTEXT_GREEN_MISUSE,
            rules::CONTEXT_PRIMARY_RESET_SHARED,
            rules::CONTEXT_RESOURCE_AFTER_DESTROY,
            rules::CONTEXT_USE_AFTER_DESTROY,
            rules::EVENT_USE_AFTER_DESTROY,
            rules::GRAPH_USE_AFTER_DESTROY,
            rules::LIBRARY_USE_AFTER_UNLOAD,
            rules::LINK_USE_AFTER_DESTROY,
            rules::MEMORY_DOUBLE_FREE,
            rules::MEMORY_POOL_MISUSE,
            rules::MEMORY_VMM_MAP_ORDER,
            rules::MODULE_DOUBLE_UNLOAD,
            rules::MODULE_FUNCTION_AFTER_UNLOAD,
            rules::MODULE_FUNCTION_NAME_AFTER_UNLOAD,
            rules::MODULE_USE_AFTER_UNLOAD,
            rules::STREAM_USE_AFTER_DESTROY,
        ],
    ),
    (
        Cause(link::check),
        &[
            rules::LINK_ADD_AFTER_COMPLETE,
            rules::LINK_OPTION_VALUES_LIFETIME,
        ],
    ),
    (
        Cause(link::cubin_after_destroy),
        &[
            rules::LINK_CUBIN_AFTER_DESTROY,
            rules::LINK_LOG_BUFFER_SHARED,
        ],
    ),
    (Cause(link::leaked_in_context), &[rules::LINK_STATE_LEAK]),
    (
        Cause(link::memory_reused),
        &[
            rules::LIBRARY_PRESERVED_IMAGE_FREED,
            rules::LINK_OPTION_VALUES_LIFETIME,
        ],
    ),
    (Cause(link::shared), &[rules::LINK_LOG_BUFFER_SHARED]),
    (
        Consequence(link_inputs::added),
        &[
            rules::LINK_ADDRESS_SIZE_MISMATCH,
            rules::LINK_INPUT_TYPE_MISMATCH,
            rules::LINK_LTO_IR_TOO_NEW,
            rules::LINK_NON_RELOCATABLE_INPUT,
            rules::LINK_OPTION_WITHOUT_EFFECT,
            rules::LINK_PTX_UNTERMINATED,
        ],
    ),
    (
        Consequence(link_inputs::completed),
        &[
            rules::ERRORS_RESULT_IGNORED,
            rules::LINK_NON_RELOCATABLE_INPUT,
            rules::MODULE_UNRESOLVED_SYMBOL,
        ],
    ),
    (
        Consequence(link_inputs::lacking),
        &[rules::ERRORS_RESULT_IGNORED],
    ),
    (
        Cause(memory::described),
        &[
            rules::CONTEXT_PRIMARY_RESET_SHARED,
            rules::CONTEXT_RESOURCE_AFTER_DESTROY,
            rules::LIBRARY_USE_AFTER_UNLOAD,
            rules::MEMORY_COPY_OUT_OF_BOUNDS,
            rules::MEMORY_USE_AFTER_FREE_OPERAND,
            rules::MODULE_GLOBAL_AFTER_UNLOAD,
        ],
    ),
    (
        Cause(memory::freed),
        &[
            rules::CONTEXT_PRIMARY_RESET_SHARED,
            rules::CONTEXT_RESOURCE_AFTER_DESTROY,
            rules::LIBRARY_USE_AFTER_UNLOAD,
            rules::MEMORY_USE_AFTER_FREE_OPERAND,
            rules::MODULE_GLOBAL_AFTER_UNLOAD,
        ],
    ),
    (
        Cause(memory::live),
        &[
            rules::MEMORY_COPY_OUT_OF_BOUNDS,
            rules::MEMORY_FREE_WRONG_KIND,
        ],
    ),
    (
        Cause(memory::parameters),
        &[
            rules::CONTEXT_PRIMARY_RESET_SHARED,
            rules::CONTEXT_RESOURCE_AFTER_DESTROY,
            rules::LIBRARY_USE_AFTER_UNLOAD,
            rules::MEMORY_USE_AFTER_FREE_KERNEL_ARGUMENT,
            rules::MODULE_GLOBAL_AFTER_UNLOAD,
        ],
    ),
    (
        Cause(module::both_null),
        &[rules::MODULE_GLOBAL_OUTPUTS_BOTH_NULL],
    ),
    (
        Cause(module::enumerate),
        &[rules::MODULE_ENUMERATE_TRUNCATED],
    ),
    (
        Cause(module::unload),
        &[
            rules::MODULE_UNLOAD_LIBRARY_OWNED,
            rules::MODULE_UNLOAD_RUNTIME_OWNED,
            rules::MODULE_UNLOAD_WORK_PENDING,
            rules::MODULE_UNLOAD_WRONG_CONTEXT,
        ],
    ),
    (
        Cause(module::unload_library),
        &[rules::MODULE_UNLOAD_WORK_PENDING],
    ),
    (Cause(peer::access_missing), &[rules::PEER_ACCESS_MISSING]),
    (
        Consequence(peer::copy_context),
        &[rules::PEER_COPY_CONTEXT_MISMATCH],
    ),
    (Consequence(peer::enable_state), &[rules::PEER_ENABLE_STATE]),
    (Consequence(pool::refused), &[rules::MEMORY_POOL_MISUSE]),
    (
        Cause(race::changed_at_wait),
        &[rules::MEMORY_RACE_HOST_ACCESS],
    ),
    (
        Cause(race::freed_while_pending),
        &[
            rules::MEMORY_FREE_PENDING_WORK,
            rules::MEMORY_FREE_POOL_POINTER_IN_USE,
            rules::MEMORY_HOST_BUFFER_FREED_WHILE_PENDING,
            rules::MEMORY_POOL_ACCESS_UNORDERED,
        ],
    ),
    (Cause(race::overwritten), &[rules::MEMORY_RACE_HOST_ACCESS]),
    (Cause(race::reused), &[rules::MEMORY_REUSE_CROSS_STREAM]),
    (
        Cause(race::uninitialised),
        &[rules::MEMORY_UNINITIALISED_READ],
    ),
    (
        Cause(race::unordered),
        &[
            rules::MEMORY_PAGEABLE_H2D_UNORDERED,
            rules::MEMORY_POOL_ACCESS_UNORDERED,
            rules::MEMORY_RACE_CROSS_STREAM,
        ],
    ),
    (
        Cause(tensor_map::extent),
        &[rules::TEXTURE_TENSOR_MAP_CONSTRAINTS],
    ),
    (
        Cause(tensor_map::launched),
        &[rules::TEXTURE_TENSOR_MAP_STALE],
    ),
    (
        Consequence(tensor_map::refused),
        &[rules::TEXTURE_TENSOR_MAP_CONSTRAINTS],
    ),
    (
        Consequence(texture::descriptor),
        &[rules::TEXTURE_DESCRIPTOR_CONSTRAINTS],
    ),
    (Cause(texture::launched), &[rules::TEXTURE_OBJECT_STALE]),
    (
        Cause(threads::destroyed_in_use),
        &[rules::THREADING_DESTROY_WHILE_IN_USE],
    ),
    (
        Consequence(threads::graph_shared),
        &[rules::THREADING_GRAPH_CONCURRENT_USE],
    ),
    (
        Consequence(threads::hidden_order),
        &[rules::STREAM_MEMOP_HIDDEN_ORDER],
    ),
    (
        Consequence(threads::in_host_function),
        &[rules::THREADING_HOST_FUNCTION_CALLS_CUDA],
    ),
    (
        Consequence(threads::stuck_load),
        &[rules::LIBRARY_LOAD_BEHIND_RUNNING_KERNEL],
    ),
    (
        Consequence(threads::stuck_value),
        &[rules::STREAM_MEMOP_SELF_DEADLOCK],
    ),
    (
        Consequence(threads::value_operand),
        &[rules::STREAM_MEMOP_OPERAND],
    ),
    (
        Consequence(undefined::not_found),
        &[rules::MODULE_SYMBOL_NOT_FOUND],
    ),
    (
        Consequence(undefined::used),
        &[
            rules::ERRORS_RESULT_IGNORED,
            rules::MODULE_LOAD_ALLOCATION_FAILURE,
            rules::MODULE_SYMBOL_NOT_FOUND,
        ],
    ),
    (Consequence(usage::elapsed), &[rules::EVENT_ELAPSED_INVALID]),
    (
        Consequence(usage::none_current),
        &[rules::CONTEXT_NONE_CURRENT, rules::CONTEXT_UNBALANCED],
    ),
    (
        Consequence(usage::popped_too_often),
        &[rules::CONTEXT_UNBALANCED],
    ),
    (
        Consequence(usage::released_too_often),
        &[rules::CONTEXT_UNBALANCED],
    ),
    (
        Cause(virtual_memory::multicast),
        &[rules::MEMORY_MULTICAST_ORDER],
    ),
    (
        Consequence(virtual_memory::operand_access),
        &[rules::MEMORY_VMM_ACCESS_NOT_SET],
    ),
    (
        Cause(virtual_memory::parameter_access),
        &[rules::MEMORY_VMM_ACCESS_NOT_SET],
    ),
    (
        Consequence(virtual_memory::refused),
        &[
            rules::MEMORY_VMM_ACCESS_NOT_SET,
            rules::MEMORY_VMM_MAP_ORDER,
        ],
    ),
];

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
