//! Spans of time as they are written in attributes: `"250ms"`, `"3s"`, `"1h 30m"`.

/// What a span may look like, for messages.
pub(crate) const FORM: &str =
    "a duration such as \"250ms\", \"3s\", \"1h 30m\" (units ms, s, m, h, d)";

/// Milliseconds; `None` if the text is no duration, or one beyond what fits.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut parts = 0;
    for part in text.split_whitespace() {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = part.split_at(digits);
        let factor = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        parts += 1;
    }
    (parts > 0).then_some(total)
}

/// What is wrong with a span that was not parsed, with what to write.
pub(crate) fn complaint(text: &str) -> String {
    format!("`{text}` is not {FORM}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_whole() {
        for (text, ms) in
            [("250ms", 250), ("3s", 3000), ("1h 30m", 5_400_000), ("0s", 0), ("2d", 172_800_000)]
        {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "3",
            "s",
            "3 s",
            "-1s",
            "1.5s",
            "3x",
            "3s!",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
