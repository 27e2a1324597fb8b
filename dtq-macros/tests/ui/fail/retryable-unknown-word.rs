#[derive(Debug, dtq::Retryable)]
enum Failure {
    #[retryable(later)]
    Busy,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

impl std::error::Error for Failure {}

fn main() {}
