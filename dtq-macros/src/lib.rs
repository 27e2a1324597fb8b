//! The macros of [dtq](https://docs.rs/dtq). Depend on `dtq`, which re-exports them; its documentation
//! says what they take.

mod args;
mod check;
mod diag;
mod expand;
mod fallback;
mod item;
mod krate;
mod names;
mod retryable;
mod span;

use proc_macro::TokenStream;

/// Makes a function a task: see the documentation of dtq's re-export.
///
/// ```ignore
/// #[dtq::task(max_attempts = 5, timeout = "3s")]
/// async fn send_welcome(to: String) -> Result<(), MailError> { .. }
/// ```
///
/// | key | value | default |
/// | --- | --- | --- |
/// | `name` | the stable wire name: 1 to 128 letters, digits and `_ . : -` | the function's name |
/// | `alias` | an older wire name that is still accepted; may be repeated | none |
/// | `queue` | 1 to 64 of `a-z 0-9 _ -` | `"default"` |
/// | `priority` | 0 to 9, 9 first | 5 |
/// | `max_attempts` | executions at most, 1 to 255 | 5 |
/// | `timeout_ms`, `timeout` | one attempt's time, 1 ms to 1 h: `3000`, `"3s"` | 30 s |
/// | `backoff(base, max, jitter)` | overrides of the retry policy: `base = "1s", max = "1m", jitter = 0.2` | configuration |
/// | `retry_on(A, B)` | error types that are retryable | none |
/// | `ttl` | after this the task may not start: `"10m"` | none |
/// | `retention`, `result_retention` | how long record and result stay: `"1h"`, `"0s"` | configuration |
/// | `result_max_bytes` | the largest result that is kept | configuration |
/// | `payload` | the name of the payload struct | the function's name in `UpperCamelCase` |
/// | `derive(..)` | further derives for the payload struct | none |
/// | `crate` | where dtq lives: `crate = ::path::to::dtq` | `::dtq` |
///
/// Durations are strings such as `"250ms"`, `"3s"`, `"1h 30m"`.
///
/// Plain parameters are the payload, in order. `#[ctx] ctx: dtq::Context` receives the execution's context and
/// `#[state] pool: Arc<Pool>` a value given to the worker. `#[serde(..)]` and doc comments on plain
/// parameters are carried to the payload's fields.
///
/// The function returns nothing, a plain `T: Serialize`, or a type whose name ends in `Result`.
#[proc_macro_attribute]
pub fn task(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::task(attribute.into(), item.into()).into()
}

/// Says which variants of an error enum are worth retrying.
///
/// ```ignore
/// #[derive(Debug, thiserror::Error, dtq::Retryable)]
/// enum ChargeError {
///     #[error("busy")] #[retryable(after = "30s")] Busy,
///     #[error("lost")] #[retryable] Lost(#[source] io::Error),
///     #[error("wraps")] #[retryable(inherit)] Wraps(#[source] OtherError),
///     #[error("no such account")] NoAccount, // permanent
/// }
/// ```
///
/// `#[retryable]` retries with the task's backoff, `after = "30s"` after exactly that, `inherit` asks the
/// error's source, and what is not marked is permanent. `#[retryable(crate = ::path)]` on the enum says
/// where dtq lives.
#[proc_macro_derive(Retryable, attributes(retryable))]
pub fn derive_retryable(item: TokenStream) -> TokenStream {
    retryable::derive(item.into()).into()
}
