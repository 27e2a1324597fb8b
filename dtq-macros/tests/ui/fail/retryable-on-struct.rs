#[derive(Debug, dtq::Retryable)]
struct Failure;

impl std::fmt::Display for Failure {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

impl std::error::Error for Failure {}

fn main() {}
