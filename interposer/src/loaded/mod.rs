//! The executables and libraries that are loaded in this process.

pub(crate) mod address_space;
pub(crate) mod maps;
pub(crate) mod objects;
pub(crate) mod segments;

#[cfg(feature = "gum")]
pub(crate) use objects::is_in_base_namespace;
