use super::settings::{SETTINGS, is_queue_name, queues};
use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let pairs: Vec<_> = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Config::from_variables(&pairs)
}

#[test]
fn spec_11_defaults_are_those_of_the_contract() {
    let config = read(&[]).unwrap();
    assert_eq!((config.retry.base, config.retry.max, config.retry.jitter), (1.0, 60.0, 0.2));
    assert_eq!(
        (config.max_attempts_cap, config.max_queue_depth, config.dlq_enabled),
        (10, 10_000, true)
    );
    assert_eq!(
        (config.visibility_timeout.as_secs(), config.heartbeat_interval().as_secs()),
        (30, 5)
    );
}

#[test]
fn spec_11_all_problems_are_reported_together_with_value_and_what_is_allowed() {
    let error = read(&[
        ("DTQ_WORKER_CONCURRENCY", "0"),
        ("DTQ_RETRY_JITTER", "1.5"),
        ("DTQ_QUEUES", "Mail"),
        ("DTQ_RETRY_BASE_DELAY", "90"),
        ("DTQ_HEARTBEAT_INTERVAL_S", "11"),
    ])
    .unwrap_err();
    let text = error.to_string();
    assert_eq!(error.problems.len(), 5, "{text}");
    for part in [
        "DTQ_WORKER_CONCURRENCY=0: allowed is a whole number from 1",
        "DTQ_RETRY_JITTER=1.5: allowed is a number from 0 to 1",
        "DTQ_QUEUES=Mail",
        "DTQ_RETRY_MAX_DELAY=60: allowed is at least DTQ_RETRY_BASE_DELAY, which is 90",
        "DTQ_HEARTBEAT_INTERVAL_S=11: allowed is at most 10",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn c4_h9_h26_absurd_values_are_refused() {
    let absurd = [
        "",
        " ",
        "-1",
        "+1",
        "NaN",
        "inf",
        "1e300",
        "0x10",
        "18446744073709551616",
        "1_000",
        "1 ",
        "\n1",
    ];
    for setting in SETTINGS {
        let wants_number = setting.allowed.contains("number");
        for value in absurd {
            if wants_number {
                assert!(read(&[(setting.name, value)]).is_err(), "{}={value:?}", setting.name);
            }
        }
        if wants_number {
            assert!(read(&[(setting.name, "18446744073709551615")]).is_err(), "{}", setting.name);
        }
    }
    for url in ["", "http://x", "redis", "redis:"] {
        assert!(read(&[("DTQ_URL", url)]).is_err(), "{url:?}");
    }
}

#[test]
fn c5_fractions_of_a_second_are_kept() {
    let config = read(&[("DTQ_VISIBILITY_TIMEOUT_S", "1.5"), ("DTQ_IDEM_TTL_S", "0.999")]).unwrap();
    assert_eq!(config.visibility_timeout.as_millis(), 1500);
    assert_eq!(config.settings().idempotency_ttl, 999);
    assert_eq!(config.heartbeat_interval().as_millis(), 500, "at most a third");
    let built = Config::builder().visibility_timeout(Duration::from_millis(1500)).build().unwrap();
    assert_eq!(built.visibility_timeout.as_millis(), 1500);
}

#[test]
fn spec_11_the_alias_must_agree() {
    let config = read(&[("DTQ_REDIS_URL", "redis://a")]).unwrap();
    assert_eq!(config.url.unwrap().0, "redis://a");
    assert!(read(&[("DTQ_REDIS_URL", "redis://a"), ("DTQ_URL", "redis://b")]).is_err());
    assert!(read(&[("DTQ_REDIS_URL", "redis://a"), ("DTQ_URL", "redis://a")]).is_ok());
}

#[test]
fn c28_secrets_are_never_shown() {
    for url in [
        "redis://ada:s3cret@h:1/2",
        "redis://:s3cret@h",
        "redis://s3cret@h",
        "redis://a:s3@s3cret@h/x",
        "redis+unix:///x.sock?db=1&pass=s3cret",
    ] {
        let shown = StoreUrl(url.to_owned());
        assert!(!format!("{shown} {shown:?}").contains("s3"), "{shown}");
        let config = Config::builder().url(url).build().unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
    let error = read(&[("DTQ_URL", "http://u:s3cret@h")]).unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[test]
fn spec_11_unknown_variables_are_warned_of_with_the_nearest() {
    let variables = [
        ("DTQ_WORKER_CONCURENCY".to_owned(), "4".to_owned()),
        ("DTQ_URL".to_owned(), String::new()),
    ];
    let warnings = unknown_variables(&variables);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].ends_with("did you mean DTQ_WORKER_CONCURRENCY?"), "{}", warnings[0]);
}

#[test]
fn spec_7_1_queues_are_listed_weighted_or_all() {
    let parsed = |text: &str| {
        queues(text).map(|qs| qs.into_iter().map(|q| (q.name, q.weight)).collect::<Vec<_>>())
    };
    assert_eq!(parsed("a, b"), Some(vec![("a".into(), None), ("b".into(), None)]));
    assert_eq!(parsed("a=3,b=1"), Some(vec![("a".into(), Some(3)), ("b".into(), Some(1))]));
    assert_eq!(parsed("*"), Some(vec![("*".into(), None)]));
    for text in ["", "a,", "a,a", "a=3,b", "a=0", "A", "a b", "abc\n,x\n\n", "-a", "a=x"] {
        assert_eq!(parsed(text), None, "{text:?}");
    }
}

#[test]
fn spec_6_1_queue_names_are_matched_whole() {
    assert!(is_queue_name("a") && is_queue_name("9_-") && is_queue_name(&"a".repeat(64)));
    for name in ["", "abc\n", "A", "_a", "-a", "ä", "a.b", &"a".repeat(65)] {
        assert!(!is_queue_name(name), "{name:?}");
    }
}

#[test]
fn spec_11_without_a_url_a_debug_build_has_a_file_and_others_say_what_to_set() {
    let config = Config::default();
    if cfg!(all(debug_assertions, feature = "sqlite")) {
        assert_eq!(config.store_url().unwrap().0, "sqlite:dtq.db");
    } else {
        let error = config.store_url().unwrap_err().to_string();
        assert!(error.contains("DTQ_URL: it is not set") && error.contains("redis://"), "{error}");
    }
}

#[test]
fn spec_11_a_url_that_is_set_wins_over_the_alias_and_the_environment() {
    let builder = Config::builder().set("DTQ_REDIS_URL", "redis://a".to_owned());
    let config = builder.url("redis://b").concurrency(3).concurrency(4).build().unwrap();
    assert_eq!((config.url.unwrap().0, config.concurrency), ("redis://b".to_owned(), 4));
    let shown = format!("{:?}", Config::builder().url("redis://u:s3cret@h"));
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn spec_7_1_the_builder_takes_queues_as_a_list() {
    let config = Config::builder().queues(["critical=3", "default=1"]).build().unwrap();
    let names: Vec<_> = config.queues.unwrap().into_iter().map(|q| (q.name, q.weight)).collect();
    assert_eq!(names, [("critical".to_owned(), Some(3)), ("default".to_owned(), Some(1))]);
    let none: [&str; 0] = [];
    assert!(Config::builder().queues(none).build().is_err());
}
