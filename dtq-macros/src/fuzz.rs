//! The root of these modules as an ordinary library, which `fuzz/` builds: a crate of macros cannot be called.
#![allow(dead_code, missing_docs, unreachable_pub)]

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

/// Expands `#[dtq::task(attribute)] item`; text that no compiler would hand to a macro is passed over.
pub fn task(attribute: &str, item: &str) {
    if let (Ok(attribute), Ok(item)) = (attribute.parse(), item.parse()) {
        let _ = expand::task(attribute, item);
    }
}

/// Expands `#[derive(Retryable)]`.
pub fn derive_retryable(item: &str) {
    if let Ok(item) = item.parse() {
        let _ = retryable::derive(item);
    }
}
