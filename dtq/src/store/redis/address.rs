//! `DTQ_URL` for Redis, read leniently: passwords may hold characters that a URL would want escaped.

use crate::store::{StoreError, StoreResult};

/// A client for the address. Errors never quote the URL, which may hold a password.
pub(super) fn client(url: &str) -> StoreResult<redis::Client> {
    let scheme = url.split("://").next().unwrap_or_default();
    if matches!(scheme, "redis-cluster" | "redis-sentinel") {
        return Err(StoreError::Failed(format!(
            "{scheme}:// is not supported by this version: use redis://, rediss:// or redis+unix://"
        )));
    }
    let client = redis::Client::open(escape_user_info(url).as_str());
    client.map_err(|error| {
        let why = error.detail().map_or_else(|| error.category().to_owned(), str::to_owned);
        StoreError::Failed(format!(
            "the URL is not one of redis://[user:password@]host[:port][/db], rediss://... or \
             redis+unix:///path/to/socket[?db=1&pass=...]: {}",
            if why.contains('@') { error.category() } else { &why }
        ))
    })
}

/// Escapes what stands before the last `@` of `scheme://user:password@host`, so that `/`, `#`,
/// `?`, `@` and a lone `%` of a password arrive as they are.
fn escape_user_info(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let Some((info, host)) = rest.rsplit_once('@') else {
        return url.to_owned();
    };
    if scheme.contains("unix") {
        return url.to_owned();
    }
    let (user, password) = info.split_once(':').map_or((info, None), |(u, p)| (u, Some(p)));
    let password = password.map(|password| format!(":{}", escape(password))).unwrap_or_default();
    format!("{scheme}://{}{password}@{host}", escape(user))
}

fn escape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut escaped = String::with_capacity(text.len());
    for (i, byte) in bytes.iter().enumerate() {
        let is_escape = *byte == b'%'
            && bytes.get(i + 1..i + 3).is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit));
        if is_escape || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=".contains(byte) {
            escaped.push(char::from(*byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c28_passwords_arrive_as_they_were_written() {
        for (written, arrives) in [
            ("p@ss", "p@ss"),
            ("a/b#c", "a/b#c"),
            ("100%", "100%"),
            ("a+b=c?d", "a+b=c?d"),
            ("p%40ss", "p@ss"),
            ("ключ:x", "ключ:x"),
        ] {
            let client = client(&format!("redis://ada:{written}@localhost:6380/3")).unwrap();
            let settings = client.get_connection_info().redis_settings().clone();
            assert_eq!(settings.password(), Some(arrives), "{written}");
            assert_eq!((settings.username(), settings.db()), (Some("ada"), 3));
        }
    }

    #[test]
    fn c28_ipv6_sockets_and_databases_are_understood() {
        for url in [
            "redis://[::1]:6379/1",
            "redis+unix:///tmp/x.sock?db=2",
            "rediss://h:1/0",
            "redis://:pw@h",
        ] {
            assert!(client(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn c28_an_error_never_prints_the_secret() {
        for url in [
            "redis://u:hunter2@ho st",
            "redis://u:hunter2@h:port",
            "redis://u:hunter2@h/notanumber",
        ] {
            let error = client(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
