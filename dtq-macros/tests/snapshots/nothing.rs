async fn tick() {}
/// The payload of the task function [`tick`](fn@tick), known as `tick` on the wire: queue `default`, priority 5, up to 5 attempts, the configured timeout (30 s).
struct Tick {}
#[automatically_derived]
impl ::dtq::__private::serde::Serialize for Tick {
    fn serialize<DtqS: ::dtq::__private::serde::Serializer>(
        &self,
        serializer: DtqS,
    ) -> ::core::result::Result<DtqS::Ok, DtqS::Error> {
        let fields = ::dtq::__private::serde::Serializer::serialize_struct(
            serializer,
            "Tick",
            0,
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::end(fields)
    }
}
#[automatically_derived]
impl<'dtq> ::dtq::__private::serde::Deserialize<'dtq> for Tick {
    fn deserialize<DtqD: ::dtq::__private::serde::Deserializer<'dtq>>(
        deserializer: DtqD,
    ) -> ::core::result::Result<Self, DtqD::Error> {
        ::dtq::__private::read(deserializer)
    }
}
#[automatically_derived]
#[doc(hidden)]
impl<'dtq> ::dtq::__private::Fields<'dtq> for Tick {
    const NAME: &'static ::core::primitive::str = "Tick";
    const FIELDS: &'static [&'static ::core::primitive::str] = &[];
    type Slots = ();
    fn read<DtqS: ::dtq::__private::Source<'dtq>>(
        _: &mut Self::Slots,
        at: ::core::primitive::usize,
        source: DtqS,
    ) -> ::core::result::Result<(), DtqS::Error> {
        let _ = (at, source);
        ::core::result::Result::Ok(())
    }
    fn build<DtqE: ::dtq::__private::serde::de::Error>(
        _: Self::Slots,
    ) -> ::core::result::Result<Self, DtqE> {
        ::core::result::Result::Ok(Self {})
    }
}
impl Tick {
    /// Puts a call of [`tick`](fn@tick) into the queue, once this is awaited: queue `default`, priority 5, up to 5 attempts, the configured timeout (30 s), unless said otherwise here.
    #[allow(dead_code)]
    fn enqueue() -> ::dtq::Enqueue<Self> {
        ::dtq::__private::enqueue(Self {})
    }
}
const _: () = {
    fn run(execution: ::dtq::__private::Execution) -> ::dtq::__private::BoxRun {
        ::dtq::__private::boxed(async move {
            let _ = ::dtq::__private::decode::<Tick>(&execution)?;
            {
                tick().await;
                ::dtq::__private::nothing()
            }
        })
    }
    #[::dtq::__private::linkme::distributed_slice(::dtq::__private::TASKS)]
    #[linkme(crate = ::dtq::__private::linkme)]
    static ENTRY: &'static ::dtq::Definition = &::dtq::__private::define(
        "tick",
        ::dtq::__private::Run::Async(run),
        (::core::file!(), ::core::line!(), ::core::module_path!()),
    );
    #[automatically_derived]
    impl ::dtq::Task for Tick {
        const NAME: &'static ::core::primitive::str = "tick";
        type Output = ();
        fn definition() -> &'static ::dtq::Definition {
            ENTRY
        }
        fn encode(&self) -> ::dtq::__private::Payload {
            ::dtq::__private::encode(self)
        }
    }
};
