//! What the calls of a function have to say to a summary, worked out once for each function.

use cutape_format::layout::field;
use cutape_format::{Call, Signature, Signatures};
use cutape_registry::{Function, Role};

/// Which parts of a summary look at the calls of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionInterest {
    /// What the registry knows of it.
    pub(crate) function: Option<&'static Function>,
    /// They say what handles stand for.
    pub(crate) introduces: bool,
    /// They make or destroy objects, or change which context is current.
    pub(crate) objects: bool,
    /// They copy or fill memory.
    pub(crate) copies: bool,
    /// They may hold module images.
    pub(crate) images: bool,
    /// Where a launch's grid is, if they launch kernels.
    pub(crate) grid: Option<Grid>,
    /// They return a `CUresult`, which says whether they failed.
    pub(crate) returns_result: bool,
}

/// Where a launch's grid is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grid {
    /// Positions of three parameters.
    Arguments([usize; 3]),
    /// Offset and size of three members of the struct behind a parameter.
    Members(usize, [(usize, usize); 3]),
    /// The signature does not say.
    Unknown,
}

impl FunctionInterest {
    /// For calls of that function, of which something else knows whether they say what handles stand for.
    pub(crate) fn of(signature: &Signature, signatures: &Signatures, introduces: bool) -> Self {
        let function = cutape_registry::function(&signature.name);
        let base = signature.base.as_str();
        let changes = |role: Role| matches!(role, Role::Make(..) | Role::Destroy(_));
        let begins = |words: &[&str]| words.iter().any(|word| base.starts_with(word));
        Self {
            function,
            introduces,
            objects: function.is_some_and(|f| f.params.iter().any(|param| changes(param.role)))
                || begins(&["cuCtx", "cuDevicePrimaryCtx"]),
            copies: begins(&["cuMemcpy", "cuMemset"]),
            images: begins(&["cuModule", "cuLibrary", "cuLink"]),
            grid: begins(&["cuLaunch"]).then(|| Grid::of(signature, signatures)),
            returns_result: signature.returns == "CUresult",
        }
    }
}

const NAMES: [&str; 3] = ["gridDimX", "gridDimY", "gridDimZ"];

impl Grid {
    fn of(signature: &Signature, signatures: &Signatures) -> Self {
        let positions = NAMES.map(|name| signature.parameter(name));
        if let [Some(x), Some(y), Some(z)] = positions {
            return Self::Arguments([x, y, z]);
        }
        let layout = signatures.structure("CUlaunchConfig");
        let member = |name| {
            let field = layout?.fields.iter().find(|field| field.name == name)?;
            Some((field.offset, field.size))
        };
        match (signature.parameter("config"), NAMES.map(member)) {
            (Some(position), [Some(x), Some(y), Some(z)]) => Self::Members(position, [x, y, z]),
            _ => Self::Unknown,
        }
    }

    /// How many blocks there are in each dimension, if the call says so.
    pub(crate) fn read(self, call: &Call<'_>) -> Option<[u64; 3]> {
        match self {
            Self::Arguments(positions) => Some(positions.map(|position| call.argument(position))),
            Self::Members(position, members) => {
                let bytes = call.snapshot(position, field::POINTEE)?.bytes.inline()?;
                let [x, y, z] = members.map(|(offset, size)| {
                    let raw = bytes.get(offset..offset.checked_add(size)?)?;
                    let mut word = [0; 8];
                    word.get_mut(..size)?.copy_from_slice(raw);
                    Some(u64::from_le_bytes(word))
                });
                Some([x?, y?, z?])
            }
            Self::Unknown => None,
        }
    }
}
