//! The replaying process: what is mapped in it and how it is kept as the recorded process was, and
//! what it shows to the process that guards it. Knows nothing of CUDA.

pub(crate) mod address_space;
pub(crate) mod allocator;
pub(crate) mod arenas;
pub(crate) mod lesson;
pub(crate) mod mapping;
pub(crate) mod memory_file;
pub(crate) mod pages;
pub(crate) mod position;
pub(crate) mod randomisation;
pub(crate) mod slots;
pub(crate) mod strategy;
pub(crate) mod waiting_threads;
