#![allow(unused)]

#[derive(Debug)]
struct MailError(std::rc::Rc<str>);

impl std::fmt::Display for MailError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MailError {}

#[dtq::task]
async fn send_mail(to: String) -> Result<(), MailError> {
    Err(MailError(to.into()))
}

fn main() {}
