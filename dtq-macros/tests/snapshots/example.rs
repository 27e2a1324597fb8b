/// Sends the welcome mail.
pub async fn send_welcome(
    to: String,
    lang: Option<String>,
) -> Result<String, MailError> {
    body
}
/// Sends the welcome mail.
///
/// The payload of the task function [`send_welcome`](fn@send_welcome), known as `send_welcome` on the wire: queue `default`, priority 5, up to 5 attempts, a timeout of 3 s.
pub struct SendWelcome {
    /// The parameter `to`.
    pub to: String,
    /// The parameter `lang`.
    pub lang: Option<String>,
}
#[automatically_derived]
impl ::dtq::__private::serde::Serialize for SendWelcome {
    fn serialize<DtqS: ::dtq::__private::serde::Serializer>(
        &self,
        serializer: DtqS,
    ) -> ::core::result::Result<DtqS::Ok, DtqS::Error> {
        let mut fields = ::dtq::__private::serde::Serializer::serialize_struct(
            serializer,
            "SendWelcome",
            2,
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::serialize_field(
            &mut fields,
            "to",
            &self.to,
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::serialize_field(
            &mut fields,
            "lang",
            &self.lang,
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::end(fields)
    }
}
#[automatically_derived]
impl<'dtq> ::dtq::__private::serde::Deserialize<'dtq> for SendWelcome {
    fn deserialize<DtqD: ::dtq::__private::serde::Deserializer<'dtq>>(
        deserializer: DtqD,
    ) -> ::core::result::Result<Self, DtqD::Error> {
        ::dtq::__private::read(deserializer)
    }
}
#[automatically_derived]
#[doc(hidden)]
impl<'dtq> ::dtq::__private::Fields<'dtq> for SendWelcome {
    const NAME: &'static ::core::primitive::str = "SendWelcome";
    const FIELDS: &'static [&'static ::core::primitive::str] = &["to", "lang"];
    type Slots = (
        ::core::option::Option<String>,
        ::core::option::Option<Option<String>>,
    );
    fn read<DtqS: ::dtq::__private::Source<'dtq>>(
        slots: &mut Self::Slots,
        at: ::core::primitive::usize,
        source: DtqS,
    ) -> ::core::result::Result<(), DtqS::Error> {
        match at {
            0 => ::dtq::__private::fill(&mut slots.0, "to", source),
            1 => ::dtq::__private::fill(&mut slots.1, "lang", source),
            _ => ::core::result::Result::Ok(()),
        }
    }
    fn build<DtqE: ::dtq::__private::serde::de::Error>(
        slots: Self::Slots,
    ) -> ::core::result::Result<Self, DtqE> {
        ::core::result::Result::Ok(Self {
            to: ::dtq::__private::take(slots.0, "to")?,
            lang: ::dtq::__private::take(slots.1, "lang")?,
        })
    }
}
impl SendWelcome {
    /// Puts a call of [`send_welcome`](fn@send_welcome) into the queue, once this is awaited: queue `default`, priority 5, up to 5 attempts, a timeout of 3 s, unless said otherwise here.
    #[allow(dead_code)]
    pub fn enqueue(
        to: impl ::core::convert::Into<String>,
        lang: Option<String>,
    ) -> ::dtq::Enqueue<Self> {
        ::dtq::__private::enqueue(Self {
            to: ::core::convert::Into::into(to),
            lang,
        })
    }
}
const _: () = {
    fn run(execution: ::dtq::__private::Execution) -> ::dtq::__private::BoxRun {
        ::dtq::__private::boxed(async move {
            let payload = ::dtq::__private::decode::<SendWelcome>(&execution)?;
            ::dtq::__private::Ran(send_welcome(payload.to, payload.lang).await).ran()
        })
    }
    #[::dtq::__private::linkme::distributed_slice(::dtq::__private::TASKS)]
    #[linkme(crate = ::dtq::__private::linkme)]
    static ENTRY: &'static ::dtq::Definition = &::dtq::__private::define(
            "send_welcome",
            ::dtq::__private::Run::Async(run),
            (::core::file!(), ::core::line!(), ::core::module_path!()),
        )
        .with_params(&["to", "lang"])
        .with_options(
            ::dtq::Options::DEFAULT.with_max_attempts(5).with_timeout_ms(3000),
        );
    #[automatically_derived]
    impl ::dtq::Task for SendWelcome {
        const NAME: &'static ::core::primitive::str = "send_welcome";
        type Output = <Result<String, MailError> as ::dtq::__private::Fallible>::Ok;
        fn definition() -> &'static ::dtq::Definition {
            ENTRY
        }
        fn encode(&self) -> ::dtq::__private::Payload {
            ::dtq::__private::encode(self)
        }
    }
};
