//! Types of other crates travel as their own serde implementations say.

use std::collections::{BTreeMap, HashSet};

/// A decimal number as such crates have it: a string on the wire.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
struct Decimal(String);

#[dtq::task]
async fn invoice(
    id: uuid::Uuid,
    issued: jiff::Timestamp,
    due: chrono::NaiveDate,
    amount: Decimal,
    lines: BTreeMap<String, Option<Decimal>>,
    tags: HashSet<u8>,
    raw: serde_json::Value,
) -> jiff::Timestamp {
    let _ = (id, due, amount, lines, tags, raw);
    issued
}

fn main() {
    let payload = Invoice {
        id: uuid::Uuid::nil(),
        issued: "2026-12-01T12:00:00Z".parse().unwrap(),
        due: chrono::NaiveDate::from_ymd_opt(2026, 12, 31).unwrap(),
        amount: Decimal("12.50".to_owned()),
        lines: BTreeMap::from([("tea".to_owned(), None)]),
        tags: HashSet::from([1]),
        raw: serde_json::json!({"a": [1.0, null]}),
    };
    let json = dtq::Task::encode(&payload).unwrap();
    let text = String::from_utf8(json).unwrap();
    assert!(text.contains("2026-12-01T12:00:00Z") && text.contains("2026-12-31"), "{text}");
}
