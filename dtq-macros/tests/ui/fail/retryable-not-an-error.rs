#[derive(Debug, dtq::Retryable)]
enum Failure {
    #[retryable]
    Busy,
}

fn main() {}
