//! The rows of small traces.

mod program;

use cutape_export::rows::{
    CallRow, CopyRow, FindingRow, GraphKernelRow, GraphLaunchRow, ImageRow, LaunchRow, MemoryRow,
    ObjectRow, RangeRow, Rows, Sink, TraceRow, WaitRow,
};
use cutape_format::{Error, NewCall, NewSnapshot, TraceBuilder};
use program::{PTX, call, launch, open, program};

/// A line for each row.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add(&mut self, line: String) -> Result<(), Error> {
        self.0.push(line);
        Ok(())
    }

    fn of(builder: &TraceBuilder, name: &str) -> Self {
        let trace = open(builder, name);
        let mut lines = Self::default();
        Rows::of(&trace)
            .with_findings(&trace)
            .run(&mut lines)
            .unwrap();
        lines
    }

    /// The lines that begin with one of these words.
    fn with(&self, words: &[&str]) -> Vec<&str> {
        let wanted = |line: &&String| words.iter().any(|word| line.starts_with(word));
        self.0.iter().filter(wanted).map(String::as_str).collect()
    }
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

impl Sink for Lines {
    type Error = Error;

    fn trace(&mut self, row: &TraceRow) -> Result<(), Error> {
        self.add(format!("trace {} {}", row.process, text(row.any_rank())))
    }

    fn range(&mut self, row: &RangeRow<'_>) -> Result<(), Error> {
        self.add(format!(
            "range {} mark {} open {}",
            row.path, row.is_mark, row.is_open
        ))
    }

    fn call(&mut self, row: &CallRow<'_>) -> Result<(), Error> {
        let mut arguments = String::new();
        for argument in row.arguments(4).arguments {
            arguments += " ";
            argument.value.write(&mut arguments);
        }
        let result = text(row.result_name());
        let (index, function) = (row.call.index, row.function);
        self.add(format!("call {index} {function}{arguments} = {result}"))
    }

    fn image(&mut self, row: &ImageRow) -> Result<(), Error> {
        self.add(format!("image {} {} {}", row.hash, row.kind, row.bytes))
    }

    fn launch(&mut self, row: &LaunchRow<'_>) -> Result<(), Error> {
        let [kernel, name, image] = [row.kernel, row.demangled, row.image].map(text);
        let [function, module] = [row.function, row.module].map(text);
        let (stream, threads) = (text(row.stream), text(row.threads()));
        self.add(format!(
            "launch {} {kernel} {name} {function} {module} {} {threads} on {stream} captured {}",
            row.call.index,
            &image[..image.len().min(4)],
            row.is_captured
        ))
    }

    fn graph_launch(&mut self, row: &GraphLaunchRow) -> Result<(), Error> {
        let [nodes, kernels] = [row.nodes, row.kernels].map(text);
        let (graph, stream) = (text(row.graph), text(row.stream));
        self.add(format!(
            "graph {graph} {nodes} nodes {kernels} kernels on {stream} captured {}",
            row.is_captured
        ))
    }

    fn graph_kernel(&mut self, row: &GraphKernelRow<'_>) -> Result<(), Error> {
        let launch = row.launch;
        let [kernel, graph] = [text(launch.kernel), text(row.graph)];
        let (stream, threads) = (text(launch.stream), text(launch.threads()));
        self.add(format!(
            "node {} of {graph} in {}: {kernel} {threads} on {stream}",
            row.node, launch.call.index
        ))
    }

    fn copy(&mut self, row: &CopyRow) -> Result<(), Error> {
        let (kind, bytes, stream) = (row.kind(), text(row.bytes), text(row.stream));
        let (is_async, captured) = (row.is_async, row.is_captured);
        self.add(format!(
            "copy {kind} {bytes} on {stream} async {is_async} captured {captured}"
        ))
    }

    fn wait(&mut self, row: &WaitRow) -> Result<(), Error> {
        let [stream, event] = [text(row.stream), text(row.event)];
        self.add(format!("wait {} {stream} {event}", row.awaited.key()))
    }

    fn memory(&mut self, row: &MemoryRow) -> Result<(), Error> {
        let (kind, object) = (row.kind.key(), row.object);
        self.add(format!(
            "memory {} {kind} {object} {:+} = {} in {}",
            row.call.index,
            row.change(),
            row.live_bytes,
            row.live_blocks
        ))
    }

    fn object(&mut self, row: &ObjectRow<'_>) -> Result<(), Error> {
        let [parent, context] = [row.parent, row.context].map(text);
        let ending = row.ending.key();
        self.add(format!(
            "object {} {}..{} {ending} leaked {} of {parent} in {context}",
            row.object,
            row.created_call,
            text(row.ended_call),
            row.is_leaked()
        ))
    }

    fn finding(&mut self, row: &FindingRow<'_>) -> Result<(), Error> {
        let call = text(row.call.map(|call| call.index));
        self.add(format!(
            "finding {} {call} {:?}",
            row.finding.rule,
            row.related_calls()
        ))
    }
}

#[test]
fn rows_of_a_program() {
    let mut builder = program();
    let trace = &mut builder;
    let graph = 0x99_u64.to_le_bytes();
    trace
        .call(NewCall {
            name: "cuStreamEndCapture",
            arguments: &[0x55, 1],
            ..NewCall::default()
        })
        .leave(0, 0, &[NewSnapshot::pointee(1, &graph)]);
    call(
        trace,
        "cuGraphInstantiateWithFlags",
        &[1, 0x99, 0],
        Some(0x98),
    );
    call(trace, "cuGraphLaunch", &[0x98, 0x55], None);
    call(trace, "cuMemFree_v2", &[0x1000], None);
    call(trace, "cuMemAlloc_v2", &[1, 7], Some(0x1000));
    call(trace, "cuStreamDestroy_v2", &[0x55], None);
    call(trace, "cuCtxDestroy_v2", &[0xc], None);
    let lines = Lines::of(&builder, "program");
    let hash = &blake3::hash(PTX).to_hex()[..32];
    let image = format!("image {hash} PTX {}", PTX.len());
    let launched = |call, captured| {
        format!(
            "launch {call} _Z4saxpPf saxp(float*) function#1 module#1 {} 128 on stream#1 captured \
             {captured}",
            &hash[..4]
        )
    };
    assert_eq!(
        lines.with(&[
            "range", "image", "launch", "graph", "node", "copy", "wait", "memory"
        ]),
        [
            "range train mark false open true",
            "range train/step mark false open false",
            &image,
            "memory 3 device memory#1 +100 = 100 in 1",
            "copy host-to-device 60 on default stream async false captured false",
            &launched(6, false),
            &launched(8, true),
            "copy memset 40 on stream#1 async true captured true",
            "wait stream stream#1 ?",
            "graph executable-graph#1 2 nodes 1 kernels on stream#1 captured false",
            "node 0 of executable-graph#1 in 13: _Z4saxpPf 128 on stream#1",
            "memory 14 device memory#1 -100 = 0 in 0",
            "memory 15 device memory#2 +7 = 7 in 1",
            "memory 17 device memory#2 -7 = 0 in 0",
        ]
    );
    assert_eq!(
        lines.with(&["object"]),
        [
            "object memory#1 3..14 destroyed leaked false of context#1 in context#1",
            "object stream#1 5..16 destroyed leaked false of context#1 in context#1",
            "object context#1 0..17 destroyed leaked false of ? in ?",
            "object memory#2 15..17 with-owner leaked false of context#1 in context#1",
            "object module#1 1..17 with-owner leaked false of context#1 in context#1",
            "object function#1 2..17 with-owner leaked false of module#1 in context#1",
            "object graph#1 11..? alive leaked false of ? in ?",
            "object executable-graph#1 12..? alive leaked true of ? in ?",
        ]
    );
    assert_eq!(
        lines.with(&["call 14", "call 6", "call 1 "]),
        [
            "call 1 cuModuleLoadData 0x1 0x2 = CUDA_SUCCESS",
            "call 6 cuLaunchKernel 0xf function#1 4 1 1 32 1 1 0 0x55 stream#1 NULL NULL = \
             CUDA_SUCCESS",
            "call 14 cuMemFree_v2 0x1000 memory#1 = CUDA_SUCCESS",
        ]
    );
}

#[test]
fn findings_name_their_calls() {
    let mut builder = program();
    call(&mut builder, "cuModuleUnload", &[0xa], None);
    launch(&mut builder, 0xf, 0);
    let lines = Lines::of(&builder, "findings");
    let found = lines.with(&["finding"]);
    assert!(
        found.contains(&"finding module-function-after-unload 12 [1, 2, 11]"),
        "{found:?}"
    );
}
