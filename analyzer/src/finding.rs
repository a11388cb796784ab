//! A finding: its call, the histories of its objects, and the chain of causes.

use serde::Serialize;

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

/// The call that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSite {
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
    /// What it returned; `None` if it did not return.
    pub result: Option<CallResult>,
}

impl CallSite {
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

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallResult {
    /// The number.
    pub code: i32,
    /// Its name in `CUresult`, if that is what the function returns and it has one.
    pub name: Option<String>,
}

/// The history of an object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectHistory {
    /// The kind of object.
    pub kind: String,
    /// The driver's value.
    pub handle: u64,
    /// Kind, generation, handle and name, e.g. `function#3 0x55d0 "saxpy"`.
    pub label: String,
    /// The call that created it or first returned its handle, e.g. `cuModuleLoadData, call 12, at
    /// main+0x40`.
    pub created: String,
    /// The call that ended it; `None` if it lives.
    pub destroyed: Option<String>,
    /// Labels of what it belongs to, the nearest first.
    pub parents: Vec<String>,
}

/// One misuse, with all that explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id in the catalogue of rules.
    pub rule: &'static str,
    /// How bad it is here.
    pub severity: Severity,
    /// A short statement for the first line.
    pub title: String,
    /// The call; `None` for what is missing at the trace's end.
    pub call: Option<CallSite>,
    /// One paragraph: what happened, and why it is wrong.
    pub message: String,
    /// The objects that it is about.
    pub objects: Vec<ObjectHistory>,
    /// The causes in order, the first one first.
    pub chain: Vec<String>,
    /// What to do instead.
    pub advice: String,
    /// The manual's section.
    pub manual: String,
}
