//! What is mapped in this process: executables, libraries and the program's data files.

pub(crate) mod address_space;
pub(crate) mod data_files;
pub(crate) mod maps;
pub(crate) mod objects;
mod pages;
pub(crate) mod segments;
pub(crate) mod tensor_files;
mod tensor_header;
mod tensor_paths;

#[cfg(feature = "gum")]
pub(crate) use objects::is_in_base_namespace;
