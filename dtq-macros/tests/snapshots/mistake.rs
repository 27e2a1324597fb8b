::core::compile_error! {
    "`priority` must be a whole number from 0 to 9, not 10"
}
::core::compile_error! {
    "a task owns its parameters, since another process runs it: write `Vec<T>` instead of a slice"
}
#[allow(unused)]
async fn send_mail(to: String, all: &[u8]) -> u8 {
    body
}
#[allow(dead_code)]
struct SendMail;
#[allow(unused_variables, dead_code, clippy::all)]
impl SendMail {
    fn enqueue(
        arg0: impl ::core::convert::Into<String>,
        arg1: impl ::core::marker::Sized,
    ) -> ::dtq::Enqueue<Self> {
        ::core::unreachable!()
    }
}
#[automatically_derived]
impl ::dtq::Task for SendMail {
    const NAME: &'static ::core::primitive::str = "";
    type Output = u8;
    fn definition() -> &'static ::dtq::Definition {
        ::core::unreachable!()
    }
    fn encode(&self) -> ::dtq::__private::Payload {
        ::core::unreachable!()
    }
}
