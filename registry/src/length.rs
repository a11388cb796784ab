//! The only evaluator of lengths: how much memory a parameter of a call refers to.

use crate::extent::{Arguments, Extent};
use crate::generated::attributes;
use crate::model::{AttributeType, Function, Length, Param, Width};

impl Length {
    /// The type of an attribute's value, if the length depends on one.
    pub fn attribute_type(self, attribute: u64) -> Option<&'static AttributeType> {
        match self {
            Length::ByAttribute(_, table) => AttributeType::of(attributes::types(table), attribute),
            _ => None,
        }
    }

    /// The memory of this length in a call of `function`.
    ///
    /// `None` if the registry does not know it (`Length::Override`, an attribute without a type),
    /// or if a value that it depends on is unknown. Products saturate.
    pub fn evaluate(self, function: &Function, arguments: &impl Arguments) -> Option<Extent> {
        let of = |position: u8| {
            quantity(
                function.params.get(usize::from(position))?,
                position,
                arguments,
            )
        };
        let pitched = |pitch: u64, element: u64, width: u64, height: u64| Extent {
            row: element.saturating_mul(width),
            pitch,
            rows: height,
        };
        Some(match self {
            Length::Fixed(bytes) => Extent::flat(bytes.into()),
            Length::Param(position) => Extent::flat(of(position)?),
            Length::Product(a, b) => Extent::flat(of(a)?.saturating_mul(of(b)?)),
            Length::Scaled(position, by) => Extent::flat(of(position)?.saturating_mul(by.into())),
            Length::Pitched(pitch, element, width, height) => {
                pitched(of(pitch)?, of(element)?, of(width)?, of(height)?)
            }
            Length::PitchedBy(pitch, element, width, height) => {
                pitched(of(pitch)?, element.into(), of(width)?, of(height)?)
            }
            Length::AllBut(position, less, by) => Extent::flat(
                of(position)?
                    .saturating_sub(less.into())
                    .saturating_mul(by.into()),
            ),
            Length::ByAttribute(position, _) => {
                Extent::flat(self.attribute_type(of(position)?)?.bytes.into())
            }
            Length::Override => return None,
        })
    }
}

impl Function {
    /// Bytes of the memory, address range or variable that a successful call makes or finds; `None`
    /// if the arguments do not say, as for memory of another process.
    pub fn made_bytes(&self, arguments: &impl Arguments) -> Option<u64> {
        Some(self.size?.evaluate(self, arguments)?.content())
    }
}

/// A count: the argument as its C type has it, or what it points at. A negative count counts
/// nothing.
fn quantity(param: &Param, position: u8, arguments: &impl Arguments) -> Option<u64> {
    if let Some(bytes) = param.pointee_bytes() {
        return arguments.pointee(position, bytes);
    }
    let word = arguments.word(position);
    Some(match param.width {
        Width::Unsigned(4) => u64::from(word as u32),
        Width::Unsigned(1) => u64::from(word as u8),
        Width::Signed(4) => u64::try_from(word as u32 as i32).unwrap_or(0),
        Width::Signed(8) => u64::try_from(word as i64).unwrap_or(0),
        _ => word,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, function};

    /// Arguments, and the words that pointers lead to.
    struct Call<'a>(&'a [u64], Option<u64>);

    impl Arguments for Call<'_> {
        fn word(&self, position: u8) -> u64 {
            self.0[usize::from(position)]
        }

        fn pointee(&self, _: u8, bytes: usize) -> Option<u64> {
            let word = self.1?;
            Some(if bytes == 4 { word & 0xffff_ffff } else { word })
        }
    }

    fn length_at(function: &Function, position: usize) -> Length {
        match function.params[position].role {
            Role::In(length)
            | Role::Out(length)
            | Role::InOut(length)
            | Role::HostRead(length)
            | Role::HostWrite(length)
            | Role::DeviceRead(length)
            | Role::DeviceWrite(length)
            | Role::UseMany(_, length)
            | Role::FindMany(_, _, length)
            | Role::Text(length) => length,
            role => panic!("{role:?} has no length"),
        }
    }

    #[test]
    fn lengths_follow_the_arguments() {
        const MANY: u64 = u64::MAX;
        // Function, position, arguments, pointee; content and span.
        type Case<'a> = (&'a str, usize, &'a [u64], Option<u64>, Option<(u64, u64)>);
        let cases: &[Case] = &[
            ("cuMemcpyHtoD_v2", 1, &[1, 2, 100], None, Some((100, 100))),
            ("cuMemsetD32_v2", 0, &[1, 2, 100], None, Some((400, 400))),
            (
                "cuMemsetD32_v2",
                0,
                &[1, 2, MANY / 2],
                None,
                Some((MANY, MANY)),
            ),
            // Two rows of 3 * 4 bytes, 16 bytes apart: 24 are written, within 28.
            (
                "cuMemsetD2D32_v2",
                0,
                &[1, 16, 0, 3, 2],
                None,
                Some((24, 28)),
            ),
            ("cuMemsetD2D32_v2", 0, &[1, 16, 0, 3, 0], None, Some((0, 0))),
            ("cuMemsetD2D32_v2", 0, &[1, 16, 0, 0, 9], None, Some((0, 0))),
            // An int: the upper half of the register is anything, and a negative count is none.
            (
                "cuDeviceGetName",
                0,
                &[1, 0x7_0000_0005, 0],
                None,
                Some((5, 5)),
            ),
            (
                "cuDeviceGetName",
                0,
                &[1, 0xffff_fffe, 0],
                None,
                Some((0, 0)),
            ),
            // Dimensions and the strides between them.
            (
                "cuTensorMapEncodeTiled",
                4,
                &[0, 0, 3, 0, 9],
                None,
                Some((24, 24)),
            ),
            (
                "cuTensorMapEncodeTiled",
                5,
                &[0, 0, 3, 0, 9],
                None,
                Some((16, 16)),
            ),
            (
                "cuTensorMapEncodeTiled",
                5,
                &[0, 0, 0, 0, 9],
                None,
                Some((0, 0)),
            ),
            // Counts behind pointers: size_t, and unsigned int.
            ("cuGraphGetNodes", 1, &[1, 9, 9], Some(7), Some((7, 7))),
            ("cuGraphGetNodes", 1, &[1, 9, 9], None, None),
            (
                "cuDevSmResourceSplitByCount",
                0,
                &[9; 6],
                Some(0xff_0000_0002),
                Some((288, 288)),
            ),
            // By attribute: a context, then nothing that anybody knows.
            ("cuPointerGetAttribute", 0, &[9, 1, 0], None, Some((8, 8))),
            ("cuPointerGetAttribute", 0, &[9, 9999, 0], None, None),
        ];
        for &(name, position, arguments, pointee, expected) in cases {
            let function = function(name).expect(name);
            let found = length_at(function, position).evaluate(function, &Call(arguments, pointee));
            let found = found.map(|extent| (extent.content(), extent.span()));
            assert_eq!(found, expected, "{name} {arguments:x?}");
        }
        let function = function("cuInit").expect("known");
        assert_eq!(Length::Override.evaluate(function, &Call(&[], None)), None);
        assert_eq!(Length::Param(9).evaluate(function, &Call(&[], None)), None);
    }

    #[test]
    fn allocations_have_a_size() {
        for (name, arguments, pointee, expected) in [
            ("cuMemAlloc_v2", &[9, 0x1000][..], None, Some(0x1000)),
            (
                "cuMemAllocPitch_v2",
                &[9, 9, 100, 8, 4],
                Some(512),
                Some(4096),
            ),
            ("cuMemAllocPitch_v2", &[9, 9, 100, 8, 4], None, None),
            ("cuMemHostRegister_v2", &[9, 0x2000, 0], None, Some(0x2000)),
            ("cuModuleGetGlobal_v2", &[9, 9, 9, 9], Some(64), Some(64)),
            (
                "cuMemAddressReserve",
                &[9, 0x4000, 0, 0, 0],
                None,
                Some(0x4000),
            ),
            ("cuMemFree_v2", &[9], None, None),
        ] {
            let function = function(name).expect(name);
            let found = function.made_bytes(&Call(arguments, pointee));
            assert_eq!(found, expected, "{name}");
        }
    }
}
