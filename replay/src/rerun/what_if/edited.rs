//! Steps that edits change.

use std::collections::BTreeMap;

use super::hazards::NonBlocking;
use super::host_side::HostSide;
use super::made::Made;
use super::noted::Noted;
use crate::calls::steps::{Issued, Step};
use crate::player::Player;

/// The steps, as far as they are edited.
#[derive(Debug)]
pub(super) struct Edited {
    pub steps: Vec<Step>,
    /// The host memory of copies, by call.
    pub host: BTreeMap<u64, HostSide>,
    pub made: Made,
    pub conditions: Vec<String>,
    /// The steps before calls were joined: `hazards` looks at these.
    pub unjoined: Vec<Step>,
    pub non_blocking: NonBlocking,
}

/// What an edit needs to know beside the steps.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, 't> {
    pub player: &'a Player<'t>,
    pub noted: &'a Noted,
}

impl Edited {
    pub(super) fn new(
        steps: &[Step],
        host: &BTreeMap<u64, HostSide>,
        non_blocking: NonBlocking,
    ) -> Self {
        Self {
            steps: steps.to_vec(),
            host: host.clone(),
            made: Made::default(),
            conditions: Vec::new(),
            unjoined: Vec::new(),
            non_blocking,
        }
    }

    /// The calls of the steps, to be changed.
    pub(super) fn calls_mut(&mut self) -> impl Iterator<Item = &mut Issued> {
        self.steps.iter_mut().filter_map(|step| match step {
            Step::Call(issued) => Some(issued),
            _ => None,
        })
    }
}
