//! Pools of stream-ordered memory: what cannot be done with a default or an imported one.

use cutape_format::layout::field;
use cutape_model::Origin;
use cutape_registry::{Family, Kind, MemoryOp, PoolOp, SharingOp, rules};

use super::{Check, Draft, Rule, When, code, created_at};
use crate::plan::{Plan, Step};

/// For calls that take a pool.
pub(super) fn rule_of(plan: &Plan) -> Option<(When, Rule)> {
    let takes_pool = plan.used.contains(Kind::MemoryPool);
    takes_pool.then_some((When::Wrong, Rule::Consequence(refused)))
}

/// CUmemPool_attribute: the high-water marks.
const HIGH_MARKS: [u64; 2] = [6, 8];

/// A refused call about a pool.
pub(super) fn refused(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let pool = check.live(Kind::MemoryPool)?;
    let object = check.object(pool)?;
    let label = check.label(pool);
    let created = created_at(check.state, pool);
    let creator = cutape_registry::function(object.created.function);
    let is_imported = creator
        .is_some_and(|creator| matches!(creator.family, Family::Sharing(SharingOp::Import(_))));
    let mut steps = check.plan.steps.iter();
    let destroys = steps.any(|(_, step)| matches!(step, Step::Destroy(Kind::MemoryPool)));
    let what = match check.family() {
        // No call of the program created it.
        _ if destroys && object.origin == Origin::Found => format!(
            "destroys {label}, which {created} returned: a device's default pool, which belongs to \
             the driver"
        ),
        Family::Memory(MemoryOp::AllocateAsync) if is_imported => format!(
            "allocates from {label}, which {created} imported. Only the process that created a \
             pool can allocate from it"
        ),
        Family::Pool(PoolOp::SetCurrent) if is_imported => {
            format!("makes {label}, which {created} imported, the current pool of a device")
        }
        Family::Pool(PoolOp::SetAttribute)
            if HIGH_MARKS.contains(&(check.argument("attr")? & 0xffff_ffff)) =>
        {
            let snapshot = check
                .call
                .snapshot(check.plan.at("value")?, field::POINTEE)?;
            let value = u64::from_le_bytes(*snapshot.bytes.inline()?.first_chunk()?);
            if value == 0 {
                return None;
            }
            let attribute = check.argument("attr")? & 0xffff_ffff;
            let attribute = check.enum_name("CUmemPool_attribute", attribute as i64, "attribute");
            format!(
                "sets {attribute} of {label} to {value}. A high-water mark can only be reset to 0"
            )
        }
        _ => return None,
    };
    let title = "operation that the memory pool does not allow";
    let draft = check.draft(rules::MEMORY_POOL_MISUSE, title, what);
    Some(draft.object(pool))
}
