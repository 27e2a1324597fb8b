async fn notify(whom: String, r#type: u8) {
    body
}
/// The payload of the task function [`notify`](fn@notify), known as `notify` on the wire: queue `default`, priority 5, up to 5 attempts, the configured timeout (30 s).
#[derive(::dtq::__private::serde::Serialize, ::dtq::__private::serde::Deserialize)]
#[serde(crate = "::dtq::__private::serde")]
struct Notify {
    /// Whom.
    #[serde(rename = "who")]
    pub whom: String,
    /// The parameter `type`.
    #[serde(default)]
    pub r#type: u8,
}
impl Notify {
    /// Puts a call of [`notify`](fn@notify) into the queue, once this is awaited: queue `default`, priority 5, up to 5 attempts, the configured timeout (30 s), unless said otherwise here.
    ///
    /// - `whom`: Whom.
    #[allow(dead_code)]
    fn enqueue(
        whom: impl ::core::convert::Into<String>,
        r#type: u8,
    ) -> ::dtq::Enqueue<Self> {
        ::dtq::__private::enqueue(Self {
            whom: ::core::convert::Into::into(whom),
            r#type,
        })
    }
}
const _: () = {
    fn run(execution: ::dtq::__private::Execution) -> ::dtq::__private::BoxRun {
        ::dtq::__private::boxed(async move {
            let payload = ::dtq::__private::ReadPart::<Notify>::NEW.decode(&execution)?;
            {
                notify(payload.whom, payload.r#type).await;
                ::dtq::__private::nothing()
            }
        })
    }
    #[::dtq::__private::linkme::distributed_slice(::dtq::__private::TASKS)]
    #[linkme(crate = ::dtq::__private::linkme)]
    static ENTRY: &'static ::dtq::Definition = &::dtq::__private::define(
            "notify",
            ::dtq::__private::Run::Async(run),
            (::core::file!(), ::core::line!(), ::core::module_path!()),
        )
        .with_params(&["whom", "type"]);
    #[automatically_derived]
    impl ::dtq::Task for Notify {
        const NAME: &'static ::core::primitive::str = "notify";
        type Output = ();
        fn definition() -> &'static ::dtq::Definition {
            ENTRY
        }
        fn encode(&self) -> ::dtq::__private::Payload {
            ::dtq::__private::encode(::dtq::__private::Part(self).part())
        }
    }
};
