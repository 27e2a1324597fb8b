//! The price of the macro: what an enqueue costs before its bytes go to the store, and what an execution costs
//! from its bytes to its result, with the allocations of each.
//!
//!     cargo bench -p dtq --features __internals
#![allow(missing_docs, reason = "a program")]

use divan::{AllocProfiler, Bencher, black_box};
use dtq::__private::Run;
use dtq::__private::internals::Bench;
use dtq::Task as _;
use futures_util::FutureExt as _;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

#[dtq::task]
async fn nothing(to: String, n: u64) {
    drop((to, n));
}

/// One of a dozen fields, as real ones have.
#[dtq::task]
#[allow(clippy::too_many_arguments, reason = "as many as real ones have")]
async fn order(
    id: u64,
    to: String,
    street: String,
    city: String,
    zip: Option<String>,
    lines: Vec<(String, u32)>,
    express: bool,
    total: f64,
) -> Result<String, dtq::TaskError> {
    drop((id, street, city, zip, lines, express, total));
    Ok(to)
}

fn an_order() -> Order {
    Order {
        id: 71,
        to: "ada@example.com".to_owned(),
        street: "12 St James's Square".to_owned(),
        city: "London".to_owned(),
        zip: None,
        lines: (0..10).map(|n| (format!("article-{n}"), n)).collect(),
        express: true,
        total: 99.5,
    }
}

fn main() {
    divan::main();
}

#[divan::bench]
fn enqueue_a_small_one(bencher: Bencher<'_, '_>) {
    bencher
        .with_inputs(|| "user@example.com".to_owned())
        .bench_values(|to| Nothing::enqueue(black_box(to), black_box(123)).priority(3));
}

#[divan::bench]
fn encode_a_large_one(bencher: Bencher<'_, '_>) {
    let order = an_order();
    bencher.bench_local(|| black_box(&order).encode());
}

#[divan::bench]
fn decode_run_and_encode_a_small_one(bencher: Bencher<'_, '_>) {
    let payload = br#"{"to":"user@example.com","n":123}"#.to_vec();
    execute(bencher, Nothing::definition().run, payload);
}

#[divan::bench]
fn decode_run_and_encode_a_large_one(bencher: Bencher<'_, '_>) {
    execute(bencher, Order::definition().run, an_order().encode().expect("it encodes"));
}

fn execute(bencher: Bencher<'_, '_>, run: Run, payload: Vec<u8>) {
    let bench = Bench::new(dtq::Client::connect("sqlite::memory:").expect("a client"));
    let payload = payload.into();
    let Run::Async(run) = run else { return };
    bencher.bench_local(|| run(bench.execution(black_box(&payload))).now_or_never());
}
