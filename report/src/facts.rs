//! What the page is given beside columns: names, and what other verbs know about the trace.

use std::collections::HashMap;
use std::io::{self, Write};

use cutape_analyzer::{Finding, FindingKey};
use cutape_model::MemoryKind;
use cutape_profile::Profile;
use serde::Serialize;
use serde_json::Value;

use crate::call_kind::CallKind;
use crate::columns::{Columns, Entry};
use crate::gpu::GpuFacts;
use crate::page::{self, Part};

/// What is not in the rows of a trace.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// The page's title.
    pub title: String,
    /// What `cutape info --format json` prints.
    pub summary: Value,
    /// The findings to show, in order.
    pub findings: Vec<Finding>,
    /// How many are not shown and why; empty if all are.
    pub omitted: String,
    /// What `cutape replay --report` wrote.
    pub replay: Option<Value>,
    /// What `cutape bench --report` wrote.
    pub bench: Option<Value>,
    /// What `cutape why --report` wrote.
    pub why: Option<Value>,
    /// What `cutape profile --format json` wrote of this trace.
    pub profile: Option<Profile>,
}

/// The rows of a trace.
#[derive(Debug)]
pub struct Collected {
    pub(crate) has_times: bool,
    pub(crate) end: u64,
    pub(crate) tables: Tables,
    pub(crate) columns: Columns,
    pub(crate) repeats: HashMap<FindingKey, u64>,
}

impl Collected {
    /// How many more findings with these keys there were than the collector was told of.
    pub fn take_repeats(&mut self) -> HashMap<FindingKey, u64> {
        std::mem::take(&mut self.repeats)
    }
}

/// What rows name by number.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tables {
    pub(crate) functions: Vec<FunctionFact>,
    pub(crate) results: Vec<String>,
    pub(crate) kernels: Vec<KernelFact>,
    pub(crate) shapes: Vec<Shape>,
    /// What launches of graphs run: kernel, shape, and how often.
    pub(crate) graph_kernels: Vec<Vec<[u64; 3]>>,
    pub(crate) streams: Vec<StreamFact>,
    pub(crate) directions: Vec<String>,
    pub(crate) object_kinds: Vec<ObjectKind>,
    pub(crate) range_names: Vec<MarkerName>,
    pub(crate) mark_names: Vec<MarkerName>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FunctionFact {
    /// As it is exported.
    pub(crate) name: String,
    /// As the manual calls it.
    pub(crate) base: String,
    pub(crate) kind: CallKind,
}

#[derive(Debug, Serialize)]
pub(crate) struct KernelFact {
    /// As in its image.
    pub(crate) name: Option<String>,
    /// As in its source.
    pub(crate) shown: String,
    /// The same without its result and parameters.
    pub(crate) bare: String,
}

/// What a range or a mark is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct MarkerName {
    pub(crate) name: String,
    /// Of NVTX; empty for the default one.
    pub(crate) domain: String,
    /// The names of the ranges around it and its own.
    pub(crate) path: String,
}

/// The shape of a launch; `None` for what the trace lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Shape {
    pub(crate) grid: Option<[u64; 3]>,
    pub(crate) block: Option<[u64; 3]>,
    pub(crate) shared: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct StreamFact {
    pub(crate) label: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct ObjectKind {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    /// The key of its kind of memory, if it is memory.
    pub(crate) memory: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct KindOfMemory {
    key: &'static str,
    name: &'static str,
}

/// The data of a page.
#[derive(Debug)]
pub struct Report {
    title: String,
    facts: Facts,
    columns: Vec<u8>,
}

/// The JSON of the page; `page/script/` reads it.
#[derive(Debug, Serialize)]
struct Facts {
    /// `ns`, or `steps` if the trace's clock only counts.
    clock: &'static str,
    /// The end of the last call, from the start of the recording.
    end: u64,
    summary: Value,
    #[serde(flatten)]
    tables: Tables,
    memory_kinds: Vec<KindOfMemory>,
    findings: Vec<Finding>,
    omitted: String,
    replay: Option<Value>,
    bench: Option<Value>,
    why: Option<Value>,
    gpu: Option<GpuFacts>,
    columns: Vec<Entry>,
}

impl Report {
    /// Joins the rows of a trace with what others know about it.
    pub fn new(rows: Collected, added: Added) -> Self {
        let mut columns = rows.columns;
        let gpu = added
            .profile
            .map(|profile| GpuFacts::of(profile, &mut columns));
        let memory_kinds = MemoryKind::ALL.map(|kind| KindOfMemory {
            key: kind.key(),
            name: kind.name(),
        });
        let facts = Facts {
            clock: if rows.has_times { "ns" } else { "steps" },
            end: rows.end,
            summary: added.summary,
            tables: rows.tables,
            memory_kinds: memory_kinds.into(),
            findings: added.findings,
            omitted: added.omitted,
            replay: added.replay,
            bench: added.bench,
            why: added.why,
            gpu,
            columns: columns.directory,
        };
        Self {
            title: added.title,
            facts,
            columns: columns.bytes,
        }
    }

    /// Writes the page.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let facts = serde_json::to_vec(&self.facts)?;
        let parts = [
            Part {
                id: "facts",
                bytes: &facts,
            },
            Part {
                id: "columns",
                bytes: &self.columns,
            },
        ];
        page::write(&page::TRACE, &self.title, &parts, out)
    }
}
