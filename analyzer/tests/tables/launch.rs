//! Launches, and functions before they are launched.

use super::Row;

/// A context, a module with the kernels of launches, one of them, a stream, an event, memory.
const LAUNCH: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX_LAUNCH
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x300 Flags=1
    cuEventCreate phEvent:=0x400 Flags=2
    cuMemAlloc_v2 dptr:=0x10000 bytesize=4096
";

/// A second device with its own context, function and stream; the first context is current.
const DEVICES: &str = "
    cuInit Flags=0
    cuCtxCreate_v2 pctx:=0xc2 dev=1
    cuModuleLoadData module:=0x101 image@0x6000:PTX_LAUNCH
    cuModuleGetFunction hfunc:=0x201 hmod=0x101 name=\"k\"
    cuStreamCreate phStream:=0x301 Flags=1
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuModuleLoadData module:=0x100 image@0x5000:PTX_LAUNCH
    cuModuleGetFunction hfunc:=0x200 hmod=0x100 name=\"k\"
    cuStreamCreate phStream:=0x300 Flags=1
";

/// A lookup of another kernel, as function 0x202.
macro_rules! find {
    ($name:literal) => {
        concat!(
            "cuModuleGetFunction hfunc:=0x202 hmod=0x100 name=\"",
            $name,
            "\"\n"
        )
    };
}

/// `cuLaunchKernel` of a function with one-dimensional grid and block; what follows overrides.
macro_rules! launch {
    ($function:literal, $grid:literal, $block:literal, $rest:literal) => {
        concat!(
            "cuLaunchKernel f=",
            $function,
            " gridDimX=",
            $grid,
            " gridDimY=1 gridDimZ=1 blockDimX=",
            $block,
            " blockDimY=1 blockDimZ=1 hStream=0x300 kernelParams=0x9000 ",
            $rest,
            "\n"
        )
    };
}

/// `cuLaunchCooperativeKernel` in the same way.
macro_rules! cooperative {
    ($function:literal, $grid:literal, $block:literal, $rest:literal) => {
        concat!(
            "cuLaunchCooperativeKernel f=",
            $function,
            " gridDimX=",
            $grid,
            " gridDimY=1 gridDimZ=1 blockDimX=",
            $block,
            " blockDimY=1 blockDimZ=1 hStream=0x300 kernelParams=0x9000 ",
            $rest,
            "\n"
        )
    };
}

/// `cuLaunchKernelEx` of a function with one-dimensional grid and block of 32, and a number of
/// attributes.
macro_rules! launch_ex {
    ($function:literal, $grid:literal, $count:literal, $rest:literal) => {
        concat!(
            "cuLaunchKernelEx f=",
            $function,
            " config%",
            $grid,
            ",1,1,32,1,1,0,0,0x300,0,0x8000,0,",
            $count,
            ",0 kernelParams=0x9000 ",
            $rest,
            "\n"
        )
    };
}

/// An entry of `CUDA_LAUNCH_PARAMS`: function, grid, stream.
macro_rules! entry {
    ($function:literal, $grid:literal, $stream:literal) => {
        concat!(
            $function,
            ",0,",
            $grid,
            ",1,1,32,1,1,0,0,",
            $stream,
            ",0,0x9000,0"
        )
    };
}

/// `cuLaunchCooperativeKernelMultiDevice` of two entries.
macro_rules! both {
    ($first:expr, $second:expr, $rest:literal) => {
        concat!(
            "cuLaunchCooperativeKernelMultiDevice numDevices=2 launchParamsList%",
            $first,
            ",",
            $second,
            " ",
            $rest,
            "\n"
        )
    };
}

#[rustfmt::skip]
pub(crate) const EXEC: &[Row] = &[
    (
        "exec-attribute-needs-loaded-function",
        LAUNCH,
        "cuModuleEnumerateFunctions functions:=[0x210] numFunctions=11 mod=0x100\n\
         cuFuncGetAttribute pi:=0 attrib=0 hfunc=0x210 -> 913",
        &["cuModuleEnumerateFunctions functions:=[0x210] numFunctions=11 mod=0x100\n\
           cuFuncLoad function=0x210\n cuFuncGetAttribute pi:=1024 attrib=0 hfunc=0x210"],
    ),
    (
        "exec-attribute-read-only",
        LAUNCH,
        "cuFuncSetAttribute hfunc=0x200 attrib=4 value=32 -> 1",
        &[
            "cuFuncGetAttribute pi:=32 attrib=4 hfunc=0x200",
            // An attribute of a later driver.
            "cuFuncSetAttribute hfunc=0x200 attrib=20 value=1 -> 1",
        ],
    ),
    (
        "exec-attribute-cluster-partial",
        LAUNCH,
        concat!(
            "cuFuncSetAttribute hfunc=0x200 attrib=11 value=2\n",
            launch!("0x200", "4", "32", "-> 912"),
        ),
        &[concat!(
            "cuFuncSetAttribute hfunc=0x200 attrib=11 value=2\n",
            "cuFuncSetAttribute hfunc=0x200 attrib=12 value=1\n",
            "cuFuncSetAttribute hfunc=0x200 attrib=13 value=1\n",
            launch!("0x200", "4", "32", ""),
        )],
    ),
    (
        "exec-attribute-cluster-compile-time",
        LAUNCH,
        concat!(find!("clustered"), "cuFuncSetAttribute hfunc=0x202 attrib=11 value=4 -> 1"),
        &[concat!(find!("choosing"), "cuFuncSetAttribute hfunc=0x202 attrib=11 value=4")],
    ),
    (
        "exec-attribute-dynamic-smem-over-limit",
        LAUNCH,
        concat!(find!("shared"), "cuFuncSetAttribute hfunc=0x202 attrib=8 value=232448 -> 1"),
        &[
            concat!(find!("shared"), "cuFuncSetAttribute hfunc=0x202 attrib=8 value=231424"),
            // A program that does without.
            concat!(
                find!("shared"), "cuFuncSetAttribute hfunc=0x202 attrib=8 value=232448 -> 1\n",
                launch!("0x202", "1", "32", ""),
            ),
            // A program that looks for the largest size.
            "cuFuncSetAttribute hfunc=0x200 attrib=8 value=262144 -> 1\n\
             cuFuncSetAttribute hfunc=0x200 attrib=8 value=131072",
        ],
    ),
    (
        "exec-attribute-dynamic-smem-over-limit",
        LAUNCH,
        // That another function takes it proves nothing.
        concat!(
            find!("shared"), "cuFuncSetAttribute hfunc=0x202 attrib=8 value=232448 -> 1\n",
            "cuFuncSetAttribute hfunc=0x200 attrib=8 value=232448",
        ),
        &[],
    ),
    (
        "exec-attribute-value-domain",
        LAUNCH,
        "cuFuncSetAttribute hfunc=0x200 attrib=9 value=150 -> 1",
        &["cuFuncSetAttribute hfunc=0x200 attrib=9 value=-1"],
    ),
    (
        "exec-attribute-value-domain",
        LAUNCH,
        "cuFuncSetAttribute hfunc=0x200 attrib=14 value=7",
        &["cuFuncSetAttribute hfunc=0x200 attrib=14 value=1"],
    ),
    (
        "exec-attribute-value-domain",
        LAUNCH,
        "cuFuncSetCacheConfig hfunc=0x200 config=42 -> 1",
        &["cuFuncSetCacheConfig hfunc=0x200 config=3"],
    ),
    (
        "exec-attribute-value-domain",
        LAUNCH,
        launch_ex!("0x200", "1", "1", "launch_attrs=14:150 -> 1"),
        &[launch_ex!("0x200", "1", "1", "launch_attrs=14:50")],
    ),
    (
        "exec-attribute-legacy-version",
        LAUNCH,
        "cuFuncGetAttribute pi:=0 attrib=5 hfunc=0x200",
        &["cuFuncGetAttribute pi:=90 attrib=5 hfunc=0x200\n\
           cuFuncGetAttribute pi:=0 attrib=1 hfunc=0x200"],
    ),
    (
        "exec-introspection-arguments",
        LAUNCH,
        "cuFuncGetParamInfo func=0x200 paramIndex=1000 paramOffset:=0 paramSize:=0 -> 1",
        &[
            // The way to count parameters.
            "cuFuncGetParamInfo func=0x200 paramIndex=0 paramOffset:=0\n\
             cuFuncGetParamInfo func=0x200 paramIndex=1 paramOffset:=0 -> 1",
            "cuFuncGetParamInfo func=0x200 paramIndex=0 paramOffset:=0 -> 1",
        ],
    ),
    (
        "exec-introspection-arguments",
        LAUNCH,
        "cuFuncGetName name:=0x9000 hfunc=0 -> 1",
        &["cuFuncGetName name:=0x9000 name/17=\"k\" hfunc=0x200"],
    ),
    (
        "exec-params-both-set",
        LAUNCH,
        launch!("0x200", "1", "32", "extra_words=1,0x5000,2,0x6000,0 extra_bytes=8 -> 1"),
        &[launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=8")],
    ),
    (
        "exec-params-both-set",
        LAUNCH,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddKernelNode phGraphNode:=0x810 hGraph=0x800 \
         nodeParams%0x200,0,1,1,1,32,1,1,0,0,0x9000,0,0xa000,0 -> 1",
        &["cuGraphCreate phGraph:=0x800\n cuGraphAddKernelNode phGraphNode:=0x810 hGraph=0x800 \
           nodeParams%0x200,0,1,1,1,32,1,1,0,0,0x9000,0,0,0"],
    ),
    (
        "exec-params-array-shape",
        LAUNCH,
        launch!("0x200", "1", "32", "kernelParams=0 -> 1"),
        &[launch!("0x200", "1", "32", "params=0x10000 layout=8")],
    ),
    (
        "exec-params-array-shape",
        LAUNCH,
        launch!("0x200", "1", "32", "layout=8 -> !"),
        &[
            // It died after the parameters were read.
            launch!("0x200", "1", "32", "params=0x10000 layout=8 -> !"),
            launch!("0x200", "1", "32", "-> !"),
        ],
    ),
    (
        "exec-params-no-metadata",
        LAUNCH,
        launch!("0x200", "1", "32", "-> 200"),
        &[launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=8")],
    ),
    (
        "exec-extra-unterminated",
        LAUNCH,
        launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0x7fff1234 extra_bytes=8"),
        &[
            launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=8"),
            // A name of a later driver.
            launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,3,7,0 extra_bytes=8"),
        ],
    ),
    (
        "exec-extra-malformed",
        LAUNCH,
        launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,8,0 -> !"),
        &[launch!("0x200", "1", "32", "kernelParams=0 extra_words=2,0x6000,1,0x5000,0 extra_bytes=8")],
    ),
    (
        "exec-extra-malformed",
        LAUNCH,
        launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,0"),
        &[],
    ),
    (
        "exec-extra-size-mismatch",
        LAUNCH,
        launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=4"),
        &[
            // A struct with padding at its end.
            launch!("0x200", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=16"),
            // The part of a struct that the kernel reads.
            concat!(
                find!("storage"),
                launch!("0x202", "1", "32", "kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=480"),
            ),
        ],
    ),
    (
        "exec-stream-context-mismatch",
        DEVICES,
        launch!("0x200", "1", "32", "hStream=0x301 -> 400"),
        &[
            launch!("0x201", "1", "32", "hStream=0x301"),
            // A kernel of a library follows the stream.
            concat!(
                "cuLibraryLoadData library:=0x700 code@0x7000:PTX_LAUNCH\n\
                 cuLibraryGetKernel pKernel:=0x710 library=0x700 name=\"k\"\n",
                launch!("0x710", "1", "32", "hStream=0x301"),
            ),
        ],
    ),
    (
        "exec-null-stream-context",
        DEVICES,
        launch!("0x201", "1", "32", "hStream=0 -> 400"),
        &[concat!("cuCtxSetCurrent ctx=0xc2\n", launch!("0x201", "1", "32", "hStream=0"))],
    ),
    (
        "exec-null-stream-context",
        DEVICES,
        concat!(
            "cuCtxPopCurrent_v2 pctx:=0xc1\n cuCtxPopCurrent_v2 pctx:=0xc2\n",
            launch!("0x200", "1", "32", "hStream=0 -> 201"),
        ),
        &[launch!("0x200", "1", "32", "hStream=0")],
    ),
    (
        "exec-legacy-launch-state-lost",
        LAUNCH,
        concat!(
            "cuFuncSetBlockShape hfunc=0x200 x=32 y=1 z=1\n cuParamSetSize hfunc=0x200 numbytes=8\n",
            launch!("0x200", "1", "32", "params=0x10000 layout=8"),
            "cuLaunchGrid f=0x200 grid_width=1 grid_height=1",
        ),
        &[concat!(
            launch!("0x200", "1", "32", "params=0x10000 layout=8"),
            "cuFuncSetBlockShape hfunc=0x200 x=32 y=1 z=1\n cuParamSetSize hfunc=0x200 numbytes=8\n\
             cuFuncGetAttribute pi:=32 attrib=4 hfunc=0x200\n cuLaunchGrid f=0x200 grid_width=1 grid_height=1",
        )],
    ),
];

#[rustfmt::skip]
pub(crate) const SHAPES: &[Row] = &[
    (
        "launch-config-dimension-out-of-range",
        LAUNCH,
        launch!("0x200", "0", "32", "-> 1"),
        &[launch!("0x200", "0x7fffffff", "1024", "")],
    ),
    (
        "launch-config-dimension-out-of-range",
        LAUNCH,
        launch!("0x200", "1", "32", "gridDimY=70000 -> 1"),
        // The driver refuses it for another reason.
        &[launch!("0x200", "1", "32", "gridDimY=65535 -> 1")],
    ),
    (
        "launch-config-dimension-out-of-range",
        LAUNCH,
        launch!("0x200", "1", "1024", "blockDimY=2 -> 1"),
        &[launch!("0x200", "1", "512", "blockDimY=2")],
    ),
    (
        "launch-config-reqntid-mismatch",
        LAUNCH,
        concat!(find!("fixed"), launch!("0x202", "1", "128", "-> 1")),
        &[concat!(find!("fixed"), launch!("0x202", "1", "32", ""))],
    ),
    (
        "launch-config-block-over-function-limit",
        LAUNCH,
        concat!(find!("bounded"), launch!("0x202", "1", "256", "-> 1")),
        &[concat!(find!("bounded"), launch!("0x202", "1", "128", ""))],
    ),
    (
        "launch-config-block-over-function-limit",
        LAUNCH,
        concat!(
            "cuFuncGetAttribute pi:=256 attrib=0 hfunc=0x200\n",
            launch!("0x200", "1", "512", "-> 701"),
        ),
        // Of the launch's other resources.
        &[concat!(
            "cuFuncGetAttribute pi:=1024 attrib=0 hfunc=0x200\n",
            launch!("0x200", "1", "512", "-> 701"),
        )],
    ),
    (
        "launch-config-dynamic-smem-limit",
        LAUNCH,
        launch!("0x200", "1", "32", "sharedMemBytes=65536 -> 1"),
        &[concat!(
            "cuFuncSetAttribute hfunc=0x200 attrib=8 value=65536\n",
            launch!("0x200", "1", "32", "sharedMemBytes=65536"),
        )],
    ),
    (
        "launch-config-dynamic-smem-limit",
        LAUNCH,
        concat!(find!("shared"), launch!("0x202", "1", "32", "sharedMemBytes=49152 -> 1")),
        &[concat!(find!("shared"), launch!("0x202", "1", "32", "sharedMemBytes=48128"))],
    ),
    (
        "launch-config-cooperative-unsupported",
        DEVICES,
        cooperative!("0x201", "1", "32", "hStream=0x301 -> 801"),
        &[cooperative!("0x200", "1", "32", "")],
    ),
    (
        "launch-config-cooperative-too-large",
        LAUNCH,
        cooperative!("0x200", "132000", "256", "-> 720"),
        &[cooperative!("0x200", "132", "256", "")],
    ),
    (
        "launch-config-cooperative-dynamic-parallelism",
        LAUNCH,
        concat!(find!("parent"), cooperative!("0x202", "1", "32", "")),
        &[
            concat!(find!("parent"), launch!("0x202", "1", "32", "")),
            concat!(find!("parent"), cooperative!("0x200", "1", "32", "")),
        ],
    ),
    (
        "launch-config-cooperative-missing",
        LAUNCH,
        concat!(find!("barrier"), launch!("0x202", "4", "32", "")),
        &[
            concat!(find!("barrier"), cooperative!("0x202", "4", "32", "")),
            concat!(find!("barrier"), launch_ex!("0x202", "4", "1", "launch_attrs=2:1")),
        ],
    ),
    (
        "launch-config-cooperative-extra",
        LAUNCH,
        launch_ex!("0x200", "1", "1",
            "launch_attrs=2:1 kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=8"),
        &[launch_ex!("0x200", "1", "1",
            "launch_attrs=2:0 kernelParams=0 extra_words=1,0x5000,2,0x6000,0 extra_bytes=8")],
    ),
    (
        "launch-config-multi-device-default-stream",
        DEVICES,
        both!(entry!("0x200", "1", "0"), entry!("0x201", "1", "0x301"), "-> 1"),
        &[both!(entry!("0x200", "1", "0x300"), entry!("0x201", "1", "0x301"), "-> 1")],
    ),
    (
        "launch-config-multi-device-shape-differs",
        DEVICES,
        both!(entry!("0x200", "4", "0x300"), entry!("0x201", "8", "0x301"), "-> 1"),
        &[both!(entry!("0x200", "4", "0x300"), entry!("0x201", "4", "0x301"), "-> 1")],
    ),
    (
        "launch-config-multi-device-duplicate",
        DEVICES,
        concat!(
            "cuStreamCreate phStream:=0x302 Flags=1\n",
            both!(entry!("0x200", "1", "0x300"), entry!("0x200", "1", "0x302"), "-> 1"),
        ),
        &[both!(entry!("0x200", "1", "0x300"), entry!("0x201", "1", "0x301"), "-> 1")],
    ),
    (
        "launch-config-multi-device-kernel-differs",
        DEVICES,
        concat!(
            find!("shared"),
            both!(entry!("0x202", "1", "0x300"), entry!("0x201", "1", "0x301"), "-> 1"),
        ),
        &[both!(entry!("0x200", "1", "0x300"), entry!("0x201", "1", "0x301"), "-> 1")],
    ),
    (
        "launch-config-multi-device-globals",
        DEVICES,
        concat!(
            "cuModuleGetGlobal_v2 dptr:=0x20000 bytes:=4 hmod=0x100 name=\"g\"\n\
             cuMemcpyHtoD_v2 dstDevice=0x20000 ByteCount=4\n",
            both!(entry!("0x200", "1", "0x300"), entry!("0x201", "1", "0x301"), ""),
        ),
        &[concat!(
            "cuModuleGetGlobal_v2 dptr:=0x20000 bytes:=4 hmod=0x100 name=\"g\"\n\
             cuMemcpyHtoD_v2 dstDevice=0x20000 ByteCount=4\n\
             cuModuleGetGlobal_v2 dptr:=0x30000 bytes:=4 hmod=0x101 name=\"g\"\n\
             cuMemcpyHtoD_v2 dstDevice=0x30000 ByteCount=4\n",
            both!(entry!("0x200", "1", "0x300"), entry!("0x201", "1", "0x301"), ""),
        )],
    ),
    (
        "launch-config-multi-device-unsupported",
        DEVICES,
        // Devices 0 and 2: of the third, whose attribute is 0.
        concat!(
            "cuCtxCreate_v2 pctx:=0xc3 dev=2\n cuModuleLoadData module:=0x103 image@0x7000:PTX_LAUNCH\n\
             cuModuleGetFunction hfunc:=0x203 hmod=0x103 name=\"k\"\n\
             cuStreamCreate phStream:=0x303 Flags=1\n",
            both!(entry!("0x200", "1", "0x300"), entry!("0x203", "1", "0x303"), "-> 1"),
        ),
        &[both!(entry!("0x200", "1", "0x300"), entry!("0x201", "1", "0x301"), "-> 1")],
    ),
];

#[rustfmt::skip]
pub(crate) const ATTRIBUTES: &[Row] = &[
    (
        "launch-config-attributes-null",
        LAUNCH,
        "cuLaunchKernelEx f=0x200 config%1,1,1,32,1,1,0,0,0x300,0,0,0,1,0 kernelParams=0x9000 -> 1",
        &[launch_ex!("0x200", "1", "1", "launch_attrs=0:0")],
    ),
    (
        "launch-config-attributes-dangling",
        LAUNCH,
        concat!(find!("barrier"), launch_ex!("0x202", "4", "0", "")),
        &[
            // Without need: most programs count the attributes in an array, and pass zero.
            launch_ex!("0x200", "1", "0", ""),
            concat!(find!("barrier"), launch_ex!("0x202", "4", "1", "launch_attrs=2:1")),
        ],
    ),
    (
        "launch-config-attributes-dangling",
        LAUNCH,
        concat!(find!("choosing"), launch_ex!("0x202", "4", "0", "-> 912")),
        &[concat!(find!("choosing"), launch_ex!("0x202", "4", "1", "launch_attrs=4:2,1,1"))],
    ),
    (
        "launch-config-attribute-not-for-launch",
        LAUNCH,
        "cuStreamSetAttribute hStream=0x300 attr=2 param%1,0 -> 1",
        &["cuStreamSetAttribute hStream=0x300 attr=8 param%0,0",
          "cuStreamSetAttribute hStream=0x300 attr=99 param%0,0 -> 1"],
    ),
    (
        "launch-config-attribute-not-for-launch",
        LAUNCH,
        launch_ex!("0x200", "1", "1", "launch_attrs=3:1 -> 1"),
        &[launch_ex!("0x200", "1", "1", "launch_attrs=8:0")],
    ),
    (
        "launch-config-event-timing-enabled",
        LAUNCH,
        concat!(
            "cuEventCreate phEvent:=0x401 Flags=0\n",
            launch_ex!("0x200", "1", "1", "launch_attrs=7:0x401,0,0,0 -> 801"),
        ),
        &[launch_ex!("0x200", "1", "1", "launch_attrs=7:0x400,0,0,0")],
    ),
    (
        "launch-config-event-kind",
        LAUNCH,
        concat!(
            "cuEventCreate phEvent:=0x401 Flags=6\n",
            launch_ex!("0x200", "1", "1", "launch_attrs=12:0x401,0,0,0 -> 801"),
        ),
        &[launch_ex!("0x200", "1", "1", "launch_attrs=12:0x400,0,0,0")],
    ),
    (
        "launch-config-event-kind",
        LAUNCH,
        launch_ex!("0x200", "1", "1", "launch_attrs=12:0x400,0,1,0 -> 1"),
        &[],
    ),
    (
        "launch-config-event-host-wait",
        LAUNCH,
        concat!(
            launch_ex!("0x200", "1", "1", "launch_attrs=7:0x400,0,0,0"),
            "cuEventSynchronize hEvent=0x400",
        ),
        &[
            concat!(
                launch_ex!("0x200", "1", "1", "launch_attrs=7:0x400,0,0,0"),
                "cuStreamCreate phStream:=0x301 Flags=1\n cuStreamWaitEvent hStream=0x301 hEvent=0x400",
            ),
            // The last record is an ordinary one.
            concat!(
                launch_ex!("0x200", "1", "1", "launch_attrs=7:0x400,0,0,0"),
                "cuEventRecord hEvent=0x400 hStream=0x300\n cuEventSynchronize hEvent=0x400",
            ),
        ],
    ),
    (
        "launch-config-completion-event-inversion",
        LAUNCH,
        concat!(
            "cuStreamCreateWithPriority phStream:=0x301 flags=1 priority=-5\n",
            launch_ex!("0x200", "1", "1", "launch_attrs=12:0x400,0,0,0"),
            "cuStreamWaitEvent hStream=0x301 hEvent=0x400",
        ),
        &[
            concat!(
                "cuStreamCreateWithPriority phStream:=0x301 flags=1 priority=0\n",
                launch_ex!("0x200", "1", "1", "launch_attrs=12:0x400,0,0,0"),
                "cuStreamWaitEvent hStream=0x301 hEvent=0x400",
            ),
            concat!(
                "cuStreamCreateWithPriority phStream:=0x301 flags=1 priority=-5\n",
                launch_ex!("0x200", "1", "1", "launch_attrs=8:0"),
                "cuEventRecord hEvent=0x400 hStream=0x300\n cuStreamWaitEvent hStream=0x301 hEvent=0x400",
            ),
        ],
    ),
    (
        "launch-config-serialization-no-grid-sync",
        LAUNCH,
        concat!(
            find!("first"),
            launch!("0x202", "1", "32", "params=0x10000 layout=8"),
            launch!("0x200", "1", "32", "hStream=0x302 params=0x11000 layout=8 -> 1"),
            launch_ex!("0x200", "1", "1", "launch_attrs=6:1 params=0x10000"),
        ),
        &[
            // Not early, not behind a kernel that triggers, not the same memory.
            concat!(
                find!("first"),
                launch!("0x202", "1", "32", "params=0x10000 layout=8"),
                launch!("0x200", "1", "32", "hStream=0x302 params=0x11000 layout=8 -> 1"),
                launch_ex!("0x200", "1", "1", "launch_attrs=6:0 params=0x10000"),
            ),
            concat!(
                find!("first"),
                launch!("0x200", "1", "32", "params=0x10000 layout=8"),
                launch_ex!("0x200", "1", "1", "launch_attrs=6:1 params=0x10000"),
            ),
            concat!(
                "cuMemAlloc_v2 dptr:=0x20000 bytesize=64\n", find!("first"),
                launch!("0x202", "1", "32", "params=0x20000 layout=8"),
                launch!("0x200", "1", "32", "hStream=0x302 params=0x11000 layout=8 -> 1"),
                launch_ex!("0x200", "1", "1", "launch_attrs=6:1 params=0x10000"),
            ),
        ],
    ),
    (
        "launch-config-serialization-no-grid-sync",
        LAUNCH,
        concat!(
            "cuModuleLoadData module:=0x104 image@0x7000:CUBIN_LAUNCH\n\
             cuModuleGetFunction hfunc:=0x202 hmod=0x104 name=\"first\"\n\
             cuModuleGetFunction hfunc:=0x203 hmod=0x104 name=\"k\"\n",
            launch!("0x203", "1", "32", "params=0x11000 layout=8"),
            launch!("0x202", "1", "32", "params=0x10000 layout=8"),
            launch_ex!("0x203", "1", "1", "launch_attrs=6:1 params=0x10000"),
        ),
        &[concat!(
            "cuModuleLoadData module:=0x104 image@0x7000:CUBIN_WAITS\n\
             cuModuleGetFunction hfunc:=0x202 hmod=0x104 name=\"first\"\n\
             cuModuleGetFunction hfunc:=0x203 hmod=0x104 name=\"k\"\n",
            launch!("0x203", "1", "32", "params=0x11000 layout=8"),
            launch!("0x202", "1", "32", "params=0x10000 layout=8"),
            launch_ex!("0x203", "1", "1", "launch_attrs=6:1 params=0x10000"),
        )],
    ),
    // Another kernel of the image waits.
    (
        "launch-config-serialization-no-grid-sync",
        LAUNCH,
        concat!(
            "cuModuleLoadData module:=0x104 image@0x7000:CUBIN_OTHER_WAITS\n\
             cuModuleGetFunction hfunc:=0x202 hmod=0x104 name=\"first\"\n\
             cuModuleGetFunction hfunc:=0x203 hmod=0x104 name=\"k\"\n",
            launch!("0x203", "1", "32", "params=0x11000 layout=8"),
            launch!("0x202", "1", "32", "params=0x10000 layout=8"),
            launch_ex!("0x203", "1", "1", "launch_attrs=6:1 params=0x10000"),
        ),
        &[],
    ),
    (
        "launch-config-device-updatable-not-capturing",
        LAUNCH,
        launch_ex!("0x200", "1", "1", "launch_attrs=13:1,0,0,0 -> 801"),
        &[concat!(
            "cuStreamBeginCapture_v2 hStream=0x300\n",
            launch_ex!("0x200", "1", "1", "launch_attrs=13:1,0,0,0"),
            "\ncuStreamEndCapture hStream=0x300 phGraph:=0x900",
        )],
    ),
    (
        "launch-config-device-updatable-value",
        LAUNCH,
        "cuGraphCreate phGraph:=0x800\n cuGraphAddKernelNode_v2 phGraphNode:=0x810 hGraph=0x800 \
         nodeParams%0x200,0,1,1,1,32,1,1,0,0,0x9000,0,0,0,0,0,0,0\n\
         cuGraphKernelNodeSetAttribute hNode=0x810 attr=13 value%1,0,0,0\n\
         cuGraphKernelNodeSetAttribute hNode=0x810 attr=13 value%0,0,0,0 -> 801",
        &["cuGraphCreate phGraph:=0x800\n cuGraphAddKernelNode_v2 phGraphNode:=0x810 hGraph=0x800 \
           nodeParams%0x200,0,1,1,1,32,1,1,0,0,0x9000,0,0,0,0,0,0,0\n\
           cuGraphKernelNodeSetAttribute hNode=0x810 attr=13 value%0,0,0,0"],
    ),
    (
        "launch-config-cluster-not-divisor",
        LAUNCH,
        launch_ex!("0x200", "3", "1", "launch_attrs=4:2,1,1 -> 912"),
        &[launch_ex!("0x200", "4", "1", "launch_attrs=4:2,1,1")],
    ),
    (
        "launch-config-cluster-required",
        LAUNCH,
        concat!(find!("choosing"), launch!("0x202", "4", "32", "-> 912")),
        &[
            concat!(find!("choosing"), launch_ex!("0x202", "4", "1", "launch_attrs=4:2,1,1")),
            concat!(find!("clustered"), launch!("0x202", "4", "32", "")),
        ],
    ),
    (
        "launch-config-cluster-required",
        LAUNCH,
        concat!(find!("clustered"), launch_ex!("0x202", "4", "1", "launch_attrs=4:4,1,1 -> 912")),
        &[concat!(find!("clustered"), launch_ex!("0x202", "4", "1", "launch_attrs=4:2,1,1"))],
    ),
    (
        "launch-config-cluster-required",
        LAUNCH,
        concat!(
            find!("choosing"),
            "cuOccupancyMaxActiveClusters numClusters:=0 func=0x202 \
             config%4,1,1,32,1,1,0,0,0x300,0,0,0,0,0 -> 912",
        ),
        &[concat!(
            find!("choosing"),
            "cuOccupancyMaxActiveClusters numClusters:=8 func=0x202 \
             config%4,1,1,32,1,1,0,0,0x300,0,0x8000,0,1,0 launch_attrs=4:2,1,1",
        )],
    ),
    (
        "launch-config-cluster-nonportable",
        LAUNCH,
        launch_ex!("0x200", "16", "1", "launch_attrs=4:16,1,1 -> 912"),
        &[concat!(
            "cuFuncSetAttribute hfunc=0x200 attrib=14 value=1\n",
            launch_ex!("0x200", "16", "1", "launch_attrs=4:16,1,1"),
        )],
    ),
    (
        "launch-config-preferred-cluster-alone",
        LAUNCH,
        launch_ex!("0x200", "8", "1", "launch_attrs=11:4,1,1 -> 912"),
        &[launch_ex!("0x200", "8", "2", "launch_attrs=4:2,1,1;11:4,1,1")],
    ),
    (
        "launch-config-preferred-cluster-shape",
        LAUNCH,
        launch_ex!("0x200", "12", "2", "launch_attrs=4:2,1,1;11:3,1,1 -> 912"),
        &[launch_ex!("0x200", "12", "2", "launch_attrs=4:2,1,1;11:4,1,1")],
    ),
    (
        "launch-config-preferred-cluster-shape",
        LAUNCH,
        concat!(
            find!("narrow"),
            launch_ex!("0x202", "12", "2", "launch_attrs=4:2,1,1;11:4,1,1 -> 912"),
        ),
        &[],
    ),
    (
        "launch-config-access-policy-window",
        LAUNCH,
        // 4096 bytes, a hit ratio of 1, misses persist.
        "cuStreamSetAttribute hStream=0x300 attr=1 param%0x10000,0,4096,0,0x3f800000,2,2 -> 1",
        &["cuStreamSetAttribute hStream=0x300 attr=1 param%0x10000,0,4096,0,0x3f800000,2,1"],
    ),
    (
        "launch-config-access-policy-window",
        LAUNCH,
        // A hit ratio of 2.
        launch_ex!("0x200", "1", "1", "launch_attrs=1:0x10000,0,4096,0,0x40000000,2,1 -> 1"),
        &[launch_ex!("0x200", "1", "1", "launch_attrs=1:0x10000,0,4096,0,0x3f000000,2,1")],
    ),
    (
        "launch-config-access-policy-window",
        LAUNCH,
        // More bytes than the device takes, and freed memory.
        "cuStreamSetAttribute hStream=0x300 attr=1 param%0x10000,0,0x10000000,0,0x3f800000,2,1 -> 1",
        &["cuStreamSetAttribute hStream=0x300 attr=1 param%0x10000,0,0x8000000,0,0x3f800000,2,1"],
    ),
    (
        "launch-config-access-policy-window",
        LAUNCH,
        "cuMemFree_v2 dptr=0x10000\n\
         cuStreamSetAttribute hStream=0x300 attr=1 param%0x10000,0,4096,0,0x3f800000,2,1",
        // A window of no bytes takes the last one away.
        &["cuMemFree_v2 dptr=0x10000\n\
           cuStreamSetAttribute hStream=0x300 attr=1 param%0x10000,0,0,0,0x3f800000,2,1"],
    ),
];
