#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| dtq::__private::fuzz::record(data));
