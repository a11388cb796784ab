//! What structs, address arrays and attribute values hold: recorded handles and addresses become
//! live ones, both in what a call is given and in what is expected back.

use cutape_format::Call;
use cutape_registry::layout::is_padding;
use cutape_registry::{Field, Function, Kind, Length, Meaning, Param, Role, Struct, structure};

use crate::api::buffer::{copy_common, number};
use crate::calls::types::{is_address, is_range_attribute, pointee};
use crate::objects::handles::Resolved;
use crate::objects::skip::Skip;
use crate::player::{Job, Player};

/// What a pointer parameter points to, element by element.
#[derive(Clone, Copy, Debug)]
enum Elements {
    /// Structs.
    Structs(&'static Struct),
    /// Values of one type: bytes, meaning.
    Values(usize, Meaning),
    /// Nothing that has to be replaced.
    Plain,
}

fn elements(
    (function, param): (Option<&Function>, &Param),
    length: Length,
    call: &Call,
    is_input: bool,
) -> Elements {
    if let Length::ByAttribute(position, _) = length {
        let attribute = call.argument(usize::from(position));
        return match length.attribute_type(attribute) {
            Some(known) => Elements::Values(known.bytes as usize, known.meaning),
            None => Elements::Plain,
        };
    }
    // CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ..._ACCESSED_BY and ..._LAST_PREFETCH_LOCATION:
    // devices.
    if function.is_some_and(is_range_attribute)
        && matches!(param.role, Role::Out(_))
        && matches!(call.argument_named("attribute"), Some(2..=4))
    {
        return Elements::Values(4, Meaning::Handle(Kind::Device));
    }
    match pointee(param.c_type) {
        // Arrays of `void *` that are read hold options, not addresses.
        _ if is_address(param.c_type) && !(is_input && param.c_type.contains("void")) => {
            Elements::Values(8, Meaning::Address)
        }
        Some(name) => structure(name).map_or(Elements::Plain, Elements::Structs),
        None => Elements::Plain,
    }
}

/// The bytes of a member, if it counts.
pub(crate) fn member<'a>(element: &'a mut [u8], field: &Field) -> Option<&'a mut [u8]> {
    if field.meaning == Meaning::Unknown || field.when.is_some_and(|when| !when.holds(element)) {
        return None;
    }
    let start = field.offset as usize;
    element.get_mut(start..start + field.size as usize)
}

fn put(place: &mut [u8], value: u64) {
    for (byte, new) in place.iter_mut().zip(value.to_le_bytes()) {
        *byte = new;
    }
}

/// Takes what no member covers, or only reserved ones and those of a union that do not count, from
/// `here`: a driver does not write it, so that the recording has what the program's memory held
/// before (seen behind cuArray3DGetDescriptor).
fn take_padding(layout: &Struct, element: &mut [u8], here: &[u8]) {
    let counts = |field: &&Field| {
        !is_padding(field.name) && field.when.is_none_or(|when| when.holds(element))
    };
    let mut written = vec![layout.token; element.len()];
    for field in layout.fields.iter().filter(counts) {
        let (start, end) = (field.offset as usize, (field.offset + field.size) as usize);
        let end = end.min(written.len());
        if let Some(bytes) = written.get_mut(start..end) {
            bytes.fill(true);
        }
    }
    for ((byte, &here), written) in element.iter_mut().zip(here).zip(written) {
        if !written {
            *byte = here;
        }
    }
}

impl<'t> Job<'_, 't> {
    /// Replaces what an input holds by what it means here.
    pub(crate) fn input_live(
        &mut self,
        param: &Param,
        length: Length,
        bytes: &mut [u8],
    ) -> Result<(), Skip> {
        match elements((Some(self.function), param), length, self.call, true) {
            Elements::Plain => Ok(()),
            Elements::Values(size, meaning) => {
                for value in bytes.chunks_exact_mut(size.max(1)) {
                    self.value_live(param.name, meaning, value)?;
                }
                Ok(())
            }
            Elements::Structs(layout) => {
                for element in bytes.chunks_exact_mut((layout.size as usize).max(1)) {
                    self.struct_live(param.name, layout, element)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn struct_live(
        &mut self,
        name: &str,
        layout: &'static Struct,
        element: &mut [u8],
    ) -> Result<(), Skip> {
        if layout.token {
            match self.comparer.tokens.get(&(layout.name, element.to_vec())) {
                Some(live) => element.copy_from_slice(live),
                None if self.call.succeeded() => {
                    return Err(Skip::because(format!(
                        "needs a {} that no re-issued call returned",
                        layout.name
                    )));
                }
                None => {}
            }
            return Ok(());
        }
        for field in layout.fields {
            if let Some(value) = member(element, field) {
                self.value_live(&format!("{name}: {}", field.name), field.meaning, value)?;
            }
        }
        Ok(())
    }

    pub(crate) fn value_live(
        &mut self,
        name: &str,
        meaning: Meaning,
        value: &mut [u8],
    ) -> Result<(), Skip> {
        let recorded = number(value);
        let live = match meaning {
            Meaning::Handle(kind) => self.live_handle(kind, recorded)?,
            Meaning::Address => self.live_address(recorded)?,
            Meaning::Pointer if recorded != 0 => {
                return Err(Skip::because(format!(
                    "what {name} points at is not recorded"
                )));
            }
            Meaning::Plain | Meaning::MayDiffer | Meaning::Pointer | Meaning::Unknown => {
                return Ok(());
            }
        };
        put(value, live);
        Ok(())
    }

    /// What the recording expects behind an output, in handles and addresses of this process. What
    /// may differ is taken from `received`; the driver's own contents are remembered, for the calls
    /// that are going to pass them.
    pub(crate) fn expected_here(
        &mut self,
        param: &Param,
        length: Length,
        recorded: &[u8],
        received: &[u8],
    ) -> Vec<u8> {
        let mut expected = recorded.to_vec();
        match elements((Some(self.function), param), length, self.call, false) {
            Elements::Plain => {}
            Elements::Values(size, meaning) => {
                let size = size.max(1);
                for (value, here) in expected.chunks_exact_mut(size).zip(received.chunks(size)) {
                    self.value_expected(meaning, value, here);
                }
            }
            Elements::Structs(layout) if layout.name == "CUtensorMap" => {
                // The address is encoded somewhere inside.
                if self.moved() {
                    copy_common(&mut expected, received);
                }
            }
            Elements::Structs(layout) => {
                let size = (layout.size as usize).max(1);
                for (element, here) in expected
                    .chunks_exact_mut(size)
                    .zip(received.chunks_exact(size))
                {
                    if layout.token {
                        self.comparer
                            .tokens
                            .insert((layout.name, element.to_vec()), here.to_vec());
                    }
                    // Padding, and what is left of a union, may hold anything.
                    let mut whole = here.to_vec();
                    for field in layout.fields {
                        let range = field.offset as usize..(field.offset + field.size) as usize;
                        if let (Some(value), Some(here)) =
                            (member(element, field), here.get(range.clone()))
                        {
                            self.value_expected(field.meaning, value, here);
                            copy_common(whole.get_mut(range).unwrap_or_default(), value);
                        }
                    }
                    element.copy_from_slice(&whole);
                    take_padding(layout, element, here);
                }
            }
        }
        expected
    }

    /// True if an address among the arguments lies elsewhere than recorded.
    fn moved(&self) -> bool {
        self.call
            .argument_named("globalAddress")
            .is_some_and(|address| self.ranges.translate(address) != address)
    }
}

impl<'t> Player<'t> {
    /// Replaces one recorded value by what is expected here; one that may differ by what was
    /// received.
    pub(crate) fn value_expected(&self, meaning: Meaning, value: &mut [u8], here: &[u8]) {
        let recorded = number(value);
        let live = match meaning {
            Meaning::Plain | Meaning::Unknown => return,
            Meaning::Handle(Kind::Device) => match self.machine.devices.ordinal(recorded as i32) {
                Some(ordinal) => u64::from(ordinal as u32),
                None => number(here),
            },
            _ if recorded == 0 && meaning != Meaning::MayDiffer => return,
            Meaning::Address => self.ranges.translate(recorded),
            Meaning::Handle(kind) if kind.is_address() => self.ranges.translate(recorded),
            Meaning::Handle(kind) => match self.handles.resolve(kind, recorded) {
                Resolved::Live(live) | Resolved::Dead(live) => live,
                Resolved::Unknown if kind == Kind::Stream && recorded <= 2 => recorded,
                // What no re-issued call made cannot be compared.
                Resolved::Missing | Resolved::Unknown => number(here),
            },
            Meaning::MayDiffer | Meaning::Pointer => {
                copy_common(value, here);
                return;
            }
        };
        put(value, live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_behind_a_pointer() {
        for (c_type, target) in [
            ("const CUDA_RESOURCE_DESC *", Some("CUDA_RESOURCE_DESC")),
            ("CUdevResource *", Some("CUdevResource")),
            ("void **", Some("void *")),
            ("size_t", None),
        ] {
            assert_eq!(pointee(c_type), target);
        }
        assert!(is_address("void **") && is_address("CUdeviceptr *") && !is_address("size_t *"));
    }

    #[test]
    fn what_the_driver_does_not_write_is_not_compared() {
        let layout = structure("CUDA_ARRAY3D_DESCRIPTOR").expect("known");
        let here = vec![7; layout.size as usize];
        let mut element = vec![9; layout.size as usize];
        take_padding(layout, &mut element, &here);
        assert_eq!(element[..36], [9; 36], "members");
        assert_eq!(element[36..], [7; 4], "padding");
        take_padding(layout, &mut [1; 3], &here);

        // `pad` is as long as the union.
        let layout = structure("CUlaunchAttributeValue").expect("known");
        let (mut element, here) = (vec![9; layout.size as usize], vec![7; layout.size as usize]);
        take_padding(layout, &mut element, &here);
        assert_eq!((element[0], element[63]), (9, 7));

        let layout = structure("CUDA_RESOURCE_DESC").expect("known");
        let (mut element, here) = (vec![0; layout.size as usize], vec![7; layout.size as usize]);
        element[8..16].fill(9);
        take_padding(layout, &mut element, &here);
        assert_eq!(element[8..16], [9; 8], "an array's handle");
        assert_eq!(element[120..128], [7; 8], "the rest of the union");
    }

    #[test]
    fn only_the_selected_member_of_a_union_counts() {
        let layout = structure("CUDA_RESOURCE_DESC").expect("known");
        // (resType, members that count)
        for (kind, members) in [
            (0u32, vec!["res.array.hArray"]),
            (1, vec!["res.mipmap.hMipmappedArray"]),
            (
                2,
                vec![
                    "res.linear.devPtr",
                    "res.linear.format",
                    "res.linear.numChannels",
                    "res.linear.sizeInBytes",
                ],
            ),
            (4, vec![]),
        ] {
            let mut element = vec![0; layout.size as usize];
            element[..4].copy_from_slice(&kind.to_le_bytes());
            let found: Vec<&str> = layout
                .fields
                .iter()
                .filter(|field| field.when.is_some())
                .filter(|field| member(&mut element, field).is_some())
                .map(|field| field.name)
                .collect();
            assert_eq!(found, members, "{kind}");
        }
        assert!(
            layout
                .fields
                .iter()
                .all(|field| member(&mut [0; 3], field).is_none()),
            "a struct cut short has no members"
        );
    }
}
