//! What link calls and library loads tell: inputs, cubins, option values.

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{Family, Kind, LinkOp};

use super::data::{Cubin, ImageBytes, LinkInput};
use super::{State, image_snapshot, numbers32, numbers64};
use crate::context::{TraceContext, bytes_of};
use crate::plan::Plan;
use cutape_model::Site;

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
