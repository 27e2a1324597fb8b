//! All that generated code may touch. No part of it is stable, and nobody else may use it.
//!
//! Much of it is about errors of the compiler. A step that needs a trait is a *probe*: the inherent method
//! of a type that asks for the trait, and, reached through `Deref` where the trait is missing, another of the
//! same name that does nothing, or whose own `where` clause says what is wrong in the user's words. So
//! one mistake is told once, by the one probe that is there to tell it.
#![allow(missing_docs, reason = "not part of the public interface")]

#[cfg(feature = "__internals")]
pub mod fuzz;
#[cfg(feature = "__internals")]
pub mod internals;
mod probe;

pub use std::error::Error as StdError;
pub use std::format;
pub use std::vec::Vec;

pub use linkme;
pub use serde;

pub use crate::classify::{DERIVED, Derived, DerivedProbe};
pub use crate::registry::{TASKS, register};
pub use crate::task::{BoxRun, Execution, Run};
pub use crate::wire::{Fields, Source, fill, read, take};

pub use self::probe::{
    Check, Fallible, IsContext, Part, Plain, Ran, ReadPart, Sendable, State, StateOf, WritePart,
};

#[cfg(feature = "__planted_bugs")]
pub use crate::planted::bugs as planted_bugs;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::enqueue::Enqueue;
use crate::finite;
use crate::task::{Definition, EncodeError, Options, Task};
use crate::task_error::TaskError;

/// What every task function comes to: its result as JSON, or its error.
pub type Encoded = Result<Vec<u8>, TaskError>;

/// The bytes of a payload.
pub type Payload = Result<Vec<u8>, EncodeError>;

pub fn enqueue<T: Task>(task: T) -> Enqueue<T> {
    Enqueue::from_task(task)
}

pub fn encode<T: Serialize>(value: &T) -> Payload {
    finite::to_vec(value).map_err(EncodeError)
}

/// The payload. What is wrong with it is told with the field's name (C39).
pub fn decode<T: DeserializeOwned>(execution: &Execution) -> Result<T, TaskError> {
    let json = &execution.payload;
    serde_json::from_slice(json).map_err(|error| {
        let field = crate::wire::field_at(json, error.line(), error.column());
        let place = field.map_or_else(String::new, |field| format!("field `{field}`: "));
        TaskError::classed("InvalidPayload", format!("the payload does not decode: {place}{error}"))
    })
}

pub fn boxed(run: impl Future<Output = Encoded> + Send + 'static) -> BoxRun {
    Box::pin(run)
}

/// The context, for a parameter that is declared as one.
pub fn context<T: IsContext>(execution: &Execution) -> T {
    T::of(execution)
}

pub fn nothing() -> Encoded {
    Ok(b"null".to_vec())
}

/// Whether an error is a `T`, for `retry_on`.
pub fn is_error<T: probe::IsError>(error: &(dyn StdError + 'static)) -> bool {
    T::is(error)
}

/// The start of a definition: what every task has.
pub const fn define(
    name: &'static str,
    run: Run,
    place: (&'static str, u32, &'static str),
) -> Definition {
    Definition {
        name,
        aliases: &[],
        params: &[],
        options: Options::DEFAULT,
        states: &[],
        retry_on: &[],
        file: place.0,
        line: place.1,
        module: place.2,
        run,
    }
}

/// What `Retryable` is derived for: finds errors of the type, also in a box or an `Arc`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error: `Retryable` is derived for types that implement `std::error::Error`",
    label = "not a `std::error::Error`"
)]
pub trait Erring: Sized {
    fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self>;
}

#[diagnostic::do_not_recommend]
impl<T: StdError + 'static> Erring for T {
    fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        error
            .downcast_ref::<T>()
            .or_else(|| error.downcast_ref::<Box<T>>().map(|boxed| &**boxed))
            .or_else(|| error.downcast_ref::<std::sync::Arc<T>>().map(|arc| &**arc))
    }
}
