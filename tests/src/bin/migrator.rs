//! Moves one store to another, in a process that tests kill: `migrator FROM TO`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> dtq::Result<()> {
    let mut ends = std::env::args().skip(1);
    let (from, to) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
    let moved = dtq::migrate(from, to).await?;
    println!("{} {} {}", moved.tasks, moved.dead_letters, moved.idempotency_keys);
    Ok(())
}
