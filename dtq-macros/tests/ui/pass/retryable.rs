//! Every form of the derive, on every kind of variant.
#![deny(warnings, clippy::pedantic)]

use dtq as renamed;

#[derive(Debug, dtq::Retryable)]
enum Failure {
    #[retryable]
    Unit,
    #[retryable(after = "1m 30s")]
    Tuple(u32, String),
    #[retryable(inherit)]
    Struct {
        source: std::io::Error,
    },
    #[retryable(inherit)]
    Wraps(std::io::Error),
    Permanent,
    r#Type,
}

#[derive(Debug, dtq::Retryable)]
#[retryable(crate = renamed)]
enum Elsewhere {
    #[retryable]
    Busy,
}

#[derive(Debug, dtq::Retryable)]
enum Never {}

macro_rules! errors {
    ($($name:ident)*) => {
        $(impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self:?}")
            }
        }

        impl std::error::Error for $name {})*
    };
}

errors!(Failure Elsewhere Never);

fn main() {
    let source = || std::io::Error::other("x");
    let all = [
        Failure::Unit,
        Failure::Tuple(1, String::new()),
        Failure::Struct { source: source() },
        Failure::Wraps(source()),
        Failure::Permanent,
        Failure::r#Type,
    ];
    for failure in all {
        if let Failure::Struct { source } | Failure::Wraps(source) = &failure {
            let _ = source.kind();
        }
        let _: dtq::TaskError = failure.into();
    }
    let _ = Elsewhere::Busy;
}
