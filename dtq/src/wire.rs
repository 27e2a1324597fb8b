//! Payloads in and out of serde: what `#[dtq::task]` would otherwise have to generate for each of
//! them. Generated code says only what is a payload's own: its names, and how a field is read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// What generated code tells of a payload.
pub trait Fields<'de>: Sized {
    /// The struct's name.
    const NAME: &'static str;
    /// The fields', in order.
    const FIELDS: &'static [&'static str];
    /// An `Option` for each field.
    type Slots: Default;

    /// Reads the field at this place; one that is beyond the last is none of ours.
    fn read<S: Source<'de>>(slots: &mut Self::Slots, at: usize, source: S) -> Result<(), S::Error>;

    /// The payload, once all is read.
    fn build<E: Error>(slots: Self::Slots) -> Result<Self, E>;
}

/// Where the next value comes from: a map or, in formats without names, a sequence.
pub trait Source<'de> {
    /// What reading fails with.
    type Error: Error;

    /// The next value.
    ///
    /// # Errors
    ///
    /// It is not one of that type.
    fn next<T: Deserialize<'de>>(self) -> Result<T, Self::Error>;
}

/// Reads one field; a second value for it is an error.
pub fn fill<'de, T: Deserialize<'de>, S: Source<'de>>(
    slot: &mut Option<T>,
    name: &'static str,
    source: S,
) -> Result<(), S::Error> {
    if slot.is_some() {
        return Err(Error::duplicate_field(name));
    }
    *slot = Some(source.next()?);
    Ok(())
}

/// What was read, or what the field is where nothing was: `None` for an `Option`, otherwise an error.
pub fn take<'de, T: Deserialize<'de>, E: Error>(
    slot: Option<T>,
    name: &'static str,
) -> Result<T, E> {
    match slot {
        Some(value) => Ok(value),
        None => T::deserialize(Missing(name, PhantomData)),
    }
}

/// The whole of a payload's `Deserialize`.
pub fn read<'de, T: Fields<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_struct(T::NAME, T::FIELDS, Reader(PhantomData))
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Fields<'de>> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "struct {}", T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut slots = T::Slots::default();
        while let Some(at) = map.next_key_seed(Place(T::FIELDS))? {
            match at {
                Some(at) => T::read(&mut slots, at, FromMap(&mut map))?,
                // A newer producer's field (C39).
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        T::build(slots)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let mut slots = T::Slots::default();
        for at in 0..T::FIELDS.len() {
            T::read(&mut slots, at, FromSeq(&mut seq, at))?;
        }
        T::build(slots)
    }
}

struct FromMap<'a, A>(&'a mut A);

impl<'de, A: MapAccess<'de>> Source<'de> for FromMap<'_, A> {
    type Error = A::Error;

    fn next<T: Deserialize<'de>>(self) -> Result<T, A::Error> {
        self.0.next_value()
    }
}

struct FromSeq<'a, A>(&'a mut A, usize);

impl<'de, A: SeqAccess<'de>> Source<'de> for FromSeq<'_, A> {
    type Error = A::Error;

    fn next<T: Deserialize<'de>>(self) -> Result<T, A::Error> {
        let read = self.0.next_element()?;
        read.ok_or_else(|| Error::invalid_length(self.1, &"a value for each parameter"))
    }
}

/// A key as the place of its field; one list for all payloads rather than an enum for each.
struct Place(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Place {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Place {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a parameter's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|field| *field == name))
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|field| field.as_bytes() == name))
    }

    fn visit_u64<E: Error>(self, at: u64) -> Result<Option<usize>, E> {
        Ok(usize::try_from(at).ok().filter(|at| *at < self.0.len()))
    }
}

/// Nothing at all: what an `Option` reads as `None`, and everything else refuses.
struct Missing<E>(&'static str, PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for Missing<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, E> {
        Err(E::missing_field(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: V,
    ) -> Result<V::Value, E> {
        Err(E::missing_field(self.0))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Where in a payload it went wrong: the top level field that holds the byte at this line and column, as
/// `serde_json` counts them. Only a payload that does not decode is looked at.
pub(crate) fn field_at(json: &[u8], line: usize, column: usize) -> Option<String> {
    let start =
        json.split_inclusive(|byte| *byte == b'\n').take(line.checked_sub(1)?).map(<[u8]>::len);
    let end = start.sum::<usize>() + column;
    let (mut depth, mut last, mut string) = (0usize, None, None::<usize>);
    let mut at = 0;
    while at < end.min(json.len()) {
        match (json[at], string) {
            (b'\\', Some(_)) => at += 1,
            (b'"', Some(begin)) => {
                string = None;
                let rest = json[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
                if depth == 1 && rest == Some(&b':') {
                    last = json.get(begin..=at);
                }
            }
            (b'"', None) => string = Some(at),
            (b'{' | b'[', None) => depth += 1,
            (b'}' | b']', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    serde_json::from_slice(last?).ok()
}

/// A name as a deserializer, for tests of [`Place`] without a format.
#[cfg(test)]
fn place(fields: &'static [&'static str], name: &str) -> Option<usize> {
    use serde::de::IntoDeserializer as _;
    let deserializer: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        name.into_deserializer();
    Place(fields).deserialize(deserializer).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c39_a_key_finds_its_field() {
        assert_eq!(place(&["to", "lang"], "lang"), Some(1));
        assert_eq!(place(&["to", "lang"], "from"), None);
    }

    #[test]
    fn c39_an_error_finds_its_field() {
        let json = br#"{"a": {"b": "x:\"{"}, "c\n": [1, {"d": true}], "e": 7}"#;
        let field = |text: &str| {
            let at = json.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
            field_at(json, 1, at + 1)
        };
        assert_eq!(field("x:").as_deref(), Some("a"));
        assert_eq!(field("true").as_deref(), Some("c\n"));
        assert_eq!(field("7").as_deref(), Some("e"));
        assert_eq!(field_at(b"[1]", 1, 2), None);
        assert_eq!(field_at(b"{\n\"a\":\n1}", 3, 1).as_deref(), Some("a"));
        assert_eq!(field_at(b"", 9, 9), None);
        assert_eq!(field_at(b"", 0, 0), None);
    }
}
