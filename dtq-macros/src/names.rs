//! Names: of payloads, on the wire, of queues; and the nearest one to a misspelling.

/// `send_welcome` as `SendWelcome`.
pub(crate) fn upper_camel(function: &str) -> String {
    let words = function.trim_start_matches("r#").split('_').filter(|word| !word.is_empty());
    words
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}

/// Names that a payload struct would take away from the code around it.
const PRELUDE: &[&str] = &[
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Copy",
    "Default",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Future",
    "Hash",
    "Into",
    "IntoFuture",
    "IntoIterator",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Send",
    "Sized",
    "Some",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Vec",
    "AsyncFn",
    "AsyncFnMut",
    "AsyncFnOnce",
    "Debug",
    "Self",
];

/// Whether a struct of this name would shadow what everybody uses.
pub(crate) fn shadows_prelude(name: &str) -> bool {
    PRELUDE.contains(&name)
}

/// `[A-Za-z0-9_.:-]{1,128}`, the whole text.
pub(crate) fn is_wire_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b))
}

/// `^[a-z0-9][a-z0-9_-]{0,63}$`, the whole text.
pub(crate) fn is_queue_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && !matches!(bytes[0], b'_' | b'-')
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// The known name that is nearest to `written`, if any is near.
pub(crate) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|name| (distance(name, written), *name)).min()?;
    (near.0 <= 1 + written.len() / 3).then_some(near.1)
}

/// Levenshtein's.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_become_types() {
        for (function, name) in
            [("send_welcome", "SendWelcome"), ("r#type", "Type"), ("_a__b2", "AB2"), ("x", "X")]
        {
            assert_eq!(upper_camel(function), name);
        }
    }

    #[test]
    fn a_misspelling_finds_its_name() {
        let known = ["max_attempts", "priority", "queue"];
        assert_eq!(nearest("max_attempt", &known), Some("max_attempts"));
        assert_eq!(nearest("priorty", &known), Some("priority"));
        assert_eq!(nearest("zebra", &known), None);
    }
}
