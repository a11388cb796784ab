//! The output of `cutape check --format json`.

use serde_json::Value;

/// The parts of a finding that tests check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its id.
    pub rule: String,
    /// `error`, `warning` or `advice`.
    pub severity: String,
    /// Index of the call, if it is about one.
    pub call: Option<u64>,
    /// Name of that call's result, or `did not return`.
    pub result: String,
    /// The chain of causes.
    pub chain: Vec<String>,
}

/// Reads the findings: a JSON array, an object that holds one named `findings`, or an object a
/// line.
///
/// # Errors
/// Where the text is something else.
pub fn read_findings(text: &str) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| format!("not JSON: {error}\n{text}"))?;
        let list = value.get("findings").unwrap_or(&value);
        match list {
            Value::Array(list) => {
                for entry in list {
                    findings.push(finding(entry)?);
                }
            }
            entry => findings.push(finding(entry)?),
        }
    }
    Ok(findings)
}

fn finding(value: &Value) -> Result<Finding, String> {
    let text = |name: &str| {
        value[name]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("no `{name}` in {value}"))
    };
    let chain = value["chain"]
        .as_array()
        .ok_or_else(|| format!("no `chain` in {value}"))?;
    Ok(Finding {
        rule: text("rule")?,
        severity: text("severity")?,
        call: value["call"]["call"].as_u64(),
        result: value["call"]["result"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        chain: chain
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let one = r#"{"rule":"a","severity":"error","call":{"call":3,"result":{"code":0,"name":"CUDA_SUCCESS"}},"chain":["x"]}"#;
        for (text, count) in [
            (String::new(), Some(0)),
            ("[]".to_owned(), Some(0)),
            (format!("{one}\n{one}\n"), Some(2)),
            (format!("[{one},{one}]"), Some(2)),
            (format!(r#"{{"findings":[{one}],"version":1}}"#), Some(1)),
            ("error: something".to_owned(), None),
            ("{}".to_owned(), None),
        ] {
            assert_eq!(
                read_findings(&text).ok().map(|list| list.len()),
                count,
                "{text}"
            );
        }
        assert_eq!(
            read_findings(one).unwrap(),
            [Finding {
                rule: "a".into(),
                severity: "error".into(),
                call: Some(3),
                result: "CUDA_SUCCESS".into(),
                chain: vec!["x".into()]
            }]
        );
    }
}
