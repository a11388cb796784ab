//! Which parts of a summary the calls of a function concern, decided once per function.

use cutape_analyzer::decode::function_of;
use cutape_format::Signature;
use cutape_registry::{CopyOp, Family, Function, LaunchOp};

/// Which parts of a summary look at the calls of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionInterest {
    /// The renderer observes them.
    pub(crate) renderer: bool,
    /// They copy or fill memory.
    pub(crate) copy: Option<CopyInterest>,
    /// They may hold module images.
    pub(crate) images: bool,
    /// They launch kernels.
    pub(crate) launch: Option<(&'static Function, LaunchOp)>,
    /// They return a `CUresult`, which tells whether they failed.
    pub(crate) returns_result: bool,
}

/// What a function does to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyInterest {
    Copy(CopyOp),
    Fill(&'static Function),
}

impl FunctionInterest {
    /// For calls of that function; `renderer`: the renderer observes them.
    pub(crate) fn of(signature: &Signature, renderer: bool) -> Self {
        let function = function_of(signature);
        let mut interest = Self {
            renderer,
            copy: None,
            images: false,
            launch: None,
            returns_result: signature.returns == "CUresult",
        };
        if let Some(function) = function {
            match function.family {
                Family::Copy(op) => interest.copy = Some(CopyInterest::Copy(op)),
                Family::Memset => interest.copy = Some(CopyInterest::Fill(function)),
                Family::ModuleLoad(_) | Family::LibraryLoad(_) | Family::Link(_) => {
                    interest.images = true;
                }
                Family::Launch(op) => interest.launch = Some((function, op)),
                _ => {}
            }
        }
        interest
    }
}
