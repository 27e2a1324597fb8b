//! The short run of a fuzz target: its corpus, then what comes of it by random mutations. The seed is fixed,
//! and so are the inputs; an input that fails is printed, to be kept in the corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// What real inputs are made of, to be spliced in.
const TOKENS: [&str; 32] = [
    "0",
    "1",
    "-1",
    "255",
    "4294967296",
    "18446744073709551616",
    "1e309",
    "NaN",
    "\"",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    "=",
    "\n",
    "\u{0}",
    "\u{fffd}",
    "..",
    "ms",
    "#[",
    "r#",
    "'a",
    "&",
    "<T>",
    "null",
    "true",
    "é",
];

/// Runs `target` on every file of the corpus and on so many mutants.
pub(crate) fn run(corpus: &Path, mutants: u32, target: impl Fn(&[u8])) {
    let mut names: Vec<_> = std::fs::read_dir(corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.expect("the corpus is readable").path())
        .collect();
    names.sort();
    let seeds: Vec<Vec<u8>> =
        names.iter().map(|name| std::fs::read(name).expect("the corpus is readable")).collect();
    assert!(!seeds.is_empty(), "{} is empty", corpus.display());
    for (name, seed) in names.iter().zip(&seeds) {
        attempt(&name.display().to_string(), seed, &target);
    }
    let mut random = fastrand::Rng::with_seed(5);
    for n in 0..mutants {
        let input = mutant(&seeds, &mut random);
        attempt(&format!("mutant {n}"), &input, &target);
    }
}

fn attempt(name: &str, input: &[u8], target: &impl Fn(&[u8])) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("{name} fails: {:?}", String::from_utf8_lossy(input));
    }
}

fn mutant(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=input.len());
        let end = (at + random.usize(..16)).min(input.len());
        match random.u8(..6) {
            0 => drop(input.drain(at..end)),
            1 => input.insert(at, random.u8(..)),
            2 if at < input.len() => input[at] ^= 1 << random.u8(..8),
            3 => {
                let token = TOKENS[random.usize(..TOKENS.len())].bytes();
                drop(input.splice(at..end, token));
            }
            4 => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                let to = (from + random.usize(..64)).min(other.len());
                drop(input.splice(at..at, other[from..to].iter().copied()));
            }
            _ => {
                let piece = input[at..end].to_vec();
                drop(input.splice(at..at, piece));
            }
        }
    }
    input
}
