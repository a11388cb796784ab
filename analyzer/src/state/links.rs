//! What link calls and library loads tell: inputs, cubins, option values.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::{Effect, ObjectId, Site};
use cutape_registry::{Family, FunctionOp, Kind, LinkOp};

use super::data::{Cubin, ImageBytes, LinkInput, RefusedInput};
use super::{State, image_snapshot, numbers32, numbers64};
use crate::context::{TraceContext, bytes_of};
use crate::plan::Plan;

/// A library option (cuda.h: CU_LIBRARY_BINARY_IS_PRESERVED).
pub(crate) const BINARY_IS_PRESERVED: u32 = 1;

impl State {
    /// A link is completed: its cubin belongs to the link state.
    pub(super) fn completed(&mut self, call: &Call<'_>, site: Site, out: usize, size: usize) {
        let Some(link) = self.objects.live(Kind::Link, call.argument(0)) else {
            return;
        };
        if let Some(data) = self.link_data_mut(link) {
            data.completed = Some(site);
        }
        let Some(address) = call.out(out).filter(|&address| address != 0) else {
            return;
        };
        let file = call
            .leave
            .and_then(|leave| leave.snapshot(out, field::FILE));
        let source = file.map_or(ImageBytes::Unknown, |file| ImageBytes::of(file.bytes));
        let size = call
            .out(size)
            .or_else(|| file.and_then(|c| c.bytes.length()))
            .unwrap_or(1);
        // The driver has reused the block, so nothing else can lie there.
        self.cubins.retain(|old| {
            old.freed.is_none()
                || old.address >= address.saturating_add(size)
                || address >= old.address.saturating_add(old.size)
        });
        self.cubins.push(Cubin {
            address,
            size,
            link,
            completed: site,
            source,
            freed: None,
        });
    }

    /// What the link state of a call, or the link of its module, refused before.
    pub(crate) fn refused_input(&self, plan: &Plan, call: &Call<'_>) -> Option<RefusedInput> {
        match plan.function.family {
            Family::Link(LinkOp::Complete { .. }) => {
                let link = self.objects.live(Kind::Link, call.argument(0))?;
                self.link_data(link)?.lacks
            }
            Family::Function(FunctionOp::Find { .. })
            | Family::Kernel(FunctionOp::Find { .. })
            | Family::Global(_) => self.image_data(self.image_owner(plan, call)?)?.lacks,
            _ => None,
        }
    }

    /// A link call or a lookup failed, `reported` if there is a finding about it. Returns whether
    /// there is one about it or about the input whose refusal made it fail.
    pub(super) fn follow_refused(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        reported: bool,
    ) -> bool {
        let is_input = matches!(
            plan.function.family,
            Family::Link(LinkOp::AddData { .. } | LinkOp::AddFile { .. })
        );
        let refused = self.refused_input(plan, call);
        let owner = (self.objects.live(Kind::Link, call.argument(0)))
            .or_else(|| self.image_owner(plan, call));
        let Some(owner) = owner.filter(|_| is_input || refused.is_some()) else {
            return reported;
        };
        let was_reported = refused.is_some_and(|refused| refused.reported);
        self.consequences += u64::from(was_reported && !reported);
        let lacks = match self.link_data(owner).is_some() {
            true => self.link_data_mut(owner).map(|data| &mut data.lacks),
            false => self.image_data_mut(owner).map(|data| &mut data.lacks),
        };
        if let Some(lacks) = lacks {
            lacks
                .get_or_insert(RefusedInput { site, reported })
                .reported |= reported;
        }
        reported || was_reported
    }

    /// A module was loaded: of a linked image it is known what it lacks.
    pub(super) fn note_linked(&mut self, plan: &Plan, call: &Call<'_>) {
        let Some(address) = plan.image.map(|position| call.argument(position)) else {
            return;
        };
        let mut cubins = self.cubins.iter().rev();
        let cubin = cubins.find(|cubin| cubin.address == address && cubin.freed.is_none());
        let lacks = cubin.and_then(|cubin| self.link_data(cubin.link)?.lacks);
        if let (Some(lacks), Some(owner)) = (lacks, self.loaded(plan, call))
            && let Some(data) = self.image_data_mut(owner)
        {
            data.lacks = Some(lacks);
        }
    }

    /// The module or library that a load returned.
    fn loaded(&self, plan: &Plan, call: &Call<'_>) -> Option<ObjectId> {
        [Kind::Module, Kind::Library].into_iter().find_map(|kind| {
            let mut effects = plan.effects.objects.iter();
            let &(position, _) = effects
                .find(|(_, effect)| matches!(effect, Effect::Create(made, _) if *made == kind))?;
            self.objects.live(kind, call.out(position)?)
        })
    }

    /// A link state has accepted an input.
    pub(super) fn input_added(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        site: Site,
    ) {
        let input = link_input(plan, call, context, site);
        if let Some(link) = self.objects.live(Kind::Link, call.argument(0))
            && let Some(data) = self.link_data_mut(link)
        {
            data.inputs.push(input);
            // The input may be what the program falls back to.
            data.lacks = data.lacks.filter(|refused| refused.reported);
        }
    }

    /// After a link call: what the driver wrote to the option values that the link state was
    /// created with.
    pub(super) fn link_values(&mut self, plan: &Plan, call: &Call<'_>) {
        if !matches!(
            plan.function.family,
            Family::Link(LinkOp::AddData { .. } | LinkOp::AddFile { .. } | LinkOp::Complete { .. })
        ) {
            return;
        }
        let values = numbers64(
            call.leave
                .and_then(|leave| leave.snapshot(0, field::OPTION_VALUES)),
        );
        let Some(link) = self.objects.live(Kind::Link, call.argument(0)) else {
            return;
        };
        let Some(address) = self.link_data(link).map(|data| data.options.values_address) else {
            return;
        };
        if !values.is_empty()
            && let Some(array) = self.arrays.get_mut(&address)
            && array.numbers.len() == values.len()
        {
            array.left = values;
        }
    }
}

/// What an added input defines and needs.
pub(crate) fn link_input(
    plan: &Plan,
    call: &Call<'_>,
    context: &dyn TraceContext,
    site: Site,
) -> LinkInput {
    let mut input = LinkInput {
        site,
        defines: Vec::new(),
        needs: Vec::new(),
        provides: Vec::new(),
        known: false,
    };
    let data = plan
        .at("data")
        .and_then(|position| call.snapshot(position, field::POINTEE));
    let snapshot = data.or_else(|| image_snapshot(plan, call));
    let bytes = snapshot.and_then(|snapshot| bytes_of(context, snapshot.bytes));
    let Some(image) = bytes.and_then(|bytes| cutape_image::parse(&bytes).ok()) else {
        return input;
    };
    // The driver chooses between several entries.
    if let [entry] = image.entries.as_slice()
        && let Ok(content) = &entry.content
    {
        input.known = true;
        input.defines.extend(
            content
                .functions
                .iter()
                .filter(|f| f.is_entry)
                .map(|f| f.name.clone()),
        );
        input.needs.clone_from(&content.undefined);
        let functions = content
            .functions
            .iter()
            .filter(|f| !f.is_entry)
            .map(|f| f.name.clone());
        let globals = content
            .globals
            .iter()
            .filter(|g| !g.external)
            .map(|g| g.name.clone());
        // Device functions and variables may be local to their input, so equal names need not
        // clash.
        input.provides.extend(functions.chain(globals));
    }
    input
}

/// The value of a library option, if the call passes that option.
pub(crate) fn library_option(plan: &Plan, call: &Call<'_>, option: u32) -> Option<u64> {
    let shape = plan.library_options?;
    let numbers = numbers32(call.snapshot(shape.numbers, field::LIBRARY_OPTIONS));
    let values = numbers64(call.snapshot(shape.values, field::LIBRARY_OPTION_VALUES));
    let position = numbers.iter().position(|&number| number == option)?;
    Some(values.get(position).copied().unwrap_or(1))
}
