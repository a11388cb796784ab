//! What the driver keeps: the types of its objects, of memory and of address space, without the
//! state that holds them.

pub(crate) mod address_space;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod jit_options;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pages;
pub(crate) mod queue;
pub(crate) mod shared_file;
pub(crate) mod stream;
pub(crate) mod stream_key;
pub(crate) mod table;
pub(crate) mod texture;
pub(crate) mod work;
