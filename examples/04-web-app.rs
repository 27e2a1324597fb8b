//! A web application that enqueues from its handlers and runs the worker in the same program.
//!
//!     cargo run --example 04-web-app            # then: curl -X POST localhost:3000/welcome/ada
//!     cargo run --example 04-web-app -- --once  # asks itself once and ends

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use dtq::{Client, EnqueueError, TaskId};

/// Sends the welcome mail.
#[dtq::task(queue = "mail", max_attempts = 5)]
async fn send_welcome(to: String) -> String {
    format!("welcome, {to}!")
}

/// Puts the mail into the queue and answers with the task's id. The key keeps a doubled click
/// from sending two mails.
async fn welcome(State(client): State<Client>, Path(to): Path<String>) -> (StatusCode, String) {
    let key = format!("welcome:{to}");
    match SendWelcome::enqueue(to).idempotency_key(key).on(&client).await {
        Ok(handle) => (StatusCode::ACCEPTED, handle.id().to_string()),
        Err(EnqueueError::IdempotencyInProgress { task_id }) => {
            (StatusCode::ACCEPTED, task_id.to_string())
        }
        Err(EnqueueError::QueueFull { retry_after, .. }) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("busy, try again in {retry_after:?}"))
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Where a task stands.
async fn status(
    State(client): State<Client>,
    Path(id): Path<String>,
) -> Result<Json<String>, StatusCode> {
    let id: TaskId = id.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let status = client.handle::<SendWelcome>(id).status().await;
    status.map(|status| Json(status.to_string())).map_err(|_| StatusCode::NOT_FOUND)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::from_env()?;
    let worker = dtq::Worker::builder().client(client.clone()).start().await?;
    let app = Router::new()
        .route("/welcome/{to}", post(welcome))
        .route("/tasks/{id}", get(status))
        .with_state(client.clone());
    let once = std::env::args().any(|argument| argument == "--once");
    let address = if once { "127.0.0.1:0" } else { "127.0.0.1:3000" };
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let local = listener.local_addr()?;
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    if once {
        let answer = ask(local, "POST /welcome/ada").await?;
        println!("POST /welcome/ada: {answer}");
        let id: TaskId = answer.trim().parse()?;
        println!("result: {}", client.handle::<SendWelcome>(id).result().await?);
        println!("GET /tasks/{id}: {}", ask(local, &format!("GET /tasks/{id}")).await?);
    } else {
        tokio::signal::ctrl_c().await?;
    }
    serving.abort();
    worker.shutdown();
    worker.join().await?;
    Ok(())
}

/// A request as small as it can be; the body of the answer.
async fn ask(address: std::net::SocketAddr, line: &str) -> anyhow::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}
