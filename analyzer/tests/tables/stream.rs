//! Streams, their captures, and events.

use super::Row;

/// A context, two non-blocking streams and a blocking one, two events without times.
const STREAMS: &str = "
    cuCtxCreate_v2 pctx:=0xc1 dev=0
    cuStreamCreate phStream:=0x301 Flags=1
    cuStreamCreate phStream:=0x302 Flags=1
    cuStreamCreate phStream:=0x303 Flags=0
    cuEventCreate phEvent:=0x401 Flags=2
    cuEventCreate phEvent:=0x402 Flags=2
";

pub(crate) const STREAM: &[Row] = &[
    (
        "stream-capture-bracket",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=0\n\
         cuStreamEndCapture hStream=0x302 -> 401\n\
         cuStreamEndCapture hStream=0x301 phGraph:=0x900",
        &[
            "cuStreamBeginCapture_v2 hStream=0x301 mode=0\n\
             cuStreamEndCapture hStream=0x301 phGraph:=0x900",
            // A relaxed capture that another thread ends.
            "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n t1 cuCtxSetCurrent ctx=0xc1\n\
             t1 cuStreamEndCapture hStream=0x301 phGraph:=0x900",
        ],
    ),
    (
        "stream-capture-bracket",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=0",
        // A capture that failed and was ended.
        &["cuStreamBeginCapture_v2 hStream=0x301 mode=0\n cuStreamEndCapture hStream=0x301 -> 901"],
    ),
    (
        "stream-capture-bracket",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=0\n t1 cuCtxSetCurrent ctx=0xc1\n\
         t1 cuStreamEndCapture hStream=0x301 -> 908\n\
         cuStreamEndCapture hStream=0x301 phGraph:=0x900",
        &[],
    ),
    (
        "stream-capture-bracket",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0 mode=2 -> 906",
        &["cuStreamIsCapturing hStream=0 -> 906"],
    ),
    (
        "stream-capture-bracket",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n\
         cuStreamBeginCapture_v2 hStream=0x301 mode=2 -> 401\n\
         cuStreamEndCapture hStream=0x301 phGraph:=0x900",
        &[],
    ),
    (
        "stream-capture-bracket",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuStreamDestroy_v2 hStream=0x301\n\
         cuCtxDestroy_v2 ctx=0xc1",
        &[],
    ),
    (
        "stream-capture-unjoined",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=0\n\
         cuEventRecord hEvent=0x401 hStream=0x301\n\
         cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
         cuMemsetD8Async hStream=0x302 dstDevice=0x99 N=1\n\
         cuStreamEndCapture hStream=0x301 -> 904",
        &["cuStreamBeginCapture_v2 hStream=0x301 mode=0\n\
           cuEventRecord hEvent=0x401 hStream=0x301\n\
           cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
           cuMemsetD8Async hStream=0x302 dstDevice=0x99 N=1\n\
           cuEventRecord hEvent=0x402 hStream=0x302\n\
           cuStreamWaitEvent hStream=0x301 hEvent=0x402\n\
           cuStreamEndCapture hStream=0x301 phGraph:=0x900"],
    ),
    (
        "stream-capture-forbidden-call",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=0\n cuMemAlloc_v2 bytesize=64 -> 900\n\
         cuStreamEndCapture hStream=0x301 -> 901",
        &["cuStreamBeginCapture_v2 hStream=0x301 mode=0\n\
           cuMemAllocAsync dptr:=0x20000 bytesize=64 hStream=0x301\n\
           cuMemFreeAsync dptr=0x20000 hStream=0x301\n\
           cuStreamEndCapture hStream=0x301 phGraph:=0x900"],
    ),
    (
        "stream-capture-forbidden-call",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=0\n t1 cuCtxSetCurrent ctx=0xc1\n\
         t1 cuMemAlloc_v2 bytesize=64 -> 900\n cuStreamEndCapture hStream=0x301 -> 901",
        &[],
    ),
    (
        "stream-capture-wait-on-captured",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuStreamSynchronize hStream=0x301 -> 900\n\
         cuStreamEndCapture hStream=0x301 -> 901",
        &[
            "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuStreamIsCapturing hStream=0x301\n\
           cuStreamEndCapture hStream=0x301 phGraph:=0x900\n cuStreamSynchronize hStream=0x301",
        ],
    ),
    // A watchdog asks for an event of its own.
    (
        "stream-capture-forbidden-call",
        STREAMS,
        "cuEventRecord hEvent=0x401 hStream=0x302\n cuStreamBeginCapture_v2 hStream=0x301 mode=0\n\
         t1 cuCtxSetCurrent ctx=0xc1\n t1 cuEventQuery hEvent=0x401 -> 900\n\
         cuStreamEndCapture hStream=0x301 -> 901",
        &["cuEventRecord hEvent=0x401 hStream=0x302\n\
           cuStreamBeginCapture_v2 hStream=0x301 mode=1\n t1 cuCtxSetCurrent ctx=0xc1\n\
           t1 cuEventQuery hEvent=0x401\n cuStreamEndCapture hStream=0x301 phGraph:=0x900"],
    ),
    (
        "stream-capture-wait-on-captured",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuEventRecord hEvent=0x401 hStream=0x301\n\
         cuStreamEndCapture hStream=0x301 phGraph:=0x900\n cuEventQuery hEvent=0x401 -> 1",
        &[],
    ),
    (
        "stream-capture-wait-on-captured",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuCtxSynchronize -> 900\n\
         cuStreamEndCapture hStream=0x301 -> 901",
        &[],
    ),
    (
        "stream-capture-wait-on-captured",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuEventRecord hEvent=0x401 hStream=0x301\n\
         cuStreamEndCapture hStream=0x301 phGraph:=0x900\n cuEventSynchronize hEvent=0x401 -> 907",
        &[
            "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n cuEventRecord hEvent=0x401 hStream=0x301\n\
           cuStreamEndCapture hStream=0x301 phGraph:=0x900\n\
           cuEventRecord hEvent=0x401 hStream=0x301\n cuEventSynchronize hEvent=0x401",
        ],
    ),
    (
        "stream-capture-legacy-stream",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x303 mode=2\n\
         cuMemsetD8Async hStream=0 dstDevice=0x99 N=1 -> 906\n\
         cuStreamEndCapture hStream=0x303 -> 901",
        &["cuStreamBeginCapture_v2 hStream=0x301 mode=2\n\
           cuMemsetD8Async hStream=0 dstDevice=0x99 N=1\n\
           cuStreamEndCapture hStream=0x301 phGraph:=0x900"],
    ),
    (
        "stream-capture-cross-dependency",
        STREAMS,
        "cuEventRecord hEvent=0x401 hStream=0x302\n cuStreamBeginCapture_v2 hStream=0x301 mode=2\n\
         cuStreamWaitEvent hStream=0x301 hEvent=0x401 -> 905\n\
         cuStreamEndCapture hStream=0x301 -> 901",
        &["cuEventRecord hEvent=0x401 hStream=0x302\n\
           cuStreamBeginCapture_v2 hStream=0x301 mode=2\n\
           cuStreamWaitEvent hStream=0x301 hEvent=0x401 Flags=1\n\
           cuStreamEndCapture hStream=0x301 phGraph:=0x900"],
    ),
    (
        "stream-capture-cross-dependency",
        STREAMS,
        "cuStreamBeginCapture_v2 hStream=0x301 mode=2\n\
         cuStreamBeginCapture_v2 hStream=0x302 mode=2\n\
         cuEventRecord hEvent=0x401 hStream=0x301\n\
         cuStreamWaitEvent hStream=0x302 hEvent=0x401 -> 902\n\
         cuStreamEndCapture hStream=0x301 -> 901\n cuStreamEndCapture hStream=0x302 -> 901",
        &[],
    ),
    (
        "event-elapsed-not-complete",
        STREAMS,
        "cuEventCreate phEvent:=0x403\n cuEventCreate phEvent:=0x404\n\
         cuEventRecord hEvent=0x403 hStream=0x301\n cuEventRecord hEvent=0x404 hStream=0x301\n\
         cuEventElapsedTime hStart=0x403 hEnd=0x404 -> 600",
        &[
            "cuEventCreate phEvent:=0x403\n cuEventCreate phEvent:=0x404\n\
           cuEventRecord hEvent=0x403 hStream=0x301\n cuEventRecord hEvent=0x404 hStream=0x301\n\
           cuEventQuery hEvent=0x404 -> 600\n cuEventSynchronize hEvent=0x404\n\
           cuEventElapsedTime pMilliseconds:=0 hStart=0x403 hEnd=0x404",
        ],
    ),
    (
        "event-record-context-mismatch",
        STREAMS,
        "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuEventCreate phEvent:=0x403\n\
         cuEventRecord hEvent=0x403 hStream=0x301 -> 400",
        &[
            "cuCtxCreate_v2 pctx:=0xc2 dev=0\n cuEventCreate phEvent:=0x403\n\
           cuEventRecord hEvent=0x403 hStream=0\n cuStreamWaitEvent hStream=0x301 hEvent=0x403",
        ],
    ),
    (
        "event-wait-unrecorded",
        STREAMS,
        "cuStreamWaitEvent hStream=0x302 hEvent=0x401\n cuEventRecord hEvent=0x401 hStream=0x301\n\
         cuEventDestroy_v2 hEvent=0x401",
        &[
            "cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n cuEventDestroy_v2 hEvent=0x401",
            // A ring of events that is not full yet.
            "cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuEventRecord hEvent=0x401 hStream=0x301\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuEventRecord hEvent=0x401 hStream=0x301",
            "cuStreamWaitEvent hStream=0x302 hEvent=0x401\n cuEventSynchronize hEvent=0x401",
            // A record that the model does not follow.
            "cuCtxRecordEvent hCtx=0xc1 hEvent=0x401\n\
             cuStreamWaitEvent hStream=0x302 hEvent=0x401\n\
             cuEventRecord hEvent=0x401 hStream=0x301",
        ],
    ),
    (
        "event-wait-unrecorded",
        STREAMS,
        "cuStreamWaitEvent hStream=0x302 hEvent=0x401\n cuEventRecord hEvent=0x401 hStream=0x301",
        &[],
    ),
    (
        "event-wait-unrecorded",
        STREAMS,
        "cuStreamWaitEvent hStream=0x302 hEvent=0x401\n cuEventDestroy_v2 hEvent=0x401",
        &[
            // The trace ends before the record.
            "cuStreamWaitEvent hStream=0x302 hEvent=0x401",
            // Another process records it.
            "cuIpcOpenEventHandle phEvent:=0x403\n cuStreamWaitEvent hStream=0x302 hEvent=0x403\n\
             cuEventDestroy_v2 hEvent=0x403",
        ],
    ),
    (
        "event-wait-unrecorded",
        STREAMS,
        "cuStreamWaitEvent hStream=0x302 hEvent=0x401\n meta exit.status 0",
        &[],
    ),
    (
        "event-flags-misused",
        STREAMS,
        "cuIpcGetEventHandle event=0x401 -> 400",
        &["cuEventCreate phEvent:=0x403 Flags=6\n cuIpcGetEventHandle pHandle:=0 event=0x403"],
    ),
    (
        "event-flags-misused",
        STREAMS,
        "cuEventCreate Flags=4 -> 1",
        &[],
    ),
    (
        "event-flags-misused",
        STREAMS,
        "cuEventRecordWithFlags hEvent=0x401 hStream=0x301 flags=1 -> 401",
        &[],
    ),
    (
        "memory-managed-stream-attachment",
        STREAMS,
        "cuMemAllocManaged dptr:=0x30000 bytesize=4096 flags=1\n\
         cuStreamAttachMemAsync hStream=0 dptr=0x30000 length=0 flags=4 -> 1",
        &["cuMemAllocManaged dptr:=0x30000 bytesize=4096 flags=1\n\
           cuStreamAttachMemAsync hStream=0x301 dptr=0x30000 length=4096 flags=4"],
    ),
    (
        "memory-managed-stream-attachment",
        STREAMS,
        "cuMemAllocManaged dptr:=0x30000 bytesize=4096 flags=1\n\
         cuStreamAttachMemAsync hStream=0x301 dptr=0x30000 length=64 flags=4 -> 1",
        &[],
    ),
    (
        "memory-managed-stream-attachment",
        STREAMS,
        "cuMemAllocManaged dptr:=0 bytesize=4096 flags=0 -> 1",
        &[
            "cuMemAllocManaged dptr:=0x30000 bytesize=4096 flags=2",
            // Refused for another reason.
            "cuMemAllocManaged dptr:=0 bytesize=0 flags=1 -> 1",
            "cuMemAllocManaged dptr:=0 bytesize=4096 flags=0 -> 801",
        ],
    ),
];
