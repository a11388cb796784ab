//! Reads `registry/errata`: published defects of the driver. Each is a rule, too.

use std::path::Path;

use serde::Deserialize;

use crate::Failure;
use crate::semantics::{self, Confidence, Rule, Severity, all_or, toml_files};

const ERRATA: &str = "registry/errata";
/// The first word of their ids.
pub(crate) const AREA: &str = "driver";

/// A defect, as its file has it. Versions are those of CUDA: `11.2`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Erratum {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) first: String,
    /// The first version without it.
    pub(crate) fixed: Option<String>,
    /// Or the last of which it is known.
    pub(crate) last: Option<String>,
    /// The first release with it and the first without.
    pub(crate) releases: Option<[String; 2]>,
    /// The lowest and the highest compute capability.
    pub(crate) capabilities: Option<[String; 2]>,
    #[serde(default)]
    confidence: Confidence,
    defect: String,
    advice: String,
    /// What a trace shows of it.
    pub(crate) shown: String,
    #[serde(default)]
    cannot_see: String,
    pub(crate) source: String,
    pub(crate) urls: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErratumFile {
    #[serde(default)]
    erratum: Vec<Erratum>,
}

impl Erratum {
    /// The rule whose findings say that a program meets it.
    pub(crate) fn rule(&self) -> Rule {
        Rule {
            id: self.id.clone(),
            area: AREA.to_owned(),
            severity: Severity::Advice,
            confidence: self.confidence,
            statement: format!("{} Reported is {}.", self.defect.trim(), self.shown.trim()),
            manual: self.source.clone(),
            advice: self.advice.clone(),
            observed: String::new(),
            undecidable: String::new(),
            cannot_see: self.cannot_see.clone(),
            example: String::new(),
        }
    }

    /// What is wrong with it.
    fn mistake(&self) -> Option<&'static str> {
        let texts = [
            &self.title,
            &self.defect,
            &self.advice,
            &self.shown,
            &self.source,
        ];
        let ends = [&self.fixed, &self.last].map(Option::as_deref);
        let range = match ends {
            [Some(end), None] | [None, Some(end)] => version(&self.first).zip(version(end)),
            _ => return Some("has either `fixed` or `last`"),
        };
        let pairs = |pair: &Option<[String; 2]>, is_sound: fn(&str) -> bool| {
            pair.iter().flatten().all(|text| is_sound(text))
        };
        match range {
            None => Some("has versions such as 11.2"),
            Some((first, end)) if first > end || first == end && self.fixed.is_some() => {
                Some("ends before it begins")
            }
            _ if !self.id.starts_with("driver-") => Some("has an id that begins with driver-"),
            _ if texts.iter().any(|text| text.trim().is_empty()) => Some("lacks a text"),
            _ if self.urls.is_empty() => Some("says nowhere where it was published"),
            _ if !pairs(&self.releases, |text| numbers::<3>(text).is_some()) => {
                Some("has releases such as 535.104.05")
            }
            _ if !pairs(&self.capabilities, |text| numbers::<2>(text).is_some()) => {
                Some("has compute capabilities such as 9.0")
            }
            _ => None,
        }
    }
}

/// Reads all files, in the order of the ids.
pub(crate) fn load(root: &Path) -> Result<Vec<Erratum>, Failure> {
    let mut errata: Vec<Erratum> = Vec::new();
    let mut errors = Vec::new();
    for (name, text) in toml_files(root, ERRATA)? {
        match toml::from_str::<ErratumFile>(&text) {
            Ok(file) => errata.extend(file.erratum),
            Err(error) => errors.push(format!("{name}: {error}")),
        }
    }
    errata.sort_by(|a, b| a.id.cmp(&b.id));
    for erratum in &errata {
        if let Some(mistake) = erratum.mistake() {
            errors.push(format!("{ERRATA}: {} {mistake}", erratum.id));
        }
    }
    all_or(errors, errata)
}

/// All rules of the catalogue: those of `registry/rules`, and one for each erratum.
pub(crate) fn load_rules(root: &Path) -> Result<Vec<Rule>, Failure> {
    let errata = load(root)?.iter().map(Erratum::rule).collect();
    semantics::load_rules(root, errata)
}

/// Numbers with points between them.
pub(crate) fn numbers<const N: usize>(text: &str) -> Option<[u16; N]> {
    let parts: Vec<u16> = text
        .split('.')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    parts.try_into().ok()
}

/// A version of CUDA as cuDriverGetVersion has it: 11020 of `11.2`.
pub(crate) fn version(text: &str) -> Option<u32> {
    let [major, minor] = numbers(text)?;
    Some(u32::from(major) * 1000 + u32::from(minor) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told() {
        let sound = r#"
            [[erratum]]
            id = "driver-x"
            title = "a"
            first = "11.2"
            fixed = "11.5"
            defect = "a"
            advice = "a"
            shown = "a"
            source = "a"
            urls = ["https://x"]
            "#;
        for (from, to, mistake) in [
            ("", "", None),
            ("fixed", "last", None),
            ("11.5", "11.2", Some("ends before it begins")),
            ("11.5", "11", Some("has versions such as 11.2")),
            ("fixed = \"11.5\"", "", Some("has either `fixed` or `last`")),
            ("driver-x", "x", Some("has an id that begins with driver-")),
            ("shown = \"a\"", "shown = \" \"", Some("lacks a text")),
            (
                "\"https://x\"",
                "",
                Some("says nowhere where it was published"),
            ),
            (
                "fixed",
                "releases = [\"535\", \"535.1\"]\nfixed",
                Some("has releases such as 535.104.05"),
            ),
            (
                "fixed",
                "capabilities = [\"9\", \"10.0\"]\nfixed",
                Some("has compute capabilities such as 9.0"),
            ),
        ] {
            let text = sound.replacen(from, to, 1);
            let file: ErratumFile = toml::from_str(&text).unwrap();
            assert_eq!(file.erratum[0].mistake(), mistake, "{text}");
        }
    }

    #[test]
    fn versions_are_those_of_the_driver() {
        for (text, expected) in [
            ("11.2", Some(11020)),
            ("13.0", Some(13000)),
            ("13", None),
            ("13.0.1", None),
            ("a.b", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
    }
}
