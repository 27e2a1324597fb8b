pub(crate) fn resize(mut width: u32, image: Image) -> Image {
    body
}
/// The payload of the task function [`resize`](fn@resize), known as `resize` on the wire: queue `default`, priority 5, up to 5 attempts, the configured timeout (30 s).
pub(crate) struct Resize {
    /// The parameter `width`.
    pub width: u32,
    /// The parameter `image`.
    pub image: Image,
}
#[automatically_derived]
impl ::dtq::__private::serde::Serialize for Resize {
    fn serialize<DtqS: ::dtq::__private::serde::Serializer>(
        &self,
        serializer: DtqS,
    ) -> ::core::result::Result<DtqS::Ok, DtqS::Error> {
        let mut fields = ::dtq::__private::serde::Serializer::serialize_struct(
            serializer,
            "Resize",
            2,
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::serialize_field(
            &mut fields,
            "width",
            &self.width,
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::serialize_field(
            &mut fields,
            "image",
            ::dtq::__private::Part(&self.image).part(),
        )?;
        ::dtq::__private::serde::ser::SerializeStruct::end(fields)
    }
}
#[automatically_derived]
impl<'dtq> ::dtq::__private::serde::Deserialize<'dtq> for Resize {
    fn deserialize<DtqD: ::dtq::__private::serde::Deserializer<'dtq>>(
        deserializer: DtqD,
    ) -> ::core::result::Result<Self, DtqD::Error> {
        ::dtq::__private::read(deserializer)
    }
}
#[automatically_derived]
#[doc(hidden)]
impl<'dtq> ::dtq::__private::Fields<'dtq> for Resize {
    const NAME: &'static ::core::primitive::str = "Resize";
    const FIELDS: &'static [&'static ::core::primitive::str] = &["width", "image"];
    type Slots = (::core::option::Option<u32>, ::core::option::Option<Image>);
    fn read<DtqS: ::dtq::__private::Source<'dtq>>(
        slots: &mut Self::Slots,
        at: ::core::primitive::usize,
        source: DtqS,
    ) -> ::core::result::Result<(), DtqS::Error> {
        match at {
            0 => ::dtq::__private::fill(&mut slots.0, "width", source),
            1 => {
                ::dtq::__private::ReadPart::<Image>::NEW
                    .fill(&mut slots.1, "image", source)
            }
            _ => ::core::result::Result::Ok(()),
        }
    }
    fn build<DtqE: ::dtq::__private::serde::de::Error>(
        slots: Self::Slots,
    ) -> ::core::result::Result<Self, DtqE> {
        ::core::result::Result::Ok(Self {
            width: ::dtq::__private::take(slots.0, "width")?,
            image: ::dtq::__private::ReadPart::<Image>::NEW.take(slots.1, "image")?,
        })
    }
}
impl Resize {
    /// Puts a call of [`resize`](fn@resize) into the queue, once this is awaited: queue `default`, priority 5, up to 5 attempts, the configured timeout (30 s), unless said otherwise here.
    #[allow(dead_code)]
    pub(crate) fn enqueue(width: u32, image: Image) -> ::dtq::Enqueue<Self> {
        ::dtq::__private::enqueue(Self { width, image })
    }
}
const _: () = {
    fn run(execution: ::dtq::__private::Execution) -> ::dtq::__private::Encoded {
        ::dtq::__private::Check::<Image>::NEW.parameter();
        let payload = ::dtq::__private::decode::<Resize>(&execution)?;
        ::dtq::__private::Plain::new(resize(payload.width, payload.image)).ran()
    }
    #[::dtq::__private::linkme::distributed_slice(::dtq::__private::TASKS)]
    #[linkme(crate = ::dtq::__private::linkme)]
    static ENTRY: &'static ::dtq::Definition = &::dtq::__private::define(
            "resize",
            ::dtq::__private::Run::Blocking(run),
            (::core::file!(), ::core::line!(), ::core::module_path!()),
        )
        .with_params(&["width", "image"]);
    #[automatically_derived]
    impl ::dtq::Task for Resize {
        const NAME: &'static ::core::primitive::str = "resize";
        type Output = Image;
        fn definition() -> &'static ::dtq::Definition {
            ENTRY
        }
        fn encode(&self) -> ::dtq::__private::Payload {
            ::dtq::__private::encode(self)
        }
    }
};
