//! Payloads of arbitrary bytes for a task of many kinds of parameters.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use dtq::__private::Run;
use dtq::__private::internals::Bench;
use dtq::Task as _;
use futures_util::FutureExt as _;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind")]
enum Shape {
    Dot,
    Line { length: f32 },
    Many { of: Vec<Shape> },
}

#[allow(clippy::too_many_arguments, reason = "one of each kind")]
#[dtq::task]
async fn everything(
    text: String,
    number: i128,
    float: f64,
    maybe: Option<Box<(u8, char)>>,
    map: BTreeMap<String, Vec<bool>>,
    shape: Shape,
    span: Duration,
    #[serde(default)] missing: u16,
) -> String {
    // What was decoded is what is encoded again.
    let again = Everything { text, number, float, maybe, map, shape, span, missing };
    // A number beyond what `f32` holds decodes as infinite, which JSON cannot say.
    let Ok(json) = again.encode() else { return String::new() };
    String::from_utf8(json).expect("JSON is text")
}

/// Decodes, and what decodes comes back the same; what does not is told and not executed.
pub(crate) fn fuzz(data: &[u8]) {
    let Run::Async(run) = Everything::definition().run else { return };
    static BENCH: LazyLock<Bench> =
        LazyLock::new(|| Bench::new(dtq::Client::connect("sqlite::memory:").expect("a client")));
    let execute = |payload: Vec<u8>| {
        run(BENCH.execution(&payload.into())).now_or_never().expect("it waits for nothing")
    };
    if let Ok(result) = execute(data.to_vec()) {
        let first: String = serde_json::from_slice(&result).expect("a result is JSON");
        if first.is_empty() {
            return;
        }
        let result = execute(first.clone().into_bytes()).expect("what was encoded decodes");
        let second: String = serde_json::from_slice(&result).expect("a result is JSON");
        assert_eq!(first, second);
    }
}
