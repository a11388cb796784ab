//! `coverage --rules`: which rules are decided by code and tested both ways, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use crate::semantics::Rule;
use crate::{Failure, coverage, errata, files};

const ANALYZER: &str = "analyzer/src";
const UNIT_TABLES: &str = "analyzer/tests";
/// Programs that are compiled with and without `-DVIOLATE`.
const PROGRAMS: [&str; 2] = ["tests/programs/rules", "tests/programs/misuse"];

const COLUMNS: [&str; 6] = [
    "defined",
    "decided",
    "tested",
    "by unit",
    "by program",
    "not decidable",
];

/// What the sources have of each rule.
#[derive(Debug, Default)]
struct Evidence {
    /// Constants that the analyzer's code names.
    named: BTreeSet<String>,
    /// Rules with a sequence of calls that breaks them.
    unit_violation: BTreeSet<String>,
    /// Rules with a sequence of calls that comes near and is correct.
    unit_correct: BTreeSet<String>,
    /// Rules that a program breaks, and respects when it is compiled without `-DVIOLATE`.
    program: BTreeSet<String>,
}

/// Prints the table and the gaps; fails if there are any.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let rules = errata::load_rules(root)?;
    let evidence = Evidence::load(root)?;
    let mut rows: BTreeMap<&str, [usize; COLUMNS.len()]> = BTreeMap::new();
    let mut total = [0; COLUMNS.len()];
    for rule in &rules {
        let counts = evidence.counts(rule);
        for row in [rows.entry(&rule.area).or_default(), &mut total] {
            for (sum, holds) in row.iter_mut().zip(counts) {
                *sum += usize::from(holds);
            }
        }
    }
    println!("{:<14} {}", "area", COLUMNS.join("  "));
    for (area, row) in rows.into_iter().chain([("total", total)]) {
        let cells: Vec<String> = COLUMNS
            .iter()
            .zip(row)
            .map(|(column, number)| format!("{number:>0$}", column.len()))
            .collect();
        println!("{area:<14} {}", cells.join("  "));
    }
    let gaps: Vec<String> = rules.iter().filter_map(|rule| evidence.gap(rule)).collect();
    if gaps.is_empty() {
        return Ok(());
    }
    let list = gaps.join("\n  ");
    Err(failure!("{} rules with gaps:\n  {list}", gaps.len()))
}

/// The constant of a rule in the generated tables.
fn constant(rule: &Rule) -> String {
    rule.id.to_uppercase().replace('-', "_")
}

impl Evidence {
    fn load(root: &Path) -> Result<Self, Failure> {
        let mut evidence = Self::default();
        for path in below(&root.join(ANALYZER), "rs") {
            let text = coverage::without_comments(&files::read(&path)?);
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = text
                .split(|c| !is_word(c))
                .filter(|word| word.contains('_'));
            evidence.named.extend(words.map(str::to_owned));
        }
        for path in below(&root.join(UNIT_TABLES), "rs") {
            let file = syn::parse_file(&files::read(&path)?);
            let file = file.map_err(|error| files::failed(&path, error))?;
            Rows(&mut evidence).visit_file(&file);
        }
        for folder in PROGRAMS {
            for path in below(&root.join(folder), "c") {
                evidence.program.extend(broken_by(&files::read(&path)?));
            }
        }
        Ok(evidence)
    }

    /// In the order of the columns.
    fn counts(&self, rule: &Rule) -> [bool; COLUMNS.len()] {
        let decided = self.named.contains(&constant(rule));
        let by_unit =
            self.unit_violation.contains(&rule.id) && self.unit_correct.contains(&rule.id);
        let by_program = self.program.contains(&rule.id);
        [
            true,
            decided,
            by_unit || by_program,
            by_unit,
            by_program,
            !rule.undecidable.is_empty(),
        ]
    }

    /// What is missing of a rule.
    fn gap(&self, rule: &Rule) -> Option<String> {
        let [_, decided, tested, ..] = self.counts(rule);
        let missing = match (rule.undecidable.is_empty(), decided, tested) {
            (true, true, true) | (false, false, _) => return None,
            (false, true, _) => "decided by code although `undecidable` has a reason",
            (true, false, _) => "no code decides it, and `undecidable` has no reason",
            (true, true, false) => match self.unit_violation.contains(&rule.id) {
                true => "no test of a correct relative",
                false => "no test breaks it",
            },
        };
        Some(format!("{}: {missing}", rule.id))
    }
}

/// The rules that a program's header lines name, if it is compiled both ways.
fn broken_by(text: &str) -> Vec<String> {
    let header = text.lines().take_while(|line| line.starts_with("//"));
    let expected = header.filter_map(|line| line.strip_prefix("// expect:"));
    let ids = expected.flat_map(str::split_whitespace).map(str::to_owned);
    ids.filter(|_| text.contains("VIOLATE")).collect()
}

/// Rows of tests: tuples, or arguments of a call, of a rule's id, texts, and an array of correct
/// relatives.
struct Rows<'e>(&'e mut Evidence);

impl Rows<'_> {
    fn row<'ast>(&mut self, mut parts: impl DoubleEndedIterator<Item = &'ast syn::Expr>) {
        let id = parts.next().and_then(text_of);
        let relatives = parts.next_back().and_then(elements_of);
        // The violation is between them.
        if let (Some(id), Some(relatives), Some(_)) = (id, relatives, parts.next()) {
            self.0.unit_violation.insert(id.clone());
            if relatives > 0 {
                self.0.unit_correct.insert(id);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Rows<'_> {
    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        self.row(tuple.elems.iter());
        visit::visit_expr_tuple(self, tuple);
    }

    /// The elements of `vec![..]`.
    fn visit_macro(&mut self, list: &'ast syn::Macro) {
        let elements =
            list.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        for element in elements.iter().flatten() {
            Rows(self.0).visit_expr(element);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        self.row(call.args.iter());
        visit::visit_expr_call(self, call);
    }
}

/// The value of a string literal.
fn text_of(expression: &syn::Expr) -> Option<String> {
    let syn::Expr::Lit(literal) = expression else {
        return None;
    };
    match &literal.lit {
        syn::Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}

/// The number of elements of `&[..]`.
fn elements_of(expression: &syn::Expr) -> Option<usize> {
    let syn::Expr::Reference(reference) = expression else {
        return None;
    };
    match reference.expr.as_ref() {
        syn::Expr::Array(array) => Some(array.elems.len()),
        _ => None,
    }
}

/// The files below a folder with that extension.
fn below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in files::list(folder) {
        if path.is_dir() {
            found.extend(below(&path, extension));
        } else if files::has_extension(&path, extension) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str, undecidable: &str) -> Rule {
        Rule {
            id: id.to_owned(),
            area: "area".to_owned(),
            severity: crate::semantics::Severity::Error,
            confidence: Default::default(),
            statement: String::new(),
            manual: String::new(),
            advice: String::new(),
            observed: String::new(),
            example: String::new(),
            undecidable: undecidable.to_owned(),
            cannot_see: String::new(),
        }
    }

    #[test]
    fn gaps_are_read_from_the_sources() {
        let table = "const ROWS: &[Row] = &[\
            (\"a-tested\", START, \"cuInit\", &[\"cuInit\"]),\
            (\"a-one-sided\", START, \"cuInit\", &[]),\
            (\"a-program\", START)];\
            fn rows() -> Vec<Row> { vec![row(\"a-called\", one(2), &[two()])] }";
        let mut evidence = Evidence::default();
        Rows(&mut evidence).visit_file(&syn::parse_file(table).unwrap());
        let header = "// What it does.\n// expect: a-program a-second\nint x;\n";
        assert!(broken_by(header).is_empty(), "not compiled both ways");
        evidence.program.extend(broken_by(&format!(
            "{header}#ifdef VIOLATE\n#endif\n// expect: a-late\n"
        )));
        evidence.named = [
            "A_CALLED",
            "A_TESTED",
            "A_ONE_SIDED",
            "A_PROGRAM",
            "A_UNTESTED",
            "A_WRONG",
        ]
        .map(str::to_owned)
        .into();
        for (id, undecidable, gap) in [
            ("a-tested", "", None),
            ("a-called", "", None),
            ("a-program", "", None),
            ("a-one-sided", "", Some("no test of a correct relative")),
            ("a-untested", "", Some("no test breaks it")),
            ("a-second", "", Some("no code decides it")),
            ("a-unknown", "a trace does not show it", None),
            ("a-wrong", "a trace does not show it", Some("although")),
        ] {
            let found = evidence.gap(&rule(id, undecidable));
            let matches = match (&found, gap) {
                (Some(found), Some(gap)) => found.contains(gap),
                (found, gap) => found.is_none() && gap.is_none(),
            };
            assert!(matches, "{id}: {found:?}");
        }
    }
}
