//! Patches the driver's functions in place: in which order, by which method, and what happens if
//! one cannot be patched.

#![cfg_attr(
    not(feature = "gum"),
    allow(dead_code, reason = "the engine needs the feature, the tests do not")
)]

/// Rewrites the beginning of a function. Addresses are of code in this process.
pub(super) trait Engine {
    /// Collects patches: none is in effect before `end`.
    fn begin(&mut self);
    /// Makes the function jump straight to the replacement. Returns where the original can be
    /// called; `None` if the function's first bytes cannot be moved.
    fn replace_fast(&mut self, function: usize, replacement: usize) -> Option<usize>;
    /// The same through the engine's own code: slower, but possible for more functions.
    fn replace(&mut self, function: usize, replacement: usize) -> Option<usize>;
    /// Takes a patch back.
    fn revert(&mut self, function: usize);
    /// Puts all patches since `begin` into effect.
    fn end(&mut self);
}

/// A function that neither method can patch; then nothing is patched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotPatched {
    /// Which one, by id.
    pub(super) function: u16,
}

/// Patches each function, given by address and id, to jump to its entry. Returns where the
/// originals can be called, by id.
///
/// No thread may be in these functions meanwhile: with frida-gum 17.9.5, 7 of 8 processes crashed
/// in which threads were.
pub(super) fn all(
    engine: &mut impl Engine,
    functions: &[(usize, u16)],
    entry: impl Fn(u16) -> usize,
) -> Result<Vec<(u16, usize)>, NotPatched> {
    let mut originals: Vec<(u16, usize)> = Vec::with_capacity(functions.len());
    let mut patched: Vec<(usize, usize)> = Vec::with_capacity(functions.len());
    let mut failed = None;
    engine.begin();
    for &(address, function) in functions {
        // Two names of one function have one patch, and the first name's entry.
        if let Some(&(_, original)) = patched.iter().find(|known| known.0 == address) {
            originals.push((function, original));
            continue;
        }
        let replacement = entry(function);
        let original = engine
            .replace_fast(address, replacement)
            .or_else(|| engine.replace(address, replacement));
        let Some(original) = original else {
            failed = Some(NotPatched { function });
            break;
        };
        patched.push((address, original));
        originals.push((function, original));
    }
    if failed.is_some() {
        // In one transaction with the patches, so that none of them was ever in effect.
        for &(address, _) in patched.iter().rev() {
            engine.revert(address);
        }
    }
    engine.end();
    failed.map_or(Ok(originals), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Remembers what it was asked, and what is in effect.
    #[derive(Default)]
    struct Fake {
        /// Functions on which `replace_fast` fails, and on which both do.
        slow: Vec<usize>,
        hopeless: Vec<usize>,
        asked: Vec<String>,
        pending: BTreeMap<usize, usize>,
        in_effect: BTreeMap<usize, usize>,
    }

    impl Engine for Fake {
        fn begin(&mut self) {
            self.asked.push("begin".to_owned());
        }

        fn replace_fast(&mut self, function: usize, replacement: usize) -> Option<usize> {
            self.asked.push(format!("fast {function}"));
            if self.slow.contains(&function) || self.hopeless.contains(&function) {
                return None;
            }
            self.pending.insert(function, replacement);
            Some(function + 1000)
        }

        fn replace(&mut self, function: usize, replacement: usize) -> Option<usize> {
            self.asked.push(format!("slow {function}"));
            if self.hopeless.contains(&function) {
                return None;
            }
            self.pending.insert(function, replacement);
            Some(function + 2000)
        }

        fn revert(&mut self, function: usize) {
            self.asked.push(format!("revert {function}"));
            assert!(self.pending.remove(&function).is_some(), "{function}");
        }

        fn end(&mut self) {
            self.asked.push("end".to_owned());
            self.in_effect.append(&mut self.pending);
        }
    }

    #[test]
    fn order_fallback_and_failure() {
        let functions = [(10, 0), (20, 1), (20, 2), (30, 3)];
        let entry = |function: u16| 500 + usize::from(function);
        struct Row {
            slow: &'static [usize],
            hopeless: &'static [usize],
            asked: &'static [&'static str],
            result: Result<Vec<(u16, usize)>, NotPatched>,
            in_effect: &'static [(usize, usize)],
        }
        let all_patched = &[(10, 500), (20, 501), (30, 503)];
        for row in [
            Row {
                slow: &[],
                hopeless: &[],
                asked: &["begin", "fast 10", "fast 20", "fast 30", "end"],
                result: Ok(vec![(0, 1010), (1, 1020), (2, 1020), (3, 1030)]),
                in_effect: all_patched,
            },
            Row {
                slow: &[20],
                hopeless: &[],
                asked: &["begin", "fast 10", "fast 20", "slow 20", "fast 30", "end"],
                result: Ok(vec![(0, 1010), (1, 2020), (2, 2020), (3, 1030)]),
                in_effect: all_patched,
            },
            Row {
                slow: &[],
                hopeless: &[30],
                asked: &[
                    "begin",
                    "fast 10",
                    "fast 20",
                    "fast 30",
                    "slow 30",
                    "revert 20",
                    "revert 10",
                    "end",
                ],
                result: Err(NotPatched { function: 3 }),
                in_effect: &[],
            },
            Row {
                slow: &[],
                hopeless: &[10],
                asked: &["begin", "fast 10", "slow 10", "end"],
                result: Err(NotPatched { function: 0 }),
                in_effect: &[],
            },
        ] {
            let mut engine = Fake {
                slow: row.slow.to_vec(),
                hopeless: row.hopeless.to_vec(),
                ..Fake::default()
            };
            assert_eq!(all(&mut engine, &functions, entry), row.result);
            assert_eq!(engine.asked, row.asked);
            let in_effect: Vec<_> = engine.in_effect.into_iter().collect();
            assert_eq!(in_effect, row.in_effect);
        }
    }
}
