//! Which memory an address lies in, from call to call.

use std::fmt;
use std::ops::Range;

use cutape_analyzer::decode::Names;
use cutape_format::Trace;
use cutape_model::{Scope, Site, State};
use cutape_render::{Limits, Renderer};
use serde::Serialize;

/// When memory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Before a call.
    Before(u64),
    /// After the work of a call.
    After(u64),
    /// After the last call.
    End,
}

impl When {
    /// The call before which all has happened that counts.
    fn end(self) -> u64 {
        match self {
            Self::Before(call) => call,
            Self::After(call) => call.saturating_add(1),
            Self::End => u64::MAX,
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(call) => write!(f, "before call {call}"),
            Self::After(call) => write!(f, "after call {call}"),
            Self::End => f.write_str("at the end"),
        }
    }
}

/// Memory that has an address for some time.
#[derive(Clone, Debug)]
pub(crate) struct Lifetime {
    /// The address as `dump` shows it, e.g. `memory#3+0x40`.
    pub(crate) label: Option<String>,
    /// Its bytes; of mapped memory those from its mapping on that are mapped without a gap.
    pub(crate) range: Range<u64>,
    /// The call that allocated, mapped or found it.
    pub(crate) made: Site,
    /// The call that ended it, with its function.
    pub(crate) ended: Option<(u64, String)>,
}

impl Lifetime {
    /// Whether it is the object of that name.
    fn is_called(&self, name: &str) -> bool {
        let label = self.label.as_deref();
        label.is_some_and(|label| label.split('+').next() == Some(name))
    }
}

/// The memory that an address lies in, of all calls before `end`.
fn lifetimes(trace: &Trace, address: u64, end: u64) -> Vec<Lifetime> {
    // Mappings are followed in this scope only.
    let mut renderer = Renderer::new(trace, Limits::TEXT, Scope::Work);
    let mut all: Vec<Lifetime> = Vec::new();
    for call in trace.calls().take_while(|call| call.index < end) {
        let may_change = renderer.state.depends_on(&call);
        renderer.observe(&call);
        if !may_change {
            continue;
        }
        let now = around(&renderer.state.state, address);
        if let Some(last) = all.last_mut().filter(|last| last.ended.is_none()) {
            if let Some((range, _)) = now
                .as_ref()
                .filter(|(_, made)| made.index == last.made.index)
            {
                last.range = range.clone();
                continue;
            }
            last.ended = Some((call.index, call.signature.name.to_string()));
        }
        if let Some((range, made)) = now {
            all.push(Lifetime {
                label: renderer.calls.labels.place(address),
                range,
                made,
                ended: None,
            });
        }
    }
    all
}

/// The live memory around an address, and the call that made it.
fn around(state: &State<()>, address: u64) -> Option<(Range<u64>, Site)> {
    let mappings = &state.virtual_memory.mappings;
    if let Some((mut range, mapping)) = mappings.find(address) {
        while let Some((next, _)) = mappings.find(range.end) {
            range.end = next.end;
        }
        return Some((range, mapping.site));
    }
    let device = state.memory.live().find(address);
    let (range, &id) = device.or_else(|| state.host.live().find(address))?;
    Some((range, state.objects.get(id)?.created))
}

/// The memory that an address lies in at a moment; only an object of that name counts, if one is
/// given.
///
/// # Errors
/// Why there is none.
pub(crate) fn lifetime_at(
    trace: &Trace,
    address: u64,
    name: Option<&str>,
    when: When,
) -> Result<Lifetime, Absence> {
    let is_meant = |lifetime: &Lifetime| name.is_none_or(|name| lifetime.is_called(name));
    let last = |end| {
        let mut all = lifetimes(trace, address, end).into_iter();
        all.rfind(is_meant)
    };
    let what = name.map_or_else(|| format!("{address:#x}"), str::to_owned);
    let absent = |why: String, ended| Absence { why, ended };
    let Some(found) = last(when.end()) else {
        let later = lifetimes(trace, address, u64::MAX);
        let made = later.iter().find(|later| is_meant(later)).map(|it| it.made);
        let why = match made {
            Some(Site {
                index, function, ..
            }) => format!(
                "{what} is not live {when}: call {index} {function} makes it; ask about a later call"
            ),
            None => format!(
                "{what} lies in no memory that a call made: a replay does not have memory that the \
                 program got without the driver"
            ),
        };
        return Err(absent(why, None));
    };
    let what = found.label.clone().unwrap_or(what);
    if let Some((call, function)) = &found.ended {
        let why = format!(
            "{what} is not live {when}: call {call} {function} ended it; --at {call} --before \
             shows what it held"
        );
        return Err(absent(why, Some(*call)));
    }
    if when == When::After(found.made.index) {
        let (call, function) = (found.made.index, found.made.function);
        let why =
            format!("{what} is made by call {call} {function} itself; ask about a later call");
        return Err(absent(why, None));
    }
    Ok(found)
}

/// Why there is no memory at an address.
#[derive(Debug)]
pub(crate) struct Absence {
    /// In one line.
    pub(crate) why: String,
    /// The call that ended the memory that was there last.
    pub(crate) ended: Option<u64>,
}
