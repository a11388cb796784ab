//! Calls that take structs and arrays: what they accept, and what they refuse.

mod driver;

use driver::{at, call, code, make, ok, out, setup};

/// The words of a struct; numbers of 32 bits take halves of them.
fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[test]
fn textures_need_living_resources() {
    let s = setup();
    // Width, height, depth, format and channels, flags: an array for surfaces.
    let shape = [16_u64, 4, 0, halves(0x20, 1), 2];
    let array = make("cuArray3DCreate_v2", &[at(&shape)]);
    let plain_shape = [16_u64, 4, 0, halves(0x20, 1), 0];
    let plain = make("cuArray3DCreate_v2", &[at(&plain_shape)]);
    let sampler = [0_u64; 13];
    let zeros = Some([0_u64; 14]);
    // CU_RES_VIEW_FORMAT_UINT_1X32 of the array's width and height.
    let mut words = [0_u64; 14];
    words[..3].copy_from_slice(&[0xd, 16, 4]);
    let view = Some(words);
    let linear = |address, size| {
        let mut words = [0_u64; 18];
        words[0] = 2;
        words[1..4].copy_from_slice(&[address, halves(0x20, 1), size]);
        words
    };
    let of_array = |handle| {
        let mut words = [0_u64; 18];
        words[1] = handle;
        words
    };
    let mut flagged = of_array(array);
    flagged[17] = 1;
    let mut strange = of_array(array);
    strange[0] = 9;
    // resource, view, expected answer
    let rows = [
        (of_array(array), None, code::SUCCESS),
        (of_array(array), view, code::SUCCESS),
        (of_array(array), zeros, code::INVALID_VALUE),
        (of_array(0x1234), None, code::INVALID_VALUE),
        (flagged, None, code::INVALID_VALUE),
        (strange, None, code::INVALID_VALUE),
        (linear(s.memory, 64), None, code::SUCCESS),
        (linear(s.memory, 64), view, code::INVALID_VALUE),
        (linear(s.memory, 64), zeros, code::SUCCESS),
        (linear(s.memory + 4, 64), None, code::INVALID_VALUE),
        (linear(s.memory, 0), None, code::INVALID_VALUE),
        (linear(s.memory, 1 << 40), None, code::INVALID_VALUE),
    ];
    for (index, (resource, view, expected)) in rows.iter().enumerate() {
        let mut texture = 0_u64;
        let given = view.as_ref().map_or(0, at);
        let result = call(
            "cuTexObjectCreate",
            &[out(&mut texture), at(resource), at(&sampler), given],
        );
        assert_eq!(result, *expected, "row {index}");
        if result == code::SUCCESS {
            let mut found = [0_u64; 18];
            ok("cuTexObjectGetResourceDesc", &[out(&mut found), texture]);
            assert_eq!(found, *resource, "row {index}");
            let mut found = [1_u64; 14];
            ok(
                "cuTexObjectGetResourceViewDesc",
                &[out(&mut found), texture],
            );
            assert_eq!(found, view.unwrap_or_default(), "row {index}");
            ok("cuTexObjectDestroy", &[texture]);
            // Measured: tests/gpu/failed_outputs.c.
            ok("cuTexObjectDestroy", &[texture]);
            let gone = call("cuTexObjectGetResourceDesc", &[out(&mut found), texture]);
            assert_eq!(gone, code::INVALID_VALUE);
        }
    }
    for (handle, expected) in [(array, code::SUCCESS), (plain, code::INVALID_VALUE)] {
        let mut surface = 0_u64;
        let result = call(
            "cuSurfObjectCreate",
            &[out(&mut surface), at(&of_array(handle))],
        );
        assert_eq!(result, expected);
    }
}

#[test]
fn tensor_maps_are_encoded_under_the_documented_conditions() {
    let s = setup();
    #[repr(C, align(64))]
    struct Map([u64; 16]);
    let good = (7_u64, 2_u64, 0_u64, 64_u64, 256_u64, 16_u32, 1_u32);
    // type, rank, offset of the address, side, stride, side of the box, step between elements
    let rows = [
        (good, code::SUCCESS),
        ((99, 2, 0, 64, 256, 16, 1), code::INVALID_VALUE),
        ((7, 0, 0, 64, 256, 16, 1), code::INVALID_VALUE),
        ((7, 6, 0, 64, 256, 16, 1), code::INVALID_VALUE),
        ((7, 2, 8, 64, 256, 16, 1), code::INVALID_VALUE),
        ((7, 2, 0, 0, 256, 16, 1), code::INVALID_VALUE),
        ((7, 2, 0, 64, 250, 16, 1), code::INVALID_VALUE),
        ((7, 2, 0, 64, 256, 0, 1), code::INVALID_VALUE),
        ((7, 2, 0, 64, 256, 257, 1), code::INVALID_VALUE),
        ((7, 2, 0, 64, 256, 3, 1), code::INVALID_VALUE),
        ((7, 2, 0, 64, 256, 16, 0), code::INVALID_VALUE),
        ((7, 2, 0, 64, 256, 16, 9), code::INVALID_VALUE),
    ];
    for (row, expected) in rows {
        let (data_type, rank, offset, side, stride, boxed, step) = row;
        let (sides, strides) = ([side; 6], [stride; 6]);
        let (boxes, steps) = ([boxed; 6], [step; 6]);
        let mut map = Map([0; 16]);
        let address = s.memory + offset;
        let arguments = |map: u64| {
            [
                map,
                data_type,
                rank,
                address,
                at(&sides),
                at(&strides),
                at(&boxes),
                at(&steps),
                0,
                0,
                0,
                0,
            ]
        };
        let result = call("cuTensorMapEncodeTiled", &arguments(out(&mut map.0)));
        assert_eq!(result, expected, "{row:?}");
        assert_eq!(map.0 != [0; 16], result == code::SUCCESS);
        if result == code::SUCCESS {
            let misplaced = out(&mut map.0) + 8;
            assert_eq!(
                call("cuTensorMapEncodeTiled", &arguments(misplaced)),
                code::INVALID_VALUE
            );
            let before = map.0;
            ok(
                "cuTensorMapReplaceAddress",
                &[out(&mut map.0), s.memory + 64],
            );
            assert_ne!(map.0, before);
        }
    }
}

#[test]
fn memory_operations_of_a_stream_happen_in_order() {
    let s = setup();
    ok("cuMemsetD8_v2", &[s.memory, 0, 32]);
    let operation = |kind: u32, address: u64, value: u64, flags: u64| {
        [u64::from(kind), address, value, flags, 0, 0]
    };
    let (wait, write) = (1, 2);
    let batch = [
        operation(write, s.memory, 5, 0),
        operation(wait, s.memory, 5, 1),
        operation(5, s.memory + 8, 1 << 40, 0),
        operation(4, s.memory + 8, 1 << 40, 1),
        operation(6, 0, 0, 0),
    ];
    ok("cuStreamBatchMemOp_v2", &[s.stream, 5, at(&batch), 0]);
    let mut found = [0_u64; 2];
    ok("cuMemcpyDtoH_v2", &[out(&mut found), s.memory, 16]);
    assert_eq!(found, [5, 1 << 40]);
    for (count, first, flags, expected) in [
        (0, batch[0], 0, code::INVALID_VALUE),
        (1, batch[0], 1, code::INVALID_VALUE),
        (1, operation(77, s.memory, 0, 0), 0, code::INVALID_VALUE),
        (
            1,
            operation(write, s.memory + 1, 0, 0),
            0,
            code::INVALID_VALUE,
        ),
        (1, operation(3, 0, 0, 0), 0, code::NOT_SUPPORTED),
    ] {
        let list = [first];
        let words = [s.stream, count, at(&list), flags];
        assert_eq!(call("cuStreamBatchMemOp", &words), expected, "{words:x?}");
    }
}

#[test]
fn a_device_is_divided_by_its_own_resources() {
    setup();
    let sm = 1_u64;
    let mut all = [0_u64; 18];
    ok("cuDeviceGetDevResource", &[0, out(&mut all), sm]);
    let mut groups = 2_u32;
    let mut parts = [[0_u64; 18]; 2];
    let mut rest = [0_u64; 18];
    ok(
        "cuDevSmResourceSplitByCount",
        &[
            out(&mut parts),
            out(&mut groups),
            at(&all),
            out(&mut rest),
            0,
            20,
        ],
    );
    let count = |resource: &[u64; 18]| resource[12] as u32;
    assert_eq!((groups, count(&parts[0]), count(&parts[1])), (2, 24, 24));
    assert_eq!(count(&rest), count(&all) - 48);
    let descriptor = make("cuDevResourceGenerateDesc", &[at(&parts), 2]);
    let green = make("cuGreenCtxCreate", &[descriptor, 0, 1]);
    let mut mine = [0_u64; 18];
    ok("cuGreenCtxGetDevResource", &[green, out(&mut mine), sm]);
    assert_eq!(count(&mine), 48);
    let mut refused = 0_u64;
    let place = out(&mut refused);
    let forged = [sm, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0];
    for (name, words, expected) in [
        (
            "cuDevResourceGenerateDesc",
            vec![place, at(&forged), 1],
            code::INVALID_VALUE,
        ),
        (
            "cuGreenCtxCreate",
            vec![place, descriptor, 0, 0],
            code::INVALID_VALUE,
        ),
        (
            "cuGreenCtxStreamCreate",
            vec![place, green, 0, 0],
            code::INVALID_VALUE,
        ),
        (
            "cuGreenCtxStreamCreate",
            vec![place, 0x10, 1, 0],
            code::INVALID_HANDLE,
        ),
    ] {
        assert_eq!(call(name, &words), expected, "{name}");
    }
    ok("cuGreenCtxDestroy", &[green]);
    assert_eq!(call("cuGreenCtxDestroy", &[green]), code::INVALID_HANDLE);
}
