//! What an enqueue and an execution cost in memory beside the store, counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dtq::__private::Run;
use dtq::__private::internals::Bench;
use dtq::Task as _;
use futures_util::FutureExt as _;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: everything is passed on to the system's allocator as it came.
#[allow(unsafe_code, reason = "an allocator cannot be counted otherwise")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[dtq::task]
async fn send_welcome(to: String, lang: Option<String>, count: u64) {
    drop((to, lang, count));
}

fn counted<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.get();
    let value = run();
    (COUNT.get() - before, value)
}

#[test]
fn an_enqueue_allocates_at_most_twice_beyond_its_serialization() {
    let (to, lang) = ("ada@example.com".to_owned(), Some("fr".to_owned()));
    let payload = SendWelcome { to: to.clone(), lang: lang.clone(), count: 7 };
    let (serialization, _) = counted(|| serde_json::to_vec(&payload).unwrap());
    let (all, _enqueue) = counted(|| SendWelcome::enqueue(to, lang, 7).priority(3));
    assert!(all <= serialization + 2, "{all} allocations, {serialization} of them serialization");
}

#[dtq::task]
async fn nothing(to: String, n: u64) {
    drop((to, n));
}

#[test]
fn an_execution_allocates_at_most_six_times() {
    let bench = Bench::new(dtq::Client::connect("sqlite::memory:").unwrap());
    let payload: bytes::Bytes = br#"{"to":"user@example.com","n":123}"#.to_vec().into();
    let Run::Async(run) = Nothing::definition().run else { panic!("it is async") };
    let execute = || run(bench.execution(&payload)).now_or_never().expect("it waits for nothing");
    // The first one of a thread registers its locals.
    execute().unwrap();
    let (all, result) = counted(execute);
    assert_eq!(result.unwrap(), b"null");
    // The context and its two names, the future, the payload's one string, the result.
    assert!(all <= 6, "{all} allocations");
}
