//! C46: generated code adds no lint, and needs nothing that a crate may forbid.
#![forbid(unsafe_code, missing_docs, unused_must_use)]
#![deny(warnings, rust_2018_idioms, unreachable_pub, single_use_lifetimes, unused_lifetimes, missing_debug_implementations)]
#![deny(elided_lifetimes_in_paths, explicit_outlives_requirements, let_underscore_drop, trivial_casts, unit_bindings)]

mod tasks {
    use std::sync::Arc;

    /// Never enqueued here.
    #[dtq::task(derive(Debug), retry_on(std::io::Error))]
    pub(crate) async fn unused(
        to: String,
        at: std::time::SystemTime,
        #[state] pool: Arc<u8>,
    ) -> Result<std::time::Duration, std::io::Error> {
        let _unused = (to, at, pool);
        Ok(std::time::Duration::ZERO)
    }

    #[dtq::task(derive(Debug))]
    async fn private(#[serde(rename = "n")] number: i128) -> i128 {
        number
    }

    #[dtq::task(derive(Debug))]
    #[deprecated = "use another"]
    async fn old() {}

    /// Many flags.
    #[dtq::task(derive(Debug))]
    #[allow(clippy::too_many_arguments)]
    fn flags(a: bool, b: bool, c: bool, d: bool, e: bool, f: bool, g: bool, h: bool) {
        let _all = (a, b, c, d, e, f, g, h);
    }
}

fn main() {
    assert_eq!(dtq::registry().len(), 4);
}
