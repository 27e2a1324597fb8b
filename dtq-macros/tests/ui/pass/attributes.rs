//! What stands on the function and its parameters is carried to where it belongs.

/// Sends a mail.
///
/// At once.
#[dtq::task(derive(Default), queue = "mail")]
#[cfg(all())]
#[allow(non_snake_case, clippy::needless_pass_by_value)]
#[inline]
#[must_use = "it was hard work"]
pub async fn send_mail(
    /// To whom.
    #[serde(rename = "recipient", alias = "to")]
    toWhom: String,
    #[serde(default, skip_serializing_if = "Option::is_none")] lang: Option<String>,
    #[allow(unused_variables)] unused: u8,
    #[serde(with = "seconds", default)] delay: std::time::Duration,
) -> u8 {
    let _ = (toWhom, lang, delay);
    1
}

#[dtq::task]
#[cfg(any())]
async fn not_there(a: NoSuchType) -> NoSuchType {
    a
}

mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(delay: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(delay.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

fn main() {
    use dtq::Task as _;
    let json = SendMail { toWhom: "a".into(), ..SendMail::default() }.encode().unwrap();
    assert_eq!(String::from_utf8(json).unwrap(), r#"{"recipient":"a","unused":0,"delay":0}"#);
    assert_eq!(serde_json::from_str::<SendMail>(r#"{"to":"b","unused":1}"#).unwrap().toWhom, "b");
    assert_eq!(dtq::registry().len(), 1);
}
