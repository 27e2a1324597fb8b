//! Every kind of return.
use std::io;

type Own<T> = std::result::Result<T, io::Error>;
type MyResult<T> = Own<T>;
type Report = SearchResult;

#[derive(serde::Serialize)]
pub struct SearchResult;

#[derive(Debug)]
struct MyError;

impl std::fmt::Display for MyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mine")
    }
}

impl std::error::Error for MyError {}

#[dtq::task]
async fn nothing() {}

#[dtq::task]
async fn unit() -> () {}

#[dtq::task]
async fn plain() -> Vec<u8> {
    vec![]
}

#[dtq::task]
async fn perhaps() -> Option<u8> {
    None
}

#[dtq::task]
async fn text() -> &'static str {
    "text"
}

#[dtq::task]
async fn search() -> self::Report {
    SearchResult
}

#[dtq::task(payload = StandardTask)]
async fn standard() -> Result<u8, MyError> {
    Err(MyError)
}

#[dtq::task]
async fn aliased() -> MyResult<u8> {
    Ok(1)
}

#[dtq::task]
async fn input_output() -> io::Result<()> {
    Ok(())
}

#[dtq::task]
async fn anything() -> anyhow::Result<()> {
    anyhow::bail!("no")
}

#[dtq::task]
async fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Err("no".into())
}

#[dtq::task]
async fn of_ours() -> Result<SearchResult, dtq::TaskError> {
    let number: u8 = "x".parse()?;
    Err(dtq::permanent!("no {number}"))
}

#[dtq::task]
async fn nested() -> Result<Result<u8, String>, std::convert::Infallible> {
    Ok(Err("data".into()))
}

#[dtq::task]
fn blocking() -> dtq::Result<u8> {
    Ok(1)
}

fn main() {
    assert_eq!(dtq::registry().len(), 14);
}
