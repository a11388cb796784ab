//! Thread block clusters: sizes by attribute, by function attribute, and by image.

use cutape_registry::{LaunchAttribute, rules};

use super::{Refused, attributes};
use crate::finding::Severity;
use crate::launch::{Launch, product, shape};
use crate::rules::function::{CLUSTER_WIDTH, NON_PORTABLE_CLUSTER};
use crate::rules::{Check, Draft, at, code};

/// The most blocks of a cluster that every device with clusters takes (sm_90: Execution Control,
/// cuFuncGetAttribute).
const PORTABLE: u64 = 8;
const SIDES: [&str; 3] = ["width", "height", "depth"];

/// Why the driver did not take the cluster of a launch.
pub(super) fn misconfigured(refused: &Refused<'_, '_>) -> Option<Draft> {
    partly_set(refused)
        .or_else(|| against_image(refused))
        .or_else(|| not_a_divisor(refused))
        .or_else(|| preferred(refused))
        .or_else(|| too_large(refused))
}

/// A question about clusters that the driver could not answer.
pub(super) fn question(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_CLUSTER_SIZE) {
        return None;
    }
    let launches = Launch::of(check.family(), check.call);
    let refused = Refused::new(check, launches.first()?);
    partly_set(&refused).or_else(|| against_image(&refused))
}

/// The sides that were set on the function.
fn set_sides(refused: &Refused<'_, '_>) -> [Option<(i64, cutape_model::Site)>; 3] {
    [0, 1, 2].map(|side| refused.set_attribute(CLUSTER_WIDTH + side))
}

/// The cluster of a launch, and where it comes from.
fn effective(refused: &Refused<'_, '_>) -> Option<([u32; 3], String)> {
    if let Some(cluster) = refused.launch.cluster() {
        return Some((cluster, "by attribute of the launch".to_owned()));
    }
    if let Some(cluster) = refused.image_fact(|function| function.required_cluster) {
        return Some((cluster, "by the image".to_owned()));
    }
    let set = set_sides(refused);
    let sides = set.map(|side| side.and_then(|(value, _)| u32::try_from(value).ok()));
    let last = set
        .into_iter()
        .flatten()
        .map(|(_, site)| site)
        .next_back()?;
    let cluster = sides.map(|side| side.unwrap_or(0));
    (cluster != [0; 3]).then(|| (cluster, format!("set by {}", at(last))))
}

/// A required size of which only some sides were set.
fn partly_set(refused: &Refused<'_, '_>) -> Option<Draft> {
    let set = set_sides(refused);
    let sides = set.map(|side| side.map_or(0, |(value, _)| value));
    let is_mixed = sides.iter().any(|&side| side > 0) && sides.contains(&0);
    if !is_mixed || refused.launch.cluster().is_some() {
        return None;
    }
    let list: Vec<String> = SIDES
        .iter()
        .zip(set)
        .map(|(name, side)| match side {
            Some((value, site)) => format!("{name} {value} ({})", at(site)),
            None => format!("{name} 0 (never set)"),
        })
        .collect();
    let what = format!(
        "launches {} with a required cluster size of which only a part is set: {}. All three must \
         be 0, or all at least 1",
        refused.label(),
        list.join(", "),
    );
    let title = "required cluster size set only in part";
    Some(refused.draft(rules::EXEC_ATTRIBUTE_CLUSTER_PARTIAL, title, what))
}

/// A cluster that the image contradicts, or that it asks for.
fn against_image(refused: &Refused<'_, '_>) -> Option<Draft> {
    let given = refused.launch.cluster();
    let required = refused.image_fact(|function| function.required_cluster);
    let title = "cluster size that the image does not allow";
    let rule = rules::LAUNCH_CONFIG_CLUSTER_REQUIRED;
    if let (Some(given), Some(required)) = (given, required)
        && given != required
    {
        let what = format!(
            "gives a cluster of {} for {}, but its image requires {} (.reqnctapercluster, from \
             __cluster_dims__)",
            shape(given),
            refused.label(),
            shape(required),
        );
        return Some(refused.draft(rule, title, what));
    }
    let must = refused.queried_attribute(crate::rules::function::CLUSTER_MUST_BE_SET) == Some(1)
        || refused.image_fact(|function| Some(function.needs_cluster)) == Some(true);
    if !must || effective(refused).is_some() {
        return None;
    }
    let need = "a cluster size that the launch chooses (.explicitcluster)";
    if let Some(draft) = attributes::unread(refused, need) {
        return Some(draft.severity(Severity::Error));
    }
    let what = format!(
        "gives no cluster size for {}, which was compiled for clusters of a size that the launch \
         chooses (.explicitcluster). It needs CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, or the \
         function's required cluster attributes",
        refused.label(),
    );
    let title = "kernel for clusters without a cluster size";
    Some(refused.draft(rule, title, what))
}

/// A cluster with a side of zero, or that does not divide the grid, or on a device without any.
fn not_a_divisor(refused: &Refused<'_, '_>) -> Option<Draft> {
    let (cluster, source) = effective(refused)?;
    let grid = refused.launch.grid;
    let rule = rules::LAUNCH_CONFIG_CLUSTER_NOT_DIVISOR;
    if let Some((0, limit)) = refused.limit("CLUSTER_LAUNCH") {
        let what = format!(
            "launches {} with clusters of {} ({source}), but {limit} is 0",
            refused.label(),
            shape(cluster),
        );
        return Some(refused.draft(rule, "clusters on a device without them", what));
    }
    let fits = |(blocks, size): (u32, u32)| size > 0 && blocks % size == 0;
    if grid.into_iter().zip(cluster).all(fits) {
        return None;
    }
    let what = format!(
        "launches {} with a grid of {} in clusters of {} ({source}). Each side of the cluster must \
         be at least 1 and divide that side of the grid",
        refused.label(),
        shape(grid),
        shape(cluster),
    );
    let title = "cluster size that does not divide the grid";
    Some(refused.draft(rule, title, what))
}

/// A preferred cluster without a regular one, or not a multiple of it.
fn preferred(refused: &Refused<'_, '_>) -> Option<Draft> {
    let attributes = refused.launch.attributes;
    let preferred = attributes.shape(LaunchAttribute::PreferredClusterDimension)?;
    let Some((regular, source)) = effective(refused) else {
        let what = format!(
            "launches {} with a preferred cluster of {}, but without a regular cluster size, which \
             the driver falls back to",
            refused.label(),
            shape(preferred),
        );
        let title = "preferred cluster size without a regular one";
        let rule = rules::LAUNCH_CONFIG_PREFERRED_CLUSTER_ALONE;
        return Some(refused.draft(rule, title, what));
    };
    let divides = |(size, part): (u32, u32)| part > 0 && size > 0 && size % part == 0;
    let most = refused.image_fact(|function| function.max_cluster_blocks);
    let most = most.filter(|&most| product(preferred) > u64::from(most));
    let problem = if !preferred.into_iter().zip(regular).all(divides) {
        "each side must be a multiple of the regular one".to_owned()
    } else if preferred[2] != regular[2] {
        "the two must have the same depth".to_owned()
    } else if !refused.launch.grid.into_iter().zip(preferred).all(divides) {
        format!(
            "each side must divide the grid of {}",
            shape(refused.launch.grid)
        )
    } else if let Some(most) = most {
        format!("the kernel was compiled for at most {most} blocks a cluster (.maxclusterrank)")
    } else {
        return None;
    };
    let what = format!(
        "launches {} with a preferred cluster of {} and a regular one of {} ({source}): {problem}",
        refused.label(),
        shape(preferred),
        shape(regular),
    );
    let title = "preferred cluster size that does not fit";
    Some(refused.draft(rules::LAUNCH_CONFIG_PREFERRED_CLUSTER_SHAPE, title, what))
}

/// More blocks in a cluster than every device takes.
fn too_large(refused: &Refused<'_, '_>) -> Option<Draft> {
    let (cluster, source) = effective(refused)?;
    let blocks = product(cluster);
    if blocks <= PORTABLE {
        return None;
    }
    let permitted = refused.set_attribute(NON_PORTABLE_CLUSTER);
    let why = match permitted {
        Some((value, site)) if value != 0 => format!(
            "{} permitted more, but such clusters need not fit the device; \
             cuOccupancyMaxActiveClusters tells",
            at(site)
        ),
        _ => "more need CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED on the function, \
              which is not set"
            .to_owned(),
    };
    let what = format!(
        "launches {} in clusters of {} = {blocks} blocks ({source}). {PORTABLE} blocks are the \
         portable limit; {why}",
        refused.label(),
        shape(cluster),
    );
    let title = "cluster larger than the portable size";
    Some(refused.draft(rules::LAUNCH_CONFIG_CLUSTER_NONPORTABLE, title, what))
}
