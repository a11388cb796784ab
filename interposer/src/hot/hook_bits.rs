//! Which hooks of `overrides` a function has, as far as its plan must know.

/// A bit for each hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HookBits {
    bits: u8,
    /// A bit for each parameter whose memory the hooks snapshot, so that the registry's roles must
    /// not.
    pub(crate) owned: u16,
}

/// The hooks, in the order in which they run.
pub(crate) const PUT_PRE: u8 = 1;
pub(crate) const PRE: u8 = 2;
pub(crate) const POST: u8 = 4;
pub(crate) const PUT_POST: u8 = 8;
pub(crate) const FINISH: u8 = 16;

impl HookBits {
    /// Whether one of these does something.
    pub(crate) fn have(self, hooks: u8) -> bool {
        self.bits & hooks != 0
    }

    /// These and one more.
    pub(crate) fn with(self, hook: u8) -> Self {
        let bits = self.bits | hook;
        Self { bits, ..self }
    }

    /// These, with more parameters.
    pub(crate) fn owning(self, parameters: u16) -> Self {
        let owned = self.owned | parameters;
        Self { owned, ..self }
    }

    /// These and others.
    pub(crate) fn and(self, others: Self) -> Self {
        self.with(others.bits).owning(others.owned)
    }
}
