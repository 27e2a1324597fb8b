//! The fuzz targets of `fuzz/`, a short run of each over its corpus (C38 to C41): nothing panics.

use std::path::PathBuf;

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/payload.rs"]
mod payload;

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name)
}

#[test]
fn c38_a_record_of_anything_decodes_or_does_not() {
    mutate::run(&corpus("record"), 20_000, dtq::__private::fuzz::record);
}

#[test]
fn c39_a_payload_of_anything_is_decoded_or_told() {
    mutate::run(&corpus("payload"), 20_000, payload::fuzz);
}

#[test]
fn c28_a_configuration_of_anything_is_valid_or_says_what_is_allowed() {
    mutate::run(&corpus("config"), 3000, dtq::__private::fuzz::config);
}

#[test]
fn c3_retry_arithmetic_holds_for_any_numbers() {
    mutate::run(&corpus("retry"), 100_000, dtq::__private::fuzz::retry);
}
