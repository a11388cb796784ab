//! The part of a trace that chosen calls need.

use cutape_format::{Error, Trace};
use cutape_model::{Need, Needs, NeedsBuilder};

/// Calls of a trace that can be replayed without the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// By call index: whether the call is in the part.
    pub calls: Vec<bool>,
    /// How many of them were chosen; the others are there because these need them.
    pub chosen: u64,
}

impl Part {
    /// How many calls there are.
    pub fn count(&self) -> u64 {
        self.calls.iter().filter(|&&is_in| is_in).count() as u64
    }

    /// Their indices in the source.
    pub fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        let calls = (0..).zip(&self.calls);
        calls.filter(|&(_, &is_in)| is_in).map(|(index, _)| index)
    }
}

/// Reads what each call of a trace needs.
///
/// # Errors
/// Damage of the trace.
pub fn needs(trace: &Trace, progress: &mut dyn FnMut()) -> Result<Needs, Error> {
    let mut builder = NeedsBuilder::default();
    let read = |bytes: cutape_format::Bytes<'_>| {
        let bytes = trace.resolve(bytes).ok()?;
        Some(std::borrow::Cow::Owned(bytes.into_owned()))
    };
    trace.walk().run(|call| {
        builder.push(call, &read);
        progress();
        Ok::<_, Error>(())
    })?;
    Ok(builder.finish())
}

/// The chosen calls with all that they need. What memory held before them is computed again: the
/// copies, memsets and launches that wrote it are in the part.
pub fn part(needs: &Needs, chosen: &[u64]) -> Part {
    let in_trace = |&&call: &&u64| call < needs.calls();
    Part {
        calls: needs.closure(chosen.iter().copied(), |_, _, _: Need| true),
        chosen: chosen.iter().filter(in_trace).count() as u64,
    }
}
