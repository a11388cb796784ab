//! Calls that may be other ones than in the recording, whose results stand for theirs.

use cutape_registry::{Family, glob};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum One {
    /// Launches of kernels with a name like this.
    Kernel(String),
    /// Calls of a function.
    Call(String),
}

/// Which calls they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(Vec<One>);

impl Allowed {
    /// Adds `kernel:PATTERN` or `call:FUNCTION`; false if the text is neither, or no such function
    /// exists.
    pub fn add(&mut self, text: &str) -> bool {
        let one = match text.split_once(':') {
            Some(("kernel", pattern)) if !pattern.is_empty() => One::Kernel(pattern.to_owned()),
            Some(("call", name)) if cutape_registry::function(name).is_some() => {
                One::Call(name.to_owned())
            }
            _ => return false,
        };
        self.0.push(one);
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a call of a function, which launches that kernel, is one of them.
    pub(crate) fn has(&self, function: &str, kernel: Option<&str>) -> bool {
        let family = cutape_registry::function(function).map(|function| function.family);
        let is_launch = matches!(family, Some(Family::Launch(_)));
        self.0.iter().any(|one| match one {
            One::Kernel(pattern) => {
                is_launch && kernel.is_some_and(|kernel| glob::matches(pattern, kernel))
            }
            One::Call(name) => name == function,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_functions_are_allowed() {
        let mut allowed = Allowed::default();
        for (text, is_taken) in [
            ("kernel:fill*", true),
            ("call:cuModuleLoadData", true),
            ("call:cuNothing", false),
            ("kernel:", false),
            ("fill", false),
        ] {
            assert_eq!(allowed.add(text), is_taken, "{text}");
        }
        for (function, kernel, expected) in [
            ("cuLaunchKernel", Some("fill_all"), true),
            ("cuLaunchKernel", Some("refill"), false),
            ("cuModuleLoadData", None, true),
            ("cuMemAlloc_v2", None, false),
        ] {
            assert_eq!(
                allowed.has(function, kernel),
                expected,
                "{function} {kernel:?}"
            );
        }
    }
}
