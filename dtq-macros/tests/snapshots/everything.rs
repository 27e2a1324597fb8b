async fn charge(ctx: Context, order: Order, pool: Arc<Pool>) -> io::Result<Receipt> {
    body
}
/// The payload of the task function [`charge`](fn@charge), known as `billing.charge` on the wire: queue `billing`, priority 9, up to 5 attempts, the configured timeout (30 s), to be started within 24 h.
#[derive(Debug, Clone)]
struct Charge {
    /// The parameter `order`.
    pub order: Order,
}
#[automatically_derived]
impl ::facade::dtq::__private::serde::Serialize for Charge {
    fn serialize<DtqS: ::facade::dtq::__private::serde::Serializer>(
        &self,
        serializer: DtqS,
    ) -> ::core::result::Result<DtqS::Ok, DtqS::Error> {
        let mut fields = ::facade::dtq::__private::serde::Serializer::serialize_struct(
            serializer,
            "Charge",
            1,
        )?;
        ::facade::dtq::__private::serde::ser::SerializeStruct::serialize_field(
            &mut fields,
            "order",
            ::facade::dtq::__private::Part(&self.order).part(),
        )?;
        ::facade::dtq::__private::serde::ser::SerializeStruct::end(fields)
    }
}
#[automatically_derived]
impl<'dtq> ::facade::dtq::__private::serde::Deserialize<'dtq> for Charge {
    fn deserialize<DtqD: ::facade::dtq::__private::serde::Deserializer<'dtq>>(
        deserializer: DtqD,
    ) -> ::core::result::Result<Self, DtqD::Error> {
        ::facade::dtq::__private::read(deserializer)
    }
}
#[automatically_derived]
#[doc(hidden)]
impl<'dtq> ::facade::dtq::__private::Fields<'dtq> for Charge {
    const NAME: &'static ::core::primitive::str = "Charge";
    const FIELDS: &'static [&'static ::core::primitive::str] = &["order"];
    type Slots = (::core::option::Option<Order>,);
    fn read<DtqS: ::facade::dtq::__private::Source<'dtq>>(
        slots: &mut Self::Slots,
        at: ::core::primitive::usize,
        source: DtqS,
    ) -> ::core::result::Result<(), DtqS::Error> {
        match at {
            0 => {
                ::facade::dtq::__private::ReadPart::<Order>::NEW
                    .fill(&mut slots.0, "order", source)
            }
            _ => ::core::result::Result::Ok(()),
        }
    }
    fn build<DtqE: ::facade::dtq::__private::serde::de::Error>(
        slots: Self::Slots,
    ) -> ::core::result::Result<Self, DtqE> {
        ::core::result::Result::Ok(Self {
            order: ::facade::dtq::__private::ReadPart::<Order>::NEW
                .take(slots.0, "order")?,
        })
    }
}
impl Charge {
    /// Puts a call of [`charge`](fn@charge) into the queue, once this is awaited: queue `billing`, priority 9, up to 5 attempts, the configured timeout (30 s), to be started within 24 h, unless said otherwise here.
    #[allow(dead_code)]
    fn enqueue(order: Order) -> ::facade::dtq::Enqueue<Self> {
        ::facade::dtq::__private::enqueue(Self { order })
    }
}
const _: () = {
    fn run(
        execution: ::facade::dtq::__private::Execution,
    ) -> ::facade::dtq::__private::BoxRun {
        ::facade::dtq::__private::Check::<Order>::NEW.parameter();
        ::facade::dtq::__private::Sendable::<(Order, Arc<Pool>)>::NEW
            .boxed(async move {
                let payload = ::facade::dtq::__private::decode::<Charge>(&execution)?;
                ::facade::dtq::__private::Ran(
                        charge(
                                ::facade::dtq::__private::context::<Context>(&execution),
                                payload.order,
                                ::facade::dtq::__private::StateOf::<Arc<Pool>>::NEW
                                    .state(&execution)?,
                            )
                            .await,
                    )
                    .ran()
            })
    }
    #[::facade::dtq::__private::linkme::distributed_slice(
        ::facade::dtq::__private::TASKS
    )]
    #[linkme(crate = ::facade::dtq::__private::linkme)]
    static ENTRY: &'static ::facade::dtq::Definition = &::facade::dtq::__private::define(
            "billing.charge",
            ::facade::dtq::__private::Run::Async(run),
            (::core::file!(), ::core::line!(), ::core::module_path!()),
        )
        .with_aliases(&["charge"])
        .with_params(&["order"])
        .with_states(&[::facade::dtq::StateNeed::of::<Arc<Pool>>()])
        .with_retry_on(&[::facade::dtq::__private::is_error::<io::Error>])
        .with_options(
            ::facade::dtq::Options::DEFAULT
                .with_queue("billing")
                .with_priority(9)
                .with_backoff_base_ms(500)
                .with_backoff_max_ms(3600000)
                .with_backoff_jitter(0.5f64)
                .with_ttl_ms(86400000)
                .with_retention_ms(7200000)
                .with_result_retention_ms(0)
                .with_result_max_bytes(100),
        );
    #[automatically_derived]
    impl ::facade::dtq::Task for Charge {
        const NAME: &'static ::core::primitive::str = "billing.charge";
        type Output = <io::Result<Receipt> as ::facade::dtq::__private::Fallible>::Ok;
        fn definition() -> &'static ::facade::dtq::Definition {
            ENTRY
        }
        fn encode(&self) -> ::facade::dtq::__private::Payload {
            ::facade::dtq::__private::encode(self)
        }
    }
};
