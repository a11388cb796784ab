//! The functions of the API, one file a section of the CUDA driver API manual, each with a table
//! `ENTRIES`.

pub(crate) mod code {
    //! Images: modules, libraries, the JIT linker.
    pub(crate) mod library;
    pub(crate) mod link;
    pub(crate) mod module;
}
pub(crate) mod context {
    //! Devices, contexts, and the driver itself.
    pub(crate) mod device;
    pub(crate) mod entry_point;
    pub(crate) mod error;
    pub(crate) mod error_log;
    pub(crate) mod green;
    pub(crate) mod management;
    pub(crate) mod primary;
}
pub(crate) mod execution {
    //! Functions and their launches.
    pub(crate) mod function;
    pub(crate) mod launch;
    pub(crate) mod legacy_launch;
    pub(crate) mod occupancy;
}
pub(crate) mod graph {
    //! Graphs, their nodes, and their execution.
    pub(crate) mod exec;
    pub(crate) mod management;
    pub(crate) mod node;
    pub(crate) mod user_object;
}
pub(crate) mod memory {
    //! Memory of all kinds, copies and memsets.
    pub(crate) mod array;
    pub(crate) mod batch;
    pub(crate) mod copy;
    pub(crate) mod hint;
    pub(crate) mod ipc;
    pub(crate) mod linear;
    pub(crate) mod memset;
    pub(crate) mod pointer;
    pub(crate) mod pool;
    pub(crate) mod virtual_memory;
}
pub(crate) mod private_tables;
pub(crate) mod stream {
    //! Streams, events, stream capture.
    pub(crate) mod capture;
    pub(crate) mod event;
    pub(crate) mod host_function;
    pub(crate) mod management;
}
pub(crate) mod texture {
    //! Textures, surfaces, tensor maps.
    pub(crate) mod object;
    pub(crate) mod reference;
    pub(crate) mod tensor_map;
}
