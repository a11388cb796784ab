//! The sequences, by area.

pub(crate) mod context;
pub(crate) mod errata;
pub(crate) mod errors;
pub(crate) mod failures;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod order;
pub(crate) mod others;
pub(crate) mod pending;
pub(crate) mod performance;
pub(crate) mod ranks;
pub(crate) mod stream;
pub(crate) mod texture;

/// A context, a module with a function and a global, a stream, an event, memory.
pub(crate) const START: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x300 Flags=1
    cuEventCreate phEvent:=0x400
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
";

/// Rule, start, what breaks it, what does not.
pub(crate) type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// All of them.
pub(crate) const ALL: &[&[Row]] = &[
    context::CONTEXTS,
    errata::ERRATA,
    errors::ERRORS,
    graph::GRAPHS,
    launch::ATTRIBUTES,
    launch::EXEC,
    launch::SHAPES,
    link::LINKS,
    memory::MEMORY,
    module::MODULE,
    order::ORDER,
    pending::PENDING,
    others::LIBRARIES,
    others::OTHERS,
    stream::STREAM,
    texture::TEXTURES,
    // After the rows whose findings are the examples of their rules.
    failures::FAILURES,
];
