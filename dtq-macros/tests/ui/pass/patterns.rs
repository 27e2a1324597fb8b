//! C45: `mut`, underscores, raw identifiers; contexts and states by any pattern.
use std::sync::Arc;

#[derive(Clone)]
struct Pool(Arc<u8>);

#[dtq::task]
async fn r#match(mut count: u64, _ignored: String, r#type: Vec<String>, #[state] Pool(pool): Pool, #[ctx] _: dtq::Context) -> u64 {
    count += u64::from(*pool) + r#type.len() as u64;
    count
}

#[dtq::task]
fn blocking(mut count: u64) -> u64 {
    count += 1;
    count
}

fn main() {
    let _ = Match::enqueue(1, "", vec![]);
    let _ = Match { count: 1, _ignored: String::new(), r#type: vec![] };
    assert_eq!(blocking(1), 2);
    let task = dtq::registry().into_iter().find(|task| task.name == "match").unwrap();
    assert_eq!(task.params, ["count", "_ignored", "type"]);
}
