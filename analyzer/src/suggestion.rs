//! The nearest valid choices to a misspelt word.

use cutape_registry::RULES;

/// Less alike words are not suggested; 1 is equal.
const ALIKE: f64 = 0.85;
/// Words that are that much less alike than the best one are not suggested.
const TOLERANCE: f64 = 0.06;
/// More suggestions than these would be a list.
const MOST: usize = 3;

/// Like "; did you mean `cuLaunchKernel`?", to follow a message; empty if no candidate is alike.
pub fn did_you_mean<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    question(nearest(word, candidates))
}

/// Names as a question, to follow a message; empty if there are none.
pub fn question<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let quoted = |name: S| format!("`{}`", name.as_ref().escape_debug());
    let names: Vec<String> = names.into_iter().map(quoted).collect();
    match names.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}

/// The candidates that are most like a word, the best one first; upper and lower case count as
/// equal.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Vec<&'c str> {
    let lower = word.to_lowercase();
    let likeness = |name: &str| strsim::jaro_winkler(&lower, &name.to_lowercase());
    let candidates = candidates.into_iter().map(|name| (likeness(name), name));
    let mut alike: Vec<(f64, &str)> = candidates.filter(|(how, _)| *how >= ALIKE).collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    alike.dedup_by_key(|(_, name)| *name);
    let best = alike.first().map_or(0.0, |(how, _)| *how);
    let alike = alike
        .into_iter()
        .take_while(|(how, _)| *how >= best - TOLERANCE);
    alike.take(MOST).map(|(_, name)| name).collect()
}

/// The message about an id that no rule has.
pub fn unknown_rule(id: &str) -> String {
    let suggestion = did_you_mean(id, RULES.iter().map(|rule| rule.id));
    let suggestion = match suggestion.is_empty() {
        true => "; `cutape explain` lists all rules",
        false => &suggestion,
    };
    format!("there is no rule `{}`{suggestion}", id.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first() {
        let names = [
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuLaunch",
            "cuMemAlloc",
            "app.cutape",
        ];
        let launches = "; did you mean `cuLaunchKernel` or `cuLaunchKernelEx`?";
        for (word, expected) in [
            ("cuLaunchKernl", launches),
            ("culaunchkernel", launches),
            ("cuMemAloc", "; did you mean `cuMemAlloc`?"),
            ("ap.cutape", "; did you mean `app.cutape`?"),
            ("zzz", ""),
            ("", ""),
        ] {
            assert_eq!(did_you_mean(word, names), expected, "{word}");
        }
        assert_eq!(did_you_mean("cuInit", []), "");
        let alike = ["step1", "step2", "step3", "step4"];
        assert_eq!(
            did_you_mean("step", alike),
            "; did you mean `step1`, `step2` or `step3`?"
        );
    }

    #[test]
    fn unknown_rules_are_suggested() {
        for (typed, expected) in [
            ("module-doubleunload", "did you mean `module-double-unload`"),
            ("memory-double-fre", "did you mean `memory-double-free`?"),
            ("graph-user-after-destroy", "`graph-use-after-destroy`"),
            ("@", "`cutape explain` lists all rules"),
        ] {
            let message = unknown_rule(typed);
            assert!(message.contains(expected), "{typed}: {message}");
        }
    }
}
