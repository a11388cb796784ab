//! The nearest valid choices to a misspelt word.

/// Less alike words are not suggested.
const ALIKE: f64 = 0.85;
/// More suggestions than these would be a list.
const MOST: usize = 3;

/// `; did you mean cuLaunchKernel?`, to follow a message; empty if no candidate is alike.
pub(crate) fn did_you_mean<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> String {
    let lower = word.to_lowercase();
    let mut alike: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    alike.dedup_by_key(|(_, candidate)| *candidate);
    let names: Vec<String> = alike
        .iter()
        .take(MOST)
        .map(|(_, name)| format!("`{}`", name.escape_debug()))
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", names.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first() {
        let names = [
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuMemAlloc",
            "app.cutape",
        ];
        for (word, expected) in [
            (
                "cuLaunchKernl",
                "; did you mean `cuLaunchKernel` or `cuLaunchKernelEx`?",
            ),
            (
                "culaunchkernel",
                "; did you mean `cuLaunchKernel` or `cuLaunchKernelEx`?",
            ),
            ("cuMemAloc", "; did you mean `cuMemAlloc`?"),
            ("ap.cutape", "; did you mean `app.cutape`?"),
            ("zzz", ""),
            ("", ""),
        ] {
            assert_eq!(did_you_mean(word, names), expected, "{word}");
        }
        assert_eq!(did_you_mean("cuInit", []), "");
    }
}
