//! JSON without silent damage: `serde_json` writes NaN and infinity as `null`, which would come back
//! as something else or not at all (C38).

use serde::ser::{self, Serialize};

/// `value` as JSON; an error for a number that JSON does not have, or whatever serde refuses.
pub(crate) fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    // Only what was written as `null` can have been no number, and most payloads hold none.
    if json.windows(4).any(|word| word == b"null") {
        value.serialize(Check).map_err(|error| error.0)?;
    }
    Ok(json)
}

/// Walks through a value and stops at a number that is not finite.
struct Check;

#[derive(Debug)]
struct NotFinite(String);

impl std::fmt::Display for NotFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFinite {}

impl ser::Error for NotFinite {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Checked = Result<(), NotFinite>;

fn finite(number: f64) -> Checked {
    if number.is_finite() {
        return Ok(());
    }
    Err(NotFinite(format!(
        "{number} is not a number that JSON can hold: use an Option, or a string"
    )))
}

/// Methods that have nothing to look at.
macro_rules! pass {
    ($($method:ident($($type:ty),*);)*) => {
        $(fn $method(self, $(_: $type),*) -> Checked { Ok(()) })*
    };
}

impl ser::Serializer for Check {
    type Ok = ();
    type Error = NotFinite;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    pass! {
        serialize_bool(bool); serialize_i8(i8); serialize_i16(i16); serialize_i32(i32); serialize_i64(i64);
        serialize_i128(i128); serialize_u8(u8); serialize_u16(u16); serialize_u32(u32); serialize_u64(u64);
        serialize_u128(u128); serialize_char(char); serialize_str(&str); serialize_bytes(&[u8]);
        serialize_none(); serialize_unit(); serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_f32(self, number: f32) -> Checked {
        finite(number.into())
    }

    fn serialize_f64(self, number: f64) -> Checked {
        finite(number)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotFinite> {
        Ok(self)
    }
}

/// The compound kinds: each looks at its elements.
macro_rules! elements {
    ($($trait:ident :: $method:ident;)*) => {
        $(impl ser::$trait for Check {
            type Ok = ();
            type Error = NotFinite;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
                value.serialize(Self)
            }
            fn end(self) -> Checked { Ok(()) }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

macro_rules! fields {
    ($($trait:ident;)*) => {
        $(impl ser::$trait for Check {
            type Ok = ();
            type Error = NotFinite;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Checked {
                value.serialize(Self)
            }
            fn end(self) -> Checked { Ok(()) }
        })*
    };
}

fields! { SerializeStruct; SerializeStructVariant; }

impl ser::SerializeMap for Check {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Checked {
        key.serialize(Self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
        value.serialize(Self)
    }

    fn end(self) -> Checked {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(serde::Serialize)]
    enum Shape {
        Unit,
        New(f64),
        Tuple(f64, Option<f32>),
        Struct { deep: Vec<BTreeMap<String, (f64, Option<()>)>> },
    }

    #[test]
    fn c38_no_number_that_json_lacks_becomes_null() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let deep = vec![BTreeMap::from([("k".to_owned(), (bad, None))])];
            for shape in
                [Shape::New(bad), Shape::Tuple(1.0, Some(bad as f32)), Shape::Struct { deep }]
            {
                assert!(to_vec(&shape).unwrap_err().contains("JSON"));
            }
        }
    }

    #[test]
    fn c38_everything_else_is_written_as_serde_json_does() {
        let deep = vec![BTreeMap::from([("null".to_owned(), (1e308, None))])];
        for shape in
            [Shape::Unit, Shape::New(-0.0), Shape::Tuple(5e-324, None), Shape::Struct { deep }]
        {
            assert_eq!(to_vec(&shape).unwrap(), serde_json::to_vec(&shape).unwrap());
        }
        assert_eq!(
            to_vec(&(u64::MAX, i64::MIN, u128::MAX)).unwrap(),
            serde_json::to_vec(&(u64::MAX, i64::MIN, u128::MAX)).unwrap()
        );
    }
}
