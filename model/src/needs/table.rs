//! The needs of all calls: a list for each call.

use rustc_hash::FxHashMap;

/// Why a call needs another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Without it the call could not be made: it created an operand, made the context current, or
    /// initialised the driver.
    Existence,
    /// It changed an operand, or ended it.
    Setting,
    /// It wrote memory that the call may read.
    Content,
    /// It orders the call's work behind work that uses the same memory.
    Order,
    /// The later call ends what this one began: it destroys its object, ends its capture, or makes
    /// the context current again that was current before.
    Completion,
}

/// The needs of all calls of a trace, by call index.
#[derive(Debug, Default)]
pub struct Needs {
    /// Where the needs of each call begin in `needs`, and the end of the last.
    starts: Vec<usize>,
    needs: Vec<(u32, Need)>,
    /// The calls that run kernels or functions of the program, which a trace does not reproduce
    /// without a driver.
    computes: Vec<bool>,
    /// The calls that created what notes of memory are about, by call and address or handle.
    host: FxHashMap<(u32, u64), u32>,
    /// The calls that begin and end captures; `u32::MAX` if none ends it.
    captures: Vec<(u32, u32)>,
}

impl Needs {
    pub(super) fn new(
        calls: usize,
        mut found: Vec<(u32, u32, Need)>,
        computes: Vec<bool>,
        host: FxHashMap<(u32, u64), u32>,
        captures: Vec<(u32, u32)>,
    ) -> Self {
        found.sort_unstable();
        found.dedup();
        let mut starts = Vec::with_capacity(calls + 1);
        let mut needs = Vec::with_capacity(found.len());
        let mut found = found.into_iter().peekable();
        for call in 0..calls as u32 {
            starts.push(needs.len());
            while let Some((_, needed, need)) = found.next_if(|entry| entry.0 == call) {
                needs.push((needed, need));
            }
        }
        starts.push(needs.len());
        Self {
            starts,
            needs,
            computes,
            host,
            captures,
        }
    }

    /// Of calls with these needs, for tests of code that uses them.
    pub fn of_lists(lists: impl IntoIterator<Item = Vec<(u32, Need)>>) -> Self {
        let mut needs = Self::default();
        for list in lists {
            needs.starts.push(needs.needs.len());
            needs.computes.push(false);
            needs.needs.extend(list);
        }
        needs.starts.push(needs.needs.len());
        needs
    }

    /// How many calls there are.
    pub fn calls(&self) -> u64 {
        self.starts.len().saturating_sub(1) as u64
    }

    /// The calls that a call needs directly, and why; those with [`Need::Completion`] are later
    /// ones.
    pub fn of(&self, call: u64) -> &[(u32, Need)] {
        let at = |place| self.starts.get(place).copied();
        let range = usize::try_from(call)
            .ok()
            .and_then(|call| Some(at(call)?..at(call + 1)?));
        range
            .and_then(|range| self.needs.get(range))
            .unwrap_or_default()
    }

    /// Whether a call runs kernels or functions of the program.
    pub fn computes(&self, call: u64) -> bool {
        self.computes.get(call as usize) == Some(&true)
    }

    /// Whether a call needs what memory holds.
    pub fn reads_memory(&self, call: u64) -> bool {
        let needs = self.of(call);
        self.computes(call) || needs.iter().any(|&(_, need)| need == Need::Content)
    }

    /// The last call up to this one before which no stream captures.
    pub fn outside_captures(&self, call: u64) -> u64 {
        let mut start = call;
        loop {
            let mut open = self
                .captures
                .iter()
                .filter(|&&(begun, ended)| u64::from(begun) < start && start <= u64::from(ended));
            match open.next() {
                Some(&(begun, _)) => start = u64::from(begun),
                None => return start,
            }
        }
    }

    /// The call that created the memory, or loaded the module, that a note of a call is about: by
    /// its address or handle.
    pub fn noted_memory(&self, call: u64, address: u64) -> Option<u64> {
        let key = (u32::try_from(call).ok()?, address);
        self.host.get(&key).map(|&creator| u64::from(creator))
    }

    /// The chosen calls and all that they need, transitively; `follows` decides by the needing
    /// call, the needed one, and the reason.
    pub fn closure(
        &self,
        chosen: impl IntoIterator<Item = u64>,
        mut follows: impl FnMut(u64, u64, Need) -> bool,
    ) -> Vec<bool> {
        let mut kept = vec![false; self.calls() as usize];
        let mut open: Vec<u64> = chosen.into_iter().collect();
        while let Some(call) = open.pop() {
            match kept.get_mut(call as usize) {
                Some(known) if !*known => *known = true,
                _ => continue,
            }
            for &(needed, need) in self.of(call) {
                let needed = u64::from(needed);
                if kept.get(needed as usize) == Some(&false) && follows(call, needed, need) {
                    open.push(needed);
                }
            }
        }
        kept
    }
}
