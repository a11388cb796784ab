//! Which calls change objects, so that later users of these need them.

use cutape_format::Call;
use cutape_registry::{EventOp, Family, Kind, LinkOp, PoolOp, PrimaryOp, VirtualMemoryOp};

use super::builder::NeedsBuilder;
use super::changing::{changes_operands, makes_node};
use super::last_changes::set_by;
use super::operands::Operands;
use super::table::Need;
use crate::effects::Effects;
use crate::objects::ObjectId;

impl NeedsBuilder {
    /// A call has changed an object; `set` is what it has set.
    pub(super) fn changed(&mut self, id: ObjectId, set: Option<u64>, call: u32) {
        self.changed.entry(id).or_default().add(set, call);
    }

    /// The call has changed objects.
    pub(super) fn change(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        index: u32,
        operands: &Operands,
    ) {
        let function = effects.function;
        if !self.is_of_live {
            for &array in &operands.written_arrays {
                self.changed_handle(Kind::Array, array, None, index);
            }
        }
        match function.family {
            Family::Link(LinkOp::Complete { cubin, size }) => {
                let out = |position: u8| call.out(usize::from(position));
                if let (Some(address), Some(size)) = (out(cubin), out(size)) {
                    self.cubins.remove_overlapping(address, size);
                    self.cubins.insert(address, size, index);
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Map { address, size, .. }) => {
                let (start, size) = (
                    call.argument(usize::from(address)),
                    call.argument(usize::from(size)),
                );
                self.contents.forget(&(start..start.saturating_add(size)));
            }
            Family::Pool(PoolOp::SetCurrent) | Family::PrimaryContext(PrimaryOp::SetFlags) => {
                let device = effects.at("dev").map_or(0, |at| call.argument(at)) as i32;
                if let Some(earlier) = self.devices.insert(device, index) {
                    self.need(index, earlier, Need::Setting);
                }
            }
            _ => {}
        }
        if !changes_operands(effects) {
            return;
        }
        let set = set_by(effects, call);
        let records = function.family == Family::Event(EventOp::Record);
        let mut has_operand = false;
        // What the work of a node uses is not changed by making the node.
        let makes_work = makes_node(effects) || matches!(function.family, Family::Graph(_));
        for &(kind, handle) in &operands.handles {
            if kind == Kind::Stream && (function.stream.is_some() || records)
                || makes_work && !is_of_graphs(kind)
            {
                continue;
            }
            has_operand = true;
            self.changed_handle(kind, handle, set, index);
        }
        let touches = operands.touches.iter().filter(|_| !makes_work);
        for touch in touches {
            if let Some(place) = self.place_of(touch.address()) {
                has_operand = true;
                self.changed(place, None, index);
            }
        }
        if let Family::VirtualMemory(_) = function.family
            && let Some(place) = self.place_of(call.argument(0))
        {
            self.changed(place, None, index);
        }
        if !has_operand && let Some(context) = self.state.contexts.current(call.thread).object {
            self.changed(context, set, index);
        }
    }

    fn changed_handle(&mut self, kind: Kind, handle: u64, set: Option<u64>, call: u32) {
        let Some(id) = self.state.objects.resolve(kind, handle).live() else {
            return;
        };
        self.changed(id, set, call);
        // Launches and instantiations name the owner only.
        if matches!(
            kind,
            Kind::TextureReference | Kind::SurfaceReference | Kind::GraphNode
        ) {
            let owners: Vec<_> = self.state.objects.ancestors(id).collect();
            for owner in owners {
                let kind = self.state.objects.get(owner).map(|object| object.kind);
                if matches!(kind, Some(Kind::Module | Kind::Graph)) {
                    self.changed(owner, set, call);
                }
            }
        }
    }
}

fn is_of_graphs(kind: Kind) -> bool {
    matches!(kind, Kind::Graph | Kind::GraphNode | Kind::GraphExec)
}
