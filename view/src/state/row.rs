//! A call as a line of the list.

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// With the name of the result.
    Failure(String),
    /// It has not returned.
    InFlight,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) index: u64,
    pub(crate) thread: u32,
    /// Nanoseconds since the recording began.
    pub(crate) time: Option<u64>,
    pub(crate) function: String,
    /// Without parentheses.
    pub(crate) arguments: String,
    /// What it returned through pointers.
    pub(crate) outputs: String,
    pub(crate) outcome: Outcome,
}

impl Row {
    /// Whether the line contains a text, which is in lower case.
    pub(crate) fn contains(&self, text: &str) -> bool {
        let result = match &self.outcome {
            Outcome::Failure(name) => name.as_str(),
            _ => "",
        };
        let parts = [&self.function, &self.arguments, &self.outputs, result];
        parts
            .into_iter()
            .any(|part| part.to_lowercase().contains(text))
            || format!("{}({}) {}", self.function, self.arguments, self.outputs)
                .to_lowercase()
                .contains(text)
    }
}
