use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::draft::fingerprint;
use super::*;
use crate::config::Config;
use crate::store::Due;

fn raw() -> Enqueue<RawTask> {
    Enqueue::raw("greet".to_owned(), b"{}".to_vec())
}

fn check(enqueue: Enqueue<RawTask>) -> Result<NewTask, EnqueueError> {
    enqueue.draft.check(&Config::default(), SystemTime::now())
}

/// The field that is refused, and the whole message.
fn refused(enqueue: Enqueue<RawTask>) -> (&'static str, String) {
    match check(enqueue) {
        Err(error @ EnqueueError::Invalid { field, .. }) => (field, error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn spec_6_1_defaults() {
    let task = check(raw()).unwrap();
    assert_eq!(
        (&*task.queue, task.priority, task.max_attempts, task.timeout),
        ("default", 5, 5, 30_000)
    );
    assert_eq!((task.due, task.ttl, task.metadata), (Due::Now, None, None));
}

#[test]
fn spec_6_1_every_refusal_names_the_field_the_value_and_what_is_allowed() {
    let second = Duration::from_secs(1);
    for (enqueue, field, parts) in [
        (raw().queue("Mail"), "queue", ["`Mail`", "a-z"]),
        (raw().queue("abc\n"), "queue", ["`abc\\n`", "a-z"]),
        (raw().queue(""), "queue", ["``", "1 to 64"]),
        (raw().queue("a".repeat(65)), "queue", ["aaa", "1 to 64"]),
        (raw().priority(10), "priority", ["10", "0 to 9"]),
        (raw().timeout(Duration::ZERO), "timeout", ["0ns", "1 ms to 1 h"]),
        (raw().timeout(Duration::from_micros(999)), "timeout", ["999µs", "1 ms"]),
        (raw().timeout(Duration::from_millis(3_600_001)), "timeout", ["3600.001s", "1 h"]),
        (raw().max_attempts(0), "max_attempts", ["0", "1 to 10"]),
        (raw().max_attempts(11), "max_attempts", ["11", "1 to 10"]),
        (raw().idempotency_key(""), "idempotency_key", ["0 bytes", "1 to 512"]),
        (raw().idempotency_key("k".repeat(513)), "idempotency_key", ["513 bytes", "512"]),
        (raw().metadata("k", "v".repeat(4096)), "metadata", ["4104 bytes", "4096"]),
        (raw().metadata("k", f64::NAN), "metadata", ["`k`", "NaN"]),
        (raw().ttl(Duration::ZERO), "ttl", ["0ns", "at least 1 ms"]),
        (raw().delay(second).ttl(second), "ttl", ["1s", "more than the delay, which is 1s"]),
        (Enqueue::raw("a b".to_owned(), Vec::new()), "name", ["`a b`", "1 to 128"]),
        (Enqueue::raw(String::new(), Vec::new()), "name", ["``", "1 to 128"]),
    ] {
        let (named, message) = refused(enqueue);
        assert_eq!(named, field, "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?} in {message}");
    }
}

#[test]
fn spec_6_1_what_is_just_allowed_is_accepted() {
    let longest = Duration::from_secs(10 * 365 * 24 * 3600);
    for enqueue in [
        raw().queue("a".repeat(64)),
        raw().priority(0),
        raw().priority(9),
        raw().timeout(Duration::from_millis(1)),
        raw().timeout(Duration::from_secs(3600)),
        raw().max_attempts(10),
        raw().idempotency_key("k".repeat(512)),
        raw().metadata("k", "v".repeat(4088)),
        raw().delay(longest),
        raw().delay(longest).ttl(longest + Duration::from_secs(1)),
        raw().retention(Duration::ZERO),
    ] {
        check(enqueue).unwrap();
    }
}

#[test]
fn c4_h9_absurd_spans_are_refused_and_never_mean_now() {
    for span in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_millis(u64::MAX)] {
        assert_eq!(refused(raw().delay(span)).0, "delay");
        assert_eq!(refused(raw().ttl(span)).0, "ttl");
        assert_eq!(refused(raw().timeout(span)).0, "timeout");
        assert_eq!(refused(raw().retention(span)).0, "retention");
    }
    let far = UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64)).unwrap();
    assert_eq!(refused(raw().at(far)).0, "at");
}

#[test]
fn c6_a_delay_and_a_moment_give_the_same_due_time_under_one_clock() {
    let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    let due = |enqueue: Enqueue<RawTask>| enqueue.draft.check(&Config::default(), now).unwrap().due;
    for ms in [1, 500, 999, 1500, 86_400_000] {
        let delay = Duration::from_millis(ms);
        let (Due::After(after), Due::At(at)) =
            (due(raw().delay(delay)), due(raw().at(now + delay)))
        else {
            panic!("both wait");
        };
        assert_eq!(1_700_000_000_123 + after, at);
        assert_eq!(after, ms, "C5: to the millisecond");
    }
    assert_eq!(due(raw().delay(Duration::from_nanos(1))), Due::After(1), "never early");
    for past in [now, now - Duration::from_secs(5), UNIX_EPOCH, UNIX_EPOCH - Duration::from_secs(9)]
    {
        assert_eq!(due(raw().at(past)), Due::Now);
    }
    assert_eq!(due(raw().delay(Duration::ZERO)), Due::Now);
    // The last word counts.
    assert_eq!(due(raw().at(now + Duration::from_secs(9)).delay(Duration::ZERO)), Due::Now);
}

#[test]
fn c41_a_payload_at_the_limit_and_one_byte_over() {
    let config = Config::builder().max_payload_bytes(10).build().unwrap();
    let check = |bytes: usize| {
        let enqueue = Enqueue::raw("greet".to_owned(), vec![b'1'; bytes]);
        enqueue.draft.check(&config, SystemTime::now())
    };
    assert_eq!(check(10).unwrap().payload.len(), 10);
    assert!(matches!(check(11), Err(EnqueueError::PayloadTooLarge { bytes: 11, limit: 10 })));
}

#[test]
fn spec_4_5_a_cap_below_the_default_lowers_it_and_refuses_what_asks_for_more() {
    let config = Config::builder().max_attempts(3).build().unwrap();
    let check = |enqueue: Enqueue<RawTask>| enqueue.draft.check(&config, SystemTime::now());
    assert_eq!(check(raw()).unwrap().max_attempts, 3);
    let error = check(raw().max_attempts(4)).unwrap_err().to_string();
    assert!(error.contains('4') && error.contains("1 to 3"), "{error}");
}

#[test]
fn spec_6_1_metadata_is_one_object_and_the_last_value_of_a_key_counts() {
    let task =
        check(raw().metadata("a\"b", 1).metadata("c", "x").metadata("a\"b", [true])).unwrap();
    assert_eq!(task.metadata.unwrap(), r#"{"c":"x","a\"b":[true]}"#);
}

#[test]
fn spec_6_5_fingerprints_tell_types_and_payloads_apart_but_not_the_order_of_a_map() {
    let of = |name: &str, payload: &str| fingerprint(name, payload.as_bytes());
    assert_eq!(
        of("t", r#"{"a":1,"b":{"c":[1,2],"d":null}}"#),
        of("t", r#"{"b":{"d":null,"c":[1,2]},"a":1}"#)
    );
    for (name, payload) in [
        ("u", r#"{"a":1}"#),
        ("t", r#"{"a":2}"#),
        ("t", r#"{"a":"1"}"#),
        ("t", r#"{"a":1,"b":null}"#),
        ("t", r#"{"a":[1]}"#),
        ("t", "not JSON"),
    ] {
        assert_ne!(of("t", r#"{"a":1}"#), of(name, payload), "{name} {payload}");
    }
    assert_ne!(of("t", "9007199254740992"), of("t", "9007199254740993"), "C38: beyond 2^53");
    assert_ne!(of("t", "[[1],[2]]"), of("t", "[[1,[2]]]"));
    // Written down: another version of dtq must come to the same.
    assert_eq!(of("t", r#"{"a":1}"#), "229e1cf1c4e9d6a5d785e3b892452145");
    let many: HashMap<String, u32> = (0..50).map(|n| (n.to_string(), n)).collect();
    let again: HashMap<String, u32> = many.clone().into_iter().collect();
    let text = |map: &HashMap<String, u32>| serde_json::to_string(map).unwrap();
    assert_eq!(of("t", &text(&many)), of("t", &text(&again)));
}

#[test]
fn enqueues_are_send_whatever_their_task_is() {
    fn is_send<T: Send>() {}
    is_send::<Enqueue<std::rc::Rc<()>>>();
    is_send::<Sending<std::rc::Rc<()>>>();
    is_send::<Handle<std::rc::Rc<()>>>();
}

#[test]
fn payloads_are_never_shown() {
    let enqueue = Enqueue::raw("greet".to_owned(), br#"{"password":"s3cret"}"#.to_vec());
    assert!(!format!("{enqueue:?} {:?}", raw().send()).contains("s3cret"));
}
