//! Tasks in a library, in edition 2021.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs)]

/// Found because the program says `use tasks as _;`.
#[dtq::task]
pub async fn in_tasks(to: String, lang: Option<String>) -> Result<String, dtq::TaskError> {
    Ok(format!("{to} {lang:?}"))
}

mod private {
    #[dtq::task]
    fn in_edition_2021(r#async: Vec<u8>) -> usize {
        r#async.len()
    }
}
