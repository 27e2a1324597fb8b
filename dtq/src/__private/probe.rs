//! The probes: see the module above.

use std::error::Error;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{BoxRun, Encoded, Execution, Source};
use crate::context::Context;
use crate::finite;
use crate::task_error::{IntoTaskError, TaskError};

/// Never reached: a program in which a fallback is chosen does not compile.
#[cold]
fn refused<T>() -> T {
    unreachable!("the compiler has refused this program")
}

/// A level that falls back to the next one. The next is a marker without data, made from nothing.
macro_rules! falls_back {
    ($($from:ident<$($t:ident),*> => $to:ident;)*) => {$(
        #[derive(Debug)]
        pub struct $to<$($t),*>(PhantomData<fn() -> ($($t,)*)>);

        impl<$($t),*> Deref for $from<$($t),*> {
            type Target = $to<$($t),*>;

            fn deref(&self) -> &Self::Target {
                &$to(PhantomData)
            }
        }
    )*};
}

/// Whether a parameter can travel, and if not, why: the first reason alone.
#[derive(Debug)]
pub struct Check<T>(PhantomData<fn() -> T>);

impl<T> Check<T> {
    pub const NEW: Self = Self(PhantomData);
}

falls_back! {
    Check<T> => CheckSend;
    CheckSend<T> => CheckRead;
    CheckRead<T> => CheckWrite;
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Check<T> {
    pub const fn parameter(&self) {}
}

impl<T: Serialize + DeserializeOwned> CheckSend<T> {
    pub const fn parameter(&self)
    where
        T: Sends,
    {
    }
}

impl<T: Serialize> CheckRead<T> {
    pub const fn parameter(&self)
    where
        T: Reads,
    {
    }
}

impl<T> CheckWrite<T> {
    pub const fn parameter(&self)
    where
        T: Travels,
    {
    }
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a task's parameter: it cannot be sent between threads",
    label = "not `Send`",
    note = "a task runs on any thread of a worker; for shared data take an id, or an `Arc` as a `#[state]` parameter"
)]
pub trait Sends {}
#[diagnostic::do_not_recommend]
impl<T: Send + 'static> Sends for T {}

#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a task's parameter: the worker cannot read it back, since it is not `Deserialize`",
    label = "not `Deserialize`, or only with borrowed data",
    note = "derive it: `#[derive(serde::Serialize, serde::Deserialize)]`, with fields that own their data"
)]
pub trait Reads {}
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Reads for T {}

#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a task's parameter: it is not `Serialize`, and payloads are stored as JSON",
    label = "not `Serialize`",
    note = "derive it: `#[derive(serde::Serialize, serde::Deserialize)]`",
    note = "what is not data goes another way: `#[ctx] ctx: dtq::Context` for the execution's context, \
            `#[state] pool: Arc<Pool>` for a value given to the worker"
)]
pub trait Travels {}
#[diagnostic::do_not_recommend]
impl<T: Serialize> Travels for T {}

/// A field on its way out.
#[derive(Debug)]
pub struct Part<'a, T>(pub &'a T);

/// What stands for a field that cannot be written.
#[derive(Debug)]
pub struct WritePart<T>(PhantomData<fn() -> T>);

impl<T> Deref for Part<'_, T> {
    type Target = WritePart<T>;

    fn deref(&self) -> &WritePart<T> {
        &WritePart(PhantomData)
    }
}

impl<'a, T: Serialize> Part<'a, T> {
    pub const fn part(&self) -> &'a T {
        self.0
    }
}

impl<T> WritePart<T> {
    pub fn part(&self) -> &'static () {
        refused()
    }
}

/// A field on its way in.
#[derive(Debug)]
pub struct ReadPart<T>(PhantomData<fn() -> T>);

impl<T> ReadPart<T> {
    pub const NEW: Self = Self(PhantomData);
}

falls_back! { ReadPart<T> => NoReadPart; }

impl<'de, T: Deserialize<'de>> ReadPart<T> {
    pub fn fill<S: Source<'de>>(
        &self,
        slot: &mut Option<T>,
        name: &'static str,
        source: S,
    ) -> Result<(), S::Error> {
        super::fill(slot, name, source)
    }

    pub fn take<E: serde::de::Error>(&self, slot: Option<T>, name: &'static str) -> Result<T, E> {
        super::take(slot, name)
    }
}

impl<T: DeserializeOwned> ReadPart<T> {
    pub fn decode(&self, execution: &Execution) -> Result<T, TaskError> {
        super::decode(execution)
    }
}

impl<T> NoReadPart<T> {
    pub fn decode(&self, _: &Execution) -> Result<T, TaskError> {
        refused()
    }

    pub fn fill<'de, S: Source<'de>>(
        &self,
        _: &mut Option<T>,
        _: &'static str,
        _: S,
    ) -> Result<(), S::Error> {
        refused()
    }

    pub fn take<E>(&self, _: Option<T>, _: &'static str) -> Result<T, E> {
        refused()
    }
}

/// Boxes the future of a task whose parameters and states, `T`, can be sent. Where they cannot, that
/// was told already.
#[derive(Debug)]
pub struct Sendable<T>(PhantomData<fn() -> T>);

impl<T> Sendable<T> {
    pub const NEW: Self = Self(PhantomData);
}

falls_back! { Sendable<T> => NotSendable; }

impl<T: Send> Sendable<T> {
    pub fn boxed<F: Future<Output = Encoded> + Send + 'static>(&self, run: F) -> BoxRun {
        Box::pin(run)
    }
}

impl<T> NotSendable<T> {
    pub fn boxed<F: Future<Output = Encoded> + 'static>(&self, _: F) -> BoxRun {
        refused()
    }
}

/// What a fallible function returned.
#[derive(Debug)]
pub struct Ran<R>(pub R);

falls_back! {
    Ran<R> => RanUnwritten;
    RanUnwritten<R> => RanOther;
}

impl<T: Serialize, E> Ran<Result<T, E>> {
    pub fn ran<M>(self) -> Encoded
    where
        E: IntoTaskError<M>,
    {
        match self.0 {
            Ok(value) => encode(&value),
            Err(error) => Err(error.into_task_error()),
        }
    }
}

impl<T, E> RanUnwritten<Result<T, E>> {
    pub fn ran(&self) -> Encoded
    where
        T: Returns,
    {
        refused()
    }
}

impl<R> RanOther<R> {
    pub fn ran(&self) -> Encoded {
        refused()
    }
}

/// What a function returned whose type is no `Result`, as far as its name goes.
#[derive(Debug)]
pub struct Plain<R>(PlainWritten<R>);

impl<R> Plain<R> {
    pub const fn new(value: R) -> Self {
        Self(PlainWritten(value))
    }
}

/// The level of values that can be written.
#[derive(Debug)]
pub struct PlainWritten<R>(R);

impl<R> Deref for Plain<R> {
    type Target = PlainWritten<R>;

    fn deref(&self) -> &PlainWritten<R> {
        &self.0
    }
}

falls_back! { PlainWritten<R> => PlainUnwritten; }

impl<T, E> Plain<Result<T, E>> {
    pub fn ran(&self) -> Encoded
    where
        Result<T, E>: IsNoResult,
    {
        refused()
    }
}

impl<R: Serialize> PlainWritten<R> {
    pub fn ran(&self) -> Encoded {
        encode(&self.0)
    }
}

impl<R> PlainUnwritten<R> {
    pub fn ran(&self) -> Encoded
    where
        R: Returns,
    {
        refused()
    }
}

fn encode<T: Serialize>(value: &T) -> Encoded {
    finite::to_vec(value).map_err(|why| {
        TaskError::classed("InvalidResult", format!("the result cannot be written as JSON: {why}"))
    })
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a task's result: it is not `Serialize`, and results are stored as JSON",
    label = "not `Serialize`",
    note = "derive it: `#[derive(serde::Serialize, serde::Deserialize)]`; or return nothing"
)]
pub trait Returns {}
#[diagnostic::do_not_recommend]
impl<T: Serialize> Returns for T {}

#[diagnostic::on_unimplemented(
    message = "a task's return type is a `Result` behind another name: its errors would count as successes",
    label = "a `Result`",
    note = "write `Result<T, E>` here, or give the alias a name that ends in `Result`"
)]
pub trait IsNoResult {}
impl IsNoResult for () {}

/// `Result` alone, also behind an alias: what a type whose name ends in `Result` must be.
#[diagnostic::on_unimplemented(
    message = "a task's return type whose name ends in `Result` is taken for a `Result`, which `{Self}` is not",
    label = "not a `Result`",
    note = "use an alias with another name for it: `type Report = {Self};`"
)]
pub trait Fallible {
    type Ok;
}

impl<T, E> Fallible for Result<T, E> {
    type Ok = T;
}

/// What a `#[ctx]` parameter may be.
#[diagnostic::on_unimplemented(
    message = "a task's `#[ctx]` parameter is a `dtq::Context`, not `{Self}`",
    label = "write `dtq::Context`",
    note = "a value that is given to the worker is marked `#[state]`"
)]
pub trait IsContext {
    fn of(execution: &Execution) -> Self;
}

impl IsContext for Context {
    fn of(execution: &Execution) -> Self {
        execution.context.clone()
    }
}

/// What a `#[state]` parameter may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a task's state: it is not `Clone + Send + Sync`",
    label = "every attempt gets a clone, on any thread",
    note = "wrap it: `#[state] state: std::sync::Arc<T>`"
)]
pub trait State: Clone + Send + Sync + 'static {}
#[diagnostic::do_not_recommend]
impl<T: Clone + Send + Sync + 'static> State for T {}

#[derive(Debug)]
pub struct StateOf<T>(PhantomData<fn() -> T>);

impl<T> StateOf<T> {
    pub const NEW: Self = Self(PhantomData);
}

falls_back! { StateOf<T> => NoState; }

impl<T: Clone + Send + Sync + 'static> StateOf<T> {
    /// The worker has looked at start that it is there.
    pub fn state(&self, execution: &Execution) -> Result<T, TaskError> {
        execution.states.get().ok_or_else(|| {
            let name = std::any::type_name::<T>();
            TaskError::classed(
                "MissingState",
                format!("the worker was given no state of type {name}"),
            )
        })
    }
}

impl<T> NoState<T> {
    pub fn state(&self, _: &Execution) -> Result<T, TaskError>
    where
        T: State,
    {
        refused()
    }
}

/// What `retry_on` may name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error type: `retry_on` takes types that implement `std::error::Error`",
    label = "not a `std::error::Error`"
)]
pub trait IsError {
    fn is(error: &(dyn Error + 'static)) -> bool;
}

#[diagnostic::do_not_recommend]
impl<T: Error + 'static> IsError for T {
    fn is(error: &(dyn Error + 'static)) -> bool {
        error.is::<T>() || error.is::<Box<T>>() || error.is::<std::sync::Arc<T>>()
    }
}
