//! A finding: its call, the histories of its objects, and the chain of causes.

use serde::Serialize;

/// What sort of event a finding is. All but misuse is hidden unless the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A mistake, as far as the trace shows.
    Misuse,
    /// A question that was refused: programs ask about host memory, or for a function of a later
    /// driver, and go by the answer.
    Probe,
    /// A call that the driver refused, in a program that tests errors: only the user can say so.
    ExpectedError,
    /// A call while the process exits, when destructors run in an order that the program does not
    /// choose.
    Teardown,
}

impl Class {
    /// The word in messages and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Misuse => "misuse",
            Self::Probe => "probe",
            Self::ExpectedError => "expected-error",
            Self::Teardown => "teardown",
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Might be better.
    Advice,
    /// Works by chance, or on this driver only.
    Warning,
    /// Wrong by the manual, or seen to fail.
    Error,
}

impl Severity {
    /// The word in messages.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Advice => "advice",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }

    /// Reads [`Severity::word`].
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "advice" => Severity::Advice,
            "warning" => Severity::Warning,
            "error" => Severity::Error,
            _ => return None,
        })
    }
}

impl From<cutape_registry::Severity> for Severity {
    fn from(severity: cutape_registry::Severity) -> Self {
        match severity {
            cutape_registry::Severity::Advice => Severity::Advice,
            cutape_registry::Severity::Warning => Severity::Warning,
            cutape_registry::Severity::Error => Severity::Error,
        }
    }
}

/// What a finding rests on. The greater, the more certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// That a kernel's parameter is a pointer which the kernel follows.
    Assumed,
    /// Bytes that the recorder saw: images, the contents of memory.
    Contents,
    /// The calls alone, with the arguments, arrays and structs that they pass.
    Certain,
}

impl Confidence {
    /// The word in messages and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Assumed => "assumed",
            Self::Contents => "contents",
            Self::Certain => "certain",
        }
    }

    /// The word, and what it means.
    pub fn explained(self) -> &'static str {
        match self {
            Self::Assumed => {
                "assumed (a kernel's parameter is taken for a pointer that it follows)"
            }
            Self::Contents => "contents (bytes of images or memory, as recorded)",
            Self::Certain => "certain (the calls alone)",
        }
    }
}

impl From<cutape_registry::Confidence> for Confidence {
    fn from(confidence: cutape_registry::Confidence) -> Self {
        match confidence {
            cutape_registry::Confidence::Assumed => Self::Assumed,
            cutape_registry::Confidence::Contents => Self::Contents,
            cutape_registry::Confidence::Certain => Self::Certain,
        }
    }
}

/// A process of a recording, where several are checked together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedProcess {
    /// The name of its trace's file.
    pub trace: String,
    /// Its number in a parallel program, if no other process has it.
    pub rank: Option<u64>,
}

impl RecordedProcess {
    /// `rank 3`, else the name of the trace.
    pub fn label(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => self.trace.escape_debug().to_string(),
        }
    }
}

/// The call that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// The process that makes it; `None` if one trace is checked.
    pub process: Option<RecordedProcess>,
    /// Call index.
    #[serde(rename = "call")]
    pub index: u64,
    /// Exported name.
    pub function: String,
    /// The call with its decoded arguments.
    pub text: String,
    /// Thread ordinal.
    pub thread: u32,
    /// The operating system's number of the thread; 0 if the trace does not say.
    pub thread_number: u32,
    /// Where in the program it returns to: a symbol, else an address.
    pub caller: String,
    /// Where the program itself made it: `train.py:42 in step`; as `caller` without a call stack.
    pub place: String,
    /// Its call stack, the innermost frame first; empty if the trace has none.
    pub frames: Vec<Frame>,
    /// What the driver's error log said about it, as far as that is more than the result.
    pub driver_messages: Vec<String>,
    /// The ranges of the program that it is in, by begin; the analyzer leaves them to its caller.
    pub ranges: Vec<String>,
    /// What it returned; `None` if it did not return.
    pub result: Option<CallResult>,
}

/// A frame of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// Demangled; of Python the qualified name; empty if unknown.
    pub function: String,
    /// The path of its source; empty if unknown.
    pub file: String,
    /// The line in it, from 1; 0 if unknown.
    pub line: u32,
    /// The path of the executable or library; empty for Python.
    pub module: String,
    /// The return address; 0 for Python.
    pub address: u64,
    /// Whether it is a function of Python.
    pub is_python: bool,
    /// Whether it was inlined into the next one.
    pub is_inlined: bool,
    /// Whether it is of the program itself, not of a library: see [`crate::own_frame`].
    pub is_own: bool,
    /// Why there is no line; empty if there is one.
    pub missing: String,
}

impl Frame {
    /// `/home/u/train.py:42 in step`, or what is known, and what is missing.
    pub fn in_full(&self) -> String {
        let mut text = self.place(None);
        if !self.file.is_empty() && !self.module.is_empty() {
            text = format!("{text} in {}", self.module);
        }
        if !self.missing.is_empty() {
            text = format!("{text} ({})", self.missing);
        }
        if self.is_inlined {
            text += " [inlined]";
        }
        text
    }

    /// `train.py:42 in step`, or as much as is known; paths in `directory` are relative to it.
    pub fn place(&self, directory: Option<&str>) -> String {
        let short = |path: &str| {
            let inside = directory.and_then(|directory| path.strip_prefix(directory));
            let inside = inside.and_then(|path| path.strip_prefix('/'));
            inside.unwrap_or(path).to_owned()
        };
        let name = self.module.rsplit('/').next().unwrap_or_default();
        match (&*self.function, &*self.file, self.line) {
            ("", "", _) if name.is_empty() => format!("{:#x}", self.address),
            ("", "", _) => name.to_owned(),
            (function, "", _) => format!("{function} in {name}"),
            (function, file, 0) => format!("{} in {function}", short(file)),
            (function, file, line) => format!("{}:{line} in {function}", short(file)),
        }
    }
}

impl CallSite {
    /// `call 12`, or `rank 3 call 12`.
    pub fn position(&self) -> String {
        match &self.process {
            Some(process) => format!("{} call {}", process.label(), self.index),
            None => format!("call {}", self.index),
        }
    }

    /// Name of the result, or "did not return".
    pub fn result_text(&self) -> String {
        let result = self.result.as_ref();
        result.map_or_else(|| "did not return".to_owned(), CallResult::text)
    }
}

impl CallResult {
    /// The name, else the number.
    pub fn text(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.code.to_string())
    }
}

/// The first frame of the program itself; if there is none, the first one.
pub fn own_frame(frames: &[Frame]) -> Option<&Frame> {
    let own = frames.iter().find(|frame| frame.is_own);
    own.or_else(|| frames.first())
}

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallResult {
    /// The number.
    pub code: i32,
    /// Its name in `CUresult`, if that is what the function returns and it has one.
    pub name: Option<String>,
}

/// Which mistake of the program a finding is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct FindingKey {
    /// Rule, function, the program's functions that lead to the call, and the same of the calls
    /// that created its objects. Edits keep it, unless they rename or move these.
    pub names: String,
    /// Where in these functions, in their order: lines, else offsets in bytes, else addresses.
    /// Tells findings with the same names apart.
    pub lines: Vec<u64>,
}

/// A call in the program's code: its function, the program's functions that lead to it, and the
/// lines in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodePlace {
    pub(crate) names: String,
    pub(crate) lines: Vec<u64>,
}

/// The history of an object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectHistory {
    /// The process that it is in; `None` if one trace is checked.
    pub process: Option<RecordedProcess>,
    /// The kind of object.
    pub kind: String,
    /// The driver's value.
    pub handle: u64,
    /// Kind, generation, handle and name, e.g. `function#3 0x55d0 "saxpy"`.
    pub label: String,
    /// The call that created it or first returned its handle, e.g. `cuModuleLoadData, call 12, at
    /// main+0x40`.
    pub created: String,
    /// That call's index.
    pub created_call: u64,
    /// The ranges of the program that it was in, as in [`CallSite::ranges`].
    pub created_ranges: Vec<String>,
    /// The call that ended it; `None` if it lives.
    pub destroyed: Option<String>,
    /// That call's index.
    pub destroyed_call: Option<u64>,
    /// Labels of what it belongs to, the nearest first.
    pub parents: Vec<String>,
    /// Where the program created it, for [`FindingKey`].
    #[serde(skip)]
    pub creation: CodePlace,
}

/// A call that a finding is also about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelatedCall {
    /// What it did: `opened here`.
    pub what: String,
    /// The call.
    #[serde(flatten)]
    pub call: CallSite,
}

/// One misuse, with all that explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id in the catalogue of rules.
    pub rule: &'static str,
    /// What sort of event it is.
    pub class: Class,
    /// Which mistake of the program it is: by it findings of other runs are compared.
    pub key: FindingKey,
    /// How many more with this key were left out.
    pub repeats: u64,
    /// How bad it is here; no error if it rests on an assumption.
    pub severity: Severity,
    /// What it rests on.
    pub confidence: Confidence,
    /// A short statement for the first line.
    pub title: String,
    /// The call; `None` for what is missing at the trace's end.
    pub call: Option<CallSite>,
    /// One paragraph: what happened, and why it is wrong.
    pub message: String,
    /// Calls of other processes, or earlier ones, without which the call would be correct.
    pub related: Vec<RelatedCall>,
    /// The objects that it is about.
    pub objects: Vec<ObjectHistory>,
    /// The causes in order, the first one first.
    pub chain: Vec<String>,
    /// What to do instead.
    pub advice: String,
    /// The manual's section.
    pub manual: String,
}

impl Finding {
    /// Says which process its call and its objects belong to, if it does not say so.
    pub fn set_process(&mut self, process: &RecordedProcess) {
        if let Some(call) = &mut self.call {
            call.process.get_or_insert_with(|| process.clone());
        }
        for object in &mut self.objects {
            object.process.get_or_insert_with(|| process.clone());
        }
    }

    /// All calls that it names, with the processes that make them.
    pub fn calls_mut(&mut self) -> impl Iterator<Item = &mut CallSite> {
        let related = self.related.iter_mut().map(|related| &mut related.call);
        self.call.iter_mut().chain(related)
    }
}
