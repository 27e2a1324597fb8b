//! What `#[dtq::task]` generates, seen from a user's crate.
#![deny(warnings, missing_docs, clippy::pedantic)]
// These two are about the functions as they are written, not about what is generated.
#![allow(clippy::unused_async, clippy::missing_errors_doc)]

use std::collections::BTreeMap;
use std::sync::Arc;

use dtq::Task as _;

/// An error of ours.
#[derive(Debug)]
pub struct MailError;

impl std::fmt::Display for MailError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no mail today")
    }
}

impl std::error::Error for MailError {}

/// Sends the welcome mail.
#[dtq::task(max_attempts = 5, timeout_ms = 3000)]
pub async fn send_welcome(to: String, lang: Option<String>) -> Result<String, MailError> {
    if to.is_empty() { Err(MailError) } else { Ok(format!("{to} {lang:?}")) }
}

/// Foreign data.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Order {
    id: u64,
    lines: Vec<(String, f64)>,
}

/// Everything at once.
#[dtq::task(
    name = "billing.charge",
    alias = "charge_card",
    alias = "charge",
    queue = "billing",
    priority = 9,
    max_attempts = 7,
    timeout = "1m 30s",
    backoff(base = "500ms", max = "1h", jitter = 0.5),
    retry_on(std::io::Error, MailError),
    ttl = "1d",
    retention = "2h",
    result_retention = "0s",
    result_max_bytes = 100,
    payload = Charge,
    derive(Debug, Clone, PartialEq)
)]
async fn charge(
    #[ctx] ctx: dtq::Context,
    order: Order,
    /// How often.
    #[serde(default)]
    times: u8,
    #[state] pool: Arc<Vec<u8>>,
    by_name: BTreeMap<String, i128>,
) -> Result<Order, dtq::TaskError> {
    tokio::task::yield_now().await;
    let _ = (ctx, times, pool, by_name);
    Ok(order)
}

/// Blocks.
#[dtq::task]
fn resize(r#type: u8, mut big: u64) -> u64 {
    big += u64::from(r#type);
    big
}

#[dtq::task]
async fn tick() {}

#[test]
fn spec_11_the_registry_lists_every_task_with_all_that_it_says() {
    let names: Vec<&str> = dtq::registry().iter().map(|task| task.name).collect();
    assert_eq!(names, ["billing.charge", "resize", "send_welcome", "tick"]);
    let charge = Charge::definition();
    assert_eq!(charge.aliases, ["charge_card", "charge"]);
    assert_eq!(charge.params, ["order", "times", "by_name"]);
    assert_eq!(charge.states.len(), 1);
    assert!((charge.states[0].type_name)().contains("Vec<u8>"));
    let options = charge.options;
    assert_eq!((options.queue, options.priority, options.max_attempts), ("billing", 9, Some(7)));
    assert_eq!((options.timeout_ms, options.ttl_ms), (Some(90_000), Some(86_400_000)));
    assert_eq!((options.backoff.base_ms, options.backoff.max_ms), (Some(500), Some(3_600_000)));
    assert_eq!(options.backoff.jitter, Some(0.5));
    assert_eq!((options.retention_ms, options.result_retention_ms), (Some(7_200_000), Some(0)));
    assert_eq!(options.result_max_bytes, Some(100));
    assert!(charge.retry_on.iter().any(|probe| probe(&std::io::Error::other("x"))));
    assert!(charge.retry_on.iter().any(|probe| probe(&Box::new(MailError))));
    assert!(charge.file.ends_with("task_macro.rs") && charge.line > 30);
    assert_eq!(Tick::definition().params, [""; 0]);
    assert_eq!(Resize::definition().params, ["type", "big"]);
}

#[test]
fn c38_payloads_come_back_byte_for_byte() {
    let order =
        Order { id: u64::MAX, lines: vec![(String::from("\0😀"), -0.0), (String::new(), 1e308)] };
    let by_name = BTreeMap::from([("a".to_owned(), i128::MIN), (String::new(), i128::MAX)]);
    let payload = Charge { order, times: 3, by_name };
    let json = payload.encode().unwrap();
    let back: Charge = serde_json::from_slice(&json).unwrap();
    assert_eq!(back, payload);
    assert_eq!(back.encode().unwrap(), json);
    let bad = Charge { order: Order { id: 0, lines: vec![(String::new(), f64::NAN)] }, ..back };
    assert!(bad.encode().unwrap_err().to_string().contains("NaN"));
}

#[test]
fn c39_payloads_of_other_versions_decode_or_name_the_field() {
    let read =
        |json: &str| serde_json::from_str::<SendWelcome>(json).map_err(|error| error.to_string());
    let welcome = read(r#"{"later": [1], "to": "ada"}"#).unwrap();
    assert_eq!((welcome.to.as_str(), welcome.lang), ("ada", None));
    assert!(read("{}").err().unwrap().contains("missing field `to`"));
    assert!(read(r#"{"to": "a", "to": "b"}"#).err().unwrap().contains("duplicate field `to`"));
    assert!(read(r#"["ada"]"#).err().unwrap().contains("length 1"));
    assert_eq!(read(r#"["ada", "fr"]"#).unwrap().lang.as_deref(), Some("fr"));
    assert!(serde_json::from_str::<Tick>(r#"{"x": {}}"#).is_ok());
}

#[tokio::test]
async fn the_functions_can_be_called_as_they_are() {
    assert_eq!(send_welcome("a".into(), None).await.unwrap(), "a None");
    assert_eq!(resize(1, 2), 3);
    let _ = SendWelcome::enqueue("ada", None).priority(3);
    let _ = Resize::enqueue(1, 2);
    tick().await;
}
