//! Enqueues one task and says what came of it: `poke URL`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> dtq::Result<()> {
    let client = dtq::Client::connect(std::env::args().nth(1).unwrap_or_default())?;
    client.enqueue_raw("here", r#"{"n":1}"#).await?;
    println!("accepted");
    Ok(())
}
