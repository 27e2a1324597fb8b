#![no_main]

#[path = "../payload.rs"]
mod payload;

libfuzzer_sys::fuzz_target!(|data: &[u8]| payload::fuzz(data));
