//! Futures of `enqueue` are `Send`, whatever the payload borrows its traits from; no trait is in the way.

#[dtq::task]
async fn send_mail(to: String, cell: std::cell::Cell<u8>) {
    let _ = (to, cell.get());
}

fn needs_send<T: Send + 'static>(_: T) {}

fn main() {
    needs_send(async {
        let a = SendMail::enqueue("a", std::cell::Cell::new(1));
        let b = SendMail::enqueue(String::from("a"), std::cell::Cell::new(1)).priority(9).send();
        let _ = (a.await.is_ok(), b.await.is_ok());
    });
    dtq::tasks![SendMail];
    assert_eq!(dtq::registry().len(), 1);
}
