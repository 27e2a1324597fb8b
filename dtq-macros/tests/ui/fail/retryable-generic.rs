#[derive(Debug, dtq::Retryable)]
enum Failure<T> {
    #[retryable]
    Busy(T),
}

impl<T> std::fmt::Display for Failure<T> {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

impl<T: std::fmt::Debug> std::error::Error for Failure<T> {}

fn main() {}
