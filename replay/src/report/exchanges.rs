//! Work that exchanged data with other processes, in the report.

use serde::{Deserialize, Serialize};

/// What is not here because other processes are not, and what was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeCounts {
    /// Objects that another process exported and that have a stand-in.
    pub stand_ins: u64,
    /// Bytes of those that are memory.
    pub stand_in_bytes: u64,
    /// Calls that were left out because their work exchanges data with other processes, by kernel.
    pub left_out: Vec<LeftOutExchange>,
    /// Bytes that such work changed in the recording and that were put back.
    pub bytes_put: u64,
    /// The first of them whose changes could not be put back: bytes are not compared from there on.
    pub first_missing: Option<MissingOutput>,
}

/// Calls of one function that exchange data with the same processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutExchange {
    /// The exported name.
    pub function: String,
    /// The kernel's name in its image, if known.
    pub kernel: Option<String>,
    /// With whom, e.g. `rank 1`.
    pub with: String,
    /// How many calls.
    pub count: u64,
    /// Index of the first.
    pub first: u64,
    /// Those of them that may change memory which is not shared.
    pub changing: u64,
    /// Those of these whose changes were put back, all of them.
    pub put_back: u64,
}

/// An exchange whose changes are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingOutput {
    /// The call.
    pub call: u64,
    /// Why.
    pub why: String,
}

/// One call that is left out.
#[derive(Debug)]
pub(crate) struct OneExchange<'a> {
    pub function: &'a str,
    pub kernel: Option<String>,
    pub with: &'a str,
    pub call: u64,
    /// Whether its changes were put back; `None` if it changes nothing that is compared.
    pub put: Option<Result<(), String>>,
}

impl ExchangeCounts {
    /// What a call changed is missing.
    pub(crate) fn miss(&mut self, call: u64, why: &str) {
        self.first_missing.get_or_insert_with(|| MissingOutput {
            call,
            why: why.to_owned(),
        });
    }

    pub(crate) fn leave_out(&mut self, one: OneExchange<'_>) {
        let is_put = one.put == Some(Ok(()));
        let is_changing = one.put.is_some();
        if let Some(Err(why)) = one.put {
            self.miss(one.call, &why);
        }
        let known = self.left_out.iter_mut().find(|known| {
            known.function == one.function && known.kernel == one.kernel && known.with == one.with
        });
        match known {
            Some(known) => {
                known.count += 1;
                known.first = known.first.min(one.call);
                known.changing += u64::from(is_changing);
                known.put_back += u64::from(is_put);
            }
            None => self.left_out.push(LeftOutExchange {
                function: one.function.to_owned(),
                kernel: one.kernel,
                with: one.with.to_owned(),
                count: 1,
                first: one.call,
                changing: u64::from(is_changing),
                put_back: u64::from(is_put),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_counted_by_kernel_and_partner() {
        let mut counts = ExchangeCounts::default();
        let missing = |why: &str| Some(Err(why.to_owned()));
        for (call, kernel, with, put) in [
            (5, "sum", "rank 1", Some(Ok(()))),
            (3, "sum", "rank 1", None),
            (7, "sum", "rank 2", missing("first")),
            (9, "max", "rank 2", missing("second")),
        ] {
            counts.leave_out(OneExchange {
                function: "launch",
                kernel: Some(kernel.to_owned()),
                with,
                call,
                put,
            });
        }
        let all: Vec<_> = counts
            .left_out
            .iter()
            .map(|left| (left.with.as_str(), left.count, left.first, left.put_back))
            .collect();
        let expected = [
            ("rank 1", 2, 3, 1),
            ("rank 2", 1, 7, 0),
            ("rank 2", 1, 9, 0),
        ];
        assert_eq!(all, expected);
        let first = counts.first_missing.unwrap();
        assert_eq!((first.call, first.why.as_str()), (7, "first"));
    }
}
