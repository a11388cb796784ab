//! The private tables of `cuGetExportTable`, which the CUDA runtime and NVIDIA's libraries call the
//! driver through. A table is an array of pointers to functions. Its first slot is the table's size
//! in bytes, except in that of context-local storage.
//!
//! NVIDIA documents none of them. The names, the slots and what is known of them are those that
//! public reimplementations of the driver have found (ZLUDA, `dark_api`). Measured is, where a comment
//! says so, what a slot does, and that programs of the runtimes 12.9 and 13.0 run. A slot of which nothing is known answers
//! NOT_SUPPORTED, with a line in the error log.

pub(crate) mod context_storage;
mod cudart;
mod device;
mod integrity;
mod md2;
mod modules;
mod slot;
mod tools;

use slot::Slot;

/// The tables by UUID, in the order of its text.
const TABLES: &[(u128, &[Slot])] = &[
    (0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9, &cudart::INTERFACE),
    (
        0xa094798c_2e74_2e74_93f2_0800200c0a66,
        &tools::CALLBACK_HOOKS,
    ),
    (
        0x42d85a81_23f6_cb47_8298_f6e78a3aecdc,
        &tools::THREAD_STORAGE,
    ),
    (
        0xc693336e_1121_df11_a8c3_68f355d89593,
        &context_storage::TABLE,
    ),
    (
        0x263e8860_7cd2_6143_92f6_bbd5006dfa7e,
        &device::CONTEXT_CHECKS,
    ),
    (0xd4082055_bde6_704b_8d34_ba123c66e1f2, &integrity::TABLE),
    (
        0x0ca50b8c_1004_929a_89a7_d0df10e77286,
        &device::CONTEXT_CREATION,
    ),
    (0x195bcbf4_d67d_024a_acc5_1d29cea631ae, &device::HEAP),
    (0xb10541e1_f7c7_c74a_9f64_f223be99f1e2, &device::EXTENDED),
    (0x21318c60_9714_3248_8ca6_41ff7324c8f2, &device::LARGE),
    (0x6e163fbe_b958_444d_835c_e182aff1991e, &modules::TABLE),
];

/// The address of a table.
pub(crate) fn find(uuid: u128) -> Option<u64> {
    let table = TABLES.iter().find(|table| table.0 == uuid)?;
    Some(table.1.as_ptr() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_slot_is_null() {
        for &(uuid, slots) in TABLES {
            assert!(slots.iter().all(|slot| slot.address() != 0), "{uuid:032x}");
            let is_sized = slots[0].address() == size_of_val(slots) as u64;
            let is_storage = std::ptr::eq(slots, &raw const context_storage::TABLE[..]);
            assert!(
                is_sized || is_storage,
                "{uuid:032x}: {:x}",
                slots[0].address()
            );
        }
    }
}
