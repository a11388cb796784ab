//! What calls do to the current contexts of threads, and to primary contexts.

use cutape_format::Call;
use cutape_registry::{ContextOp, Kind, PrimaryOp};

use crate::effects::{Action, Effects};
use crate::objects::{Lookup, NewObject, ObjectId, Origin};
use crate::state::{ContextData, Data, State};

impl<X> State<X> {
    /// Which context is current, and which primary contexts are retained.
    pub(crate) fn follow_contexts(&mut self, effects: &Effects, call: &Call<'_>) {
        let thread = call.thread;
        let returned = || call.out(effects.at("pctx")?);
        match effects.action {
            Action::Context(ContextOp::Device) => {
                let named = effects
                    .handle_of(call, Kind::Context)
                    .filter(|&handle| handle != 0);
                let context = match named {
                    Some(handle) => self.objects.live(Kind::Context, handle),
                    None => self.contexts.current(thread).object,
                };
                if let Some(object) = context.and_then(|context| self.objects.get_mut(context))
                    && matches!(object.data, Data::None)
                    && let Some(device) = call.out(0)
                {
                    object.data = Data::Context(ContextData {
                        device: device as i32,
                        primary: false,
                    });
                }
            }
            Action::Context(operation) => {
                let stacks = &mut self.contexts.stacks;
                if let Some(handle) = stacks.apply(operation, effects.function.name, call) {
                    let object = self.named_context(effects, call, handle);
                    self.contexts.stacks.name(thread, object);
                }
            }
            Action::Primary(PrimaryOp::Retain) => {
                let context =
                    returned().and_then(|handle| self.objects.live(Kind::Context, handle));
                if let Some(context) = context {
                    let device = effects.at("dev").map_or(0, |at| call.argument(at)) as i32;
                    self.contexts.retain(device, context, effects.site(call));
                }
            }
            Action::Primary(PrimaryOp::Release) => {
                if let Some(context) = self.contexts.release(call.argument(0) as i32) {
                    let ended = self.objects.end(context, effects.site(call));
                    self.ended(ended);
                }
            }
            Action::Primary(PrimaryOp::Reset) => {
                let site = effects.site(call);
                if let Some(context) = self.contexts.reset(call.argument(0) as i32, site) {
                    let handle = self.objects.get(context).map(|context| context.handle);
                    self.order.complete_context(handle.unwrap_or(0));
                    let ended = self.objects.end_children(context, site);
                    self.ended(ended);
                }
            }
            _ => {}
        }
    }

    /// The context that a successful call names as current. The CUDA runtime has the handle of a
    /// primary context from a private table, and makes it current before a call of the program
    /// returns it; that call says later what the context is.
    fn named_context(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        handle: u64,
    ) -> Option<ObjectId> {
        match self.objects.find(Kind::Context, handle) {
            Lookup::Live(id) => Some(id),
            Lookup::Unknown if handle != 0 => {
                let site = effects.site(call);
                let new = NewObject::of(Kind::Context, handle, Origin::FirstSeen, site, call);
                Some(self.objects.create(new, Data::None).0)
            }
            // Of an ended primary context the handle stays, and may be returned again.
            _ => None,
        }
    }
}
