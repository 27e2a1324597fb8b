//! What the fuzz targets call, in `fuzz/` under libFuzzer and in `tests/tests/fuzz.rs` over the same corpus in
//! CI (feature `__internals`). Each takes arbitrary bytes, and panics if what must hold does not.

use crate::config::Config;
use crate::retry::RetryPolicy;

/// A record or a dead letter as Redis may hold it: pairs of name and value, each after a byte with its length.
#[cfg(feature = "redis")]
pub fn record(data: &[u8]) {
    crate::store::redis::decode_pieces(&pieces(data));
}

fn pieces(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = data.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        pieces.push(piece.to_vec());
        data = rest;
    }
    pieces
}

/// Variables, one a line as `NAME=value`; and the URL that comes of them.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let variables: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    match Config::from_variables(&variables) {
        Ok(config) => {
            config.retry.validate().expect("what is accepted is valid");
            assert!(config.heartbeat_interval() <= config.visibility_timeout / 3);
            // Opens nothing: but it parses the whole of the URL.
            let _ = crate::Client::builder().config(config).build();
        }
        Err(error) => {
            for problem in &error.problems {
                assert!(!problem.allowed.is_empty(), "{problem:?} does not say what is allowed");
                assert!(problem.value.len() < 4096, "a problem quotes only the start of a value");
            }
        }
    }
}

/// A policy, an attempt and a draw, from 32 bytes.
pub fn retry(data: &[u8]) {
    let mut numbers = data.chunks_exact(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        f64::from_le_bytes(bytes)
    });
    let mut number = || numbers.next().unwrap_or(0.0);
    let policy = RetryPolicy { base: number(), max: number(), jitter: number() };
    let random = number();
    for attempt in [0, 1, 2, 3, 1023, 1024, 1025, u32::MAX, random.to_bits() as u32] {
        let delay = policy.delay_ms(attempt, random);
        if policy.validate().is_ok() {
            let longest = policy.max * (1.0 + policy.jitter) * 1000.0;
            assert!(delay as f64 <= longest.max(0.0), "{policy:?} {attempt} {random}: {delay}");
        }
    }
}
