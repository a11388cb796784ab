//! How far apart breadcrumbs are.

/// Values that a stream has not written yet. From so many on, breadcrumbs are far apart, and from
/// more on there are none: a stream has room for 1024 pieces of work (assumed), and
/// the program must not block much earlier than without them.
const MANY: u32 = 64;
const MOST: u32 = 128;
/// Launches between breadcrumbs that are far apart.
const FAR: u32 = 16;

/// Whether a stream may get another breadcrumb if it has not written this many values.
pub(super) fn has_room(outstanding: u32) -> bool {
    outstanding < MOST
}

/// Whether a launch gets a breadcrumb: the number of launches since the last one, this included, and
/// of values that the stream has not written yet.
pub(super) fn is_due(launches: u32, outstanding: u32, every: u32) -> bool {
    let every = if outstanding < MANY {
        every
    } else {
        every.max(FAR)
    };
    launches >= every && has_room(outstanding)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values outstanding after that many launches in a stream that does not go on.
    fn outstanding_after(launches: u32, every: u32) -> u32 {
        let (mut since, mut outstanding) = (0, 0);
        for _ in 0..launches {
            since += 1;
            if is_due(since, outstanding, every) {
                (since, outstanding) = (0, outstanding + 1);
            }
        }
        outstanding
    }

    #[test]
    fn breadcrumbs_do_not_fill_a_stream() {
        for (every, launches, expected) in [
            (1, 10, 10),
            (1, 64, 64),
            (1, 80, 65),
            (1, 1_000_000, MOST),
            (16, 1024, 64),
            (16, 32, 2),
            (100, 1000, 10),
        ] {
            let found = outstanding_after(launches, every);
            assert_eq!(found, expected, "{launches} launches, every {every}");
        }
    }
}
