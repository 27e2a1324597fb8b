//! C43: a user's own names, everywhere that generated code might have meant another.
#![allow(dead_code, unused_macros)]

mod core {}
mod std {}
mod alloc {}
mod serde {}
mod tokio {}
mod linkme {}
mod dtq_macros {}

type Result<T> = ::core::result::Result<T, ::std::io::Error>;

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct S(::core::primitive::u8);

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct D;

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct M;

enum E {
    Ok,
    Err,
    Some,
    None,
}
#[allow(unused_imports)]
use E::*;

#[derive(Debug, Default, ::serde::Serialize, ::serde::Deserialize)]
struct String;

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct Vec<T>(T);

#[derive(::serde::Serialize, ::serde::Deserialize)]
struct Option<T>(T);

struct Box;
struct Context;
struct Definition;
trait Send {}
trait Task {}
trait Into {}
trait Clone {}

#[allow(non_camel_case_types)]
#[derive(::serde::Serialize, ::serde::Deserialize)]
struct u8;

macro_rules! line { () => { compile_error!("ours") }; }
macro_rules! file { () => { compile_error!("ours") }; }
macro_rules! module_path { () => { compile_error!("ours") }; }

#[::dtq::task]
async fn send_mail(to: String, all: Vec<u8>, lang: Option<u8>) -> Result<u8> {
    let _ = (to, all, lang);
    ::core::result::Result::Ok(u8)
}

#[::dtq::task]
async fn parameters_like_ours(
    execution: u64,
    payload: u64,
    run: u64,
    fields: u64,
    slots: u64,
    at: u64,
    source: u64,
    serializer: u64,
    deserializer: u64,
    #[state] state: u64,
    #[ctx] ctx: ::dtq::Context,
) {
    let _ = (execution, payload, run, fields, slots, at, source, serializer, deserializer, state, ctx);
}

#[::dtq::task]
async fn letters(s: S, d: D, m: M) -> S {
    let _ = (d, m);
    s
}

fn main() {
    let _ = SendMail::enqueue(String, Vec(u8), Option(u8));
    assert_eq!(::dtq::registry().len(), 3);
}
