//! What the text of a query tells without an engine: which tables it names, and whether it is one
//! statement.

use cutape_export::tables::TABLES;

/// The numbers of the tables that the query names, in strings too; all tables if it names none, as
/// `SHOW TABLES`, or a misspelt name, for which the engine suggests another.
pub(super) fn tables(query: &str) -> Vec<usize> {
    let words = words(query);
    let tables = TABLES.iter().enumerate();
    let named = tables.filter(|(_, table)| words.iter().any(|word| word == table.name));
    let named: Vec<usize> = named.map(|(number, _)| number).collect();
    match named.is_empty() {
        true => (0..TABLES.len()).collect(),
        false => named,
    }
}

/// Whether the query names that column.
pub(super) fn names(query: &str, column: &str) -> bool {
    words(query).iter().any(|word| word == column)
}

fn words(query: &str) -> Vec<String> {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    query.split(is_end).map(str::to_lowercase).collect()
}

/// Whether something comes after the end of the first statement.
pub(super) fn has_several_statements(query: &str) -> bool {
    let mut rest = query;
    let mut has_ended = false;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            _ if rest.starts_with("--") => Some(after(rest, 2, "\n")),
            _ if rest.starts_with("/*") => Some(after(rest, 2, "*/")),
            _ if first.is_whitespace() => Some(&rest[first.len_utf8()..]),
            _ => None,
        };
        if let Some(skipped) = skipped {
            rest = skipped;
            continue;
        }
        if has_ended && first != ';' {
            return true;
        }
        has_ended = first == ';';
        rest = match first {
            '\'' => after(rest, 1, "'"),
            '"' => after(rest, 1, "\""),
            '$' => after_dollars(rest),
            _ => &rest[first.len_utf8()..],
        };
    }
    false
}

/// What follows the next `end`, looked for from byte `from` on.
fn after<'q>(text: &'q str, from: usize, end: &str) -> &'q str {
    let rest = &text[from..];
    rest.find(end).map_or("", |at| &rest[at + end.len()..])
}

/// What follows a string as `$tag$text$tag$`; without one, what follows the sign.
fn after_dollars(text: &str) -> &str {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let tag = text[1..].find(|c| !is_name(c));
    match tag.filter(|&length| text[1 + length..].starts_with('$')) {
        Some(length) => after(text, length + 2, &text[..length + 2]),
        None => &text[1..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_are_named() {
        for (query, named) in [
            ("SELECT * FROM calls", &["calls"][..]),
            (
                "from Calls c JOIN \"launches\" USING (trace, call)",
                &["calls", "launches"],
            ),
            ("FROM query_table('copies')", &["copies"]),
            (
                "SELECT graph_launches.call FROM graph_launches",
                &["graph_launches"],
            ),
        ] {
            let found = tables(query).into_iter();
            let found: Vec<&str> = found.map(|number| TABLES[number].name).collect();
            assert_eq!(found, named, "{query}");
        }
        for query in ["SHOW TABLES", "FROM lanches", "SELECT 1"] {
            assert_eq!(tables(query).len(), TABLES.len(), "{query}");
        }
        assert!(names("SELECT Arguments->>'n' FROM calls", "arguments"));
        assert!(!names("SELECT arguments_x FROM calls", "arguments"));
    }

    #[test]
    fn one_statement() {
        for (query, several) in [
            ("SELECT 1", false),
            ("SELECT 1;", false),
            ("SELECT 1; -- done\n /* ; x */ ;", false),
            ("SELECT ';', \"a;b\", $$;x$$, $t$;$$ y$t$ FROM calls", false),
            ("SELECT 'it''s; x' -- ; SELECT 2\n", false),
            ("SELECT $1; ", false),
            ("SELECT '; SELECT 2", false),
            ("SELECT 1; SELECT 2", true),
            ("SELECT 1;\n.shell id", true),
            ("SELECT 'é';'x'", true),
            ("SELECT $a; SELECT 2", true),
            ("/* */ SELECT 1; $$", true),
        ] {
            assert_eq!(has_several_statements(query), several, "{query}");
        }
    }
}
