#![allow(unused)]

#[dtq::task(priority = 11)]
async fn send_mail(to: String, lang: Option<String>) -> Result<String, std::io::Error> {
    Ok(format!("{to}{lang:?}"))
}

mod elsewhere {
    pub(crate) async fn f() -> Result<(), dtq::EnqueueError> {
        let handle = super::SendMail::enqueue("ada", None).priority(3).await?;
        let _: String = handle.result().await.unwrap();
        let payload = super::SendMail { to: String::new(), lang: None };
        let _ = (payload.to.len(), super::send_mail(payload.lang.unwrap(), None).await);
        Ok(())
    }
}

#[dtq::task]
async fn next(mail: u8) {}

fn main() {}
