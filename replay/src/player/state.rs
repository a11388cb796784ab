//! What a replay knows.

use std::collections::HashMap;
use std::sync::Arc;

use cutape_format::Trace;
use cutape_model::VirtualMemory;

use crate::api::Api;
use crate::api::buffer::Buffer;
use crate::calls::issuer::Issuer;
use crate::compare::comparer::Comparer;
use crate::compare::consequences::Consequences;
use crate::compare::digest_kernel::Digests;
use crate::compare::launch_values::LaunchDigests;
use crate::compare::payload::KeptBlobs;
use crate::compare::readbacks::Readbacks;
use crate::lent::LentMemory;
use crate::machine::Machine;
use crate::objects::handles::Handles;
use crate::objects::stream_capture::StreamCaptures;
use crate::observation::observer::Observer;
use crate::options::Options;
use crate::place::address::Ranges;
use crate::place::natural::Fillers;
use crate::place::placement::Placement;
use crate::plan::Plan;
use crate::process::position::Position;
use crate::report::{Placed, Report};
use crate::unavailable::Unavailable;
use crate::unavailable::exchanges::Exchanges;
use crate::unavailable::held_addresses::HeldAddresses;

/// The state of a replay.
pub(crate) struct ReplayState<'t> {
    pub trace: &'t Trace,
    pub plan: &'t Plan,
    pub api: Arc<Api>,
    pub options: &'t Options,
    pub issuer: Issuer,
    pub comparer: Comparer,
    /// What follows from calls that were left out.
    pub consequences: Consequences,
    /// Bytes that asynchronous copies bring.
    pub readbacks: Readbacks,
    pub blobs: KeptBlobs,
    pub captures: StreamCaptures,
    pub handles: Handles,
    /// By recorded link state: its options with their logs, where the driver writes until the state
    /// is destroyed.
    pub links: HashMap<u64, Vec<Buffer>>,
    pub ranges: Ranges,
    /// What issued calls have mapped into reservations, at recorded addresses.
    pub mapped: VirtualMemory,
    pub placement: Placement,
    pub fillers: Fillers,
    pub unavailable: Unavailable,
    /// Addresses in device memory, while it matters which memory launches get at.
    pub held_addresses: HeldAddresses,
    /// Memory that is shared with other ranks, if the trace is replayed without them.
    pub exchanges: Exchanges,
    /// By recorded address: the memory in the place of what `cuIpcOpenMemHandle` opened.
    pub stand_ins: HashMap<u64, u64>,
    pub digests: Digests,
    pub launch_digests: LaunchDigests,
    pub lent: LentMemory,
    pub machine: Machine,
    pub report: Report,
    /// Reads memory around chosen calls.
    pub observer: Option<Box<Observer>>,
}

impl<'t> ReplayState<'t> {
    pub(crate) fn new(
        trace: &'t Trace,
        plan: &'t Plan,
        api: Arc<Api>,
        options: &'t Options,
        position: Arc<Position>,
    ) -> Self {
        Self {
            trace,
            plan,
            api,
            options,
            issuer: Issuer::new(position, options.watchdog),
            comparer: Comparer::new(plan, options.timing),
            consequences: Consequences::default(),
            readbacks: Readbacks::default(),
            blobs: KeptBlobs::default(),
            captures: StreamCaptures::default(),
            handles: Handles::default(),
            links: HashMap::new(),
            ranges: Ranges::default(),
            mapped: VirtualMemory::default(),
            placement: Placement::default(),
            fillers: Fillers::new(options.lessons.clone(), &plan.registered),
            unavailable: Unavailable::new(plan),
            held_addresses: HeldAddresses::default(),
            exchanges: Exchanges::default(),
            stand_ins: HashMap::new(),
            digests: Digests::default(),
            launch_digests: LaunchDigests::default(),
            lent: LentMemory::new(&options.waiting_launches),
            machine: Machine::default(),
            report: Report {
                calls: plan.calls,
                placed: Placed {
                    strategy: options.placement,
                    ..Placed::default()
                },
                ..Report::default()
            },
            observer: None,
        }
    }
}
