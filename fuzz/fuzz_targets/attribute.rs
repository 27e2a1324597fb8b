//! `attribute` + a line of `--` + `function`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (attribute, item) = text.split_once("\n--\n").unwrap_or((&text, "async fn f() {}"));
    macros::task(attribute, item);
    macros::derive_retryable(item);
});
