//! What the C type of a parameter says about the memory behind it.

use cutape_registry::{Family, Function, Length, Param, PointerOp, Role, structure};

/// The type behind a pointer: `T` of `const T *`.
pub(crate) fn pointee(c_type: &str) -> Option<&str> {
    let target = c_type.trim_end().strip_suffix('*')?.trim();
    Some(target.strip_prefix("const ").unwrap_or(target))
}

/// True for a pointer to an address.
pub(crate) fn is_address(c_type: &str) -> bool {
    c_type.contains("CUdeviceptr") || c_type.replace(' ', "") == "void**"
}

/// True for the memory of an attribute whose type depends on which one it is.
pub(crate) fn is_range_attribute(function: &Function) -> bool {
    function.family == Family::Pointer(PointerOp::RangeAttribute)
}

/// True if what a call puts behind a parameter never holds anything that has to be replaced.
pub(crate) fn is_plain_output(function: &Function, param: &Param) -> bool {
    let (Role::Out(length) | Role::InOut(length)) = param.role else {
        return false;
    };
    !matches!(length, Length::ByAttribute(..))
        && !is_range_attribute(function)
        && !is_address(param.c_type)
        && pointee(param.c_type).is_none_or(|name| structure(name).is_none())
}
