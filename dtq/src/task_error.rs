//! Errors of task functions: any error, with what its author says about retrying (SPEC 3).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Any error that may travel between threads.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// What an author says about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    /// Worth retrying, after this delay if one is given.
    Retry { after: Option<Duration> },
    /// Retrying cannot help.
    Permanent,
    /// No failure at all: put the task off (SPEC 3.8).
    Snooze(Duration),
}

/// The error of a task function: to task functions what `anyhow::Error` is to programs.
///
/// `?` turns any [`std::error::Error`] into one. What it means for the task is decided by the marks
/// on it, or else by the list of errors that are retryable (see the guide on
/// [retries](crate::guide::retries)): an error that is not recognised is permanent.
///
/// ```
/// use dtq::TaskError;
/// use std::time::Duration;
///
/// fn charge(cents: u32) -> Result<(), TaskError> {
///     if cents == 0 {
///         return Err(dtq::permanent!("nothing to charge"));
///     }
///     let rate: f64 = "1.1".parse()?; // any error, by `?`
///     if rate > 2.0 {
///         let busy = std::io::Error::other("the bank is busy");
///         return Err(TaskError::retryable(busy).retry_after(Duration::from_secs(30)));
///     }
///     Ok(())
/// }
/// assert_eq!(charge(0).unwrap_err().to_string(), "nothing to charge");
/// ```
pub struct TaskError(Box<Inner>);

struct Inner {
    say: Option<Say>,
    class: Option<&'static str>,
    error: Held,
}

/// The error itself. An `anyhow::Error` is kept as it is: boxing would hide its top.
enum Held {
    Std(BoxError),
    #[cfg(feature = "anyhow")]
    Anyhow(anyhow::Error),
    Nothing,
}

impl Held {
    fn as_dyn(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Std(error) => Some(&**error),
            #[cfg(feature = "anyhow")]
            Self::Anyhow(error) => Some(error.as_ref()),
            Self::Nothing => None,
        }
    }
}

impl TaskError {
    fn new(error: Held, class: Option<&'static str>) -> Self {
        Self(Box::new(Inner { say: None, class, error }))
    }

    fn saying(mut self, say: Say) -> Self {
        self.0.say = Some(say);
        self
    }

    /// Marks `error` as worth retrying, whatever it is.
    ///
    /// Takes every error that a task function may return, also `Box<dyn Error + Send + Sync>` and
    /// (with the feature `anyhow`) `anyhow::Error`, so that it can stand in `map_err`.
    pub fn retryable<M>(error: impl IntoTaskError<M>) -> Self {
        error.into_task_error().saying(Say::Retry { after: None })
    }

    /// Marks `error` as permanent: the task is dead-lettered, whatever attempts it has left.
    pub fn permanent<M>(error: impl IntoTaskError<M>) -> Self {
        error.into_task_error().saying(Say::Permanent)
    }

    /// Retries after exactly this delay, without jitter; it may exceed the policy's longest.
    ///
    /// The error counts as retryable.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        self.saying(Say::Retry { after: Some(delay) })
    }

    /// Puts the task off: it waits for `delay` and then runs as the same attempt. Not a failure.
    ///
    /// ```
    /// # use dtq::TaskError; use std::time::Duration;
    /// fn when_the_report_is_there(ready: bool) -> Result<(), TaskError> {
    ///     if ready { Ok(()) } else { Err(TaskError::snooze(Duration::from_secs(60))) }
    /// }
    /// # assert!(when_the_report_is_there(false).is_err());
    /// ```
    pub fn snooze(delay: Duration) -> Self {
        Self::new(Held::Nothing, None).saying(Say::Snooze(delay))
    }

    /// An error that is nothing but a text. The macros [`retryable!`](crate::retryable!) and
    /// [`permanent!`](crate::permanent!) format one.
    #[doc(hidden)]
    pub fn message(text: String) -> Self {
        Self::new(Held::Std(text.into()), None)
    }

    /// A message under a class of dtq's own.
    pub(crate) fn classed(class: &'static str, text: String) -> Self {
        Self::new(Held::Std(text.into()), Some(class)).saying(Say::Permanent)
    }

    pub(crate) fn own_say(&self) -> Option<Say> {
        self.0.say
    }

    /// The name of the error's type, as far as it was known where the error was turned into this.
    pub(crate) fn class(&self) -> Option<&'static str> {
        self.0.class
    }

    pub(crate) fn as_dyn(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.error.as_dyn()
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.error, self.0.say) {
            (Held::Std(error), _) => fmt::Display::fmt(error, f),
            #[cfg(feature = "anyhow")]
            (Held::Anyhow(error), _) => write!(f, "{error:#}"),
            (Held::Nothing, Some(Say::Snooze(delay))) => write!(f, "put off for {delay:?}"),
            (Held::Nothing, _) => f.write_str("no error"),
        }
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.0.say {
            Some(Say::Retry { after: None }) => f.write_str(" (retryable)"),
            Some(Say::Retry { after: Some(delay) }) => write!(f, " (retryable after {delay:?})"),
            Some(Say::Permanent) => f.write_str(" (permanent)"),
            _ => Ok(()),
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        let class = std::any::type_name::<E>();
        Self::new(Held::Std(Box::new(error)), Some(class))
    }
}

/// Errors that a task function may return: any [`std::error::Error`] that is `Send + Sync`,
/// `Box<dyn Error + Send + Sync>`, [`TaskError`], and with the feature `anyhow` `anyhow::Error`.
///
/// `M` only keeps the kinds apart and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a task function",
    label = "not an error that a task function may return",
    note = "a task function returns `Result<T, E>` where `E` is a `std::error::Error + Send + Sync + 'static`, \
            `Box<dyn Error + Send + Sync>`, `dtq::TaskError` or, with dtq's feature `anyhow`, `anyhow::Error`",
    note = "for a text, return `Err(dtq::permanent!(\"...\"))` or `Err(dtq::retryable!(\"...\"))` and declare \
            `Result<T, dtq::TaskError>`"
)]
pub trait IntoTaskError<M>: Sized {
    #[doc(hidden)]
    fn into_task_error(self) -> TaskError;
}

/// The kinds of errors, to keep the implementations of [`IntoTaskError`] apart.
#[doc(hidden)]
#[allow(unreachable_pub, reason = "public, because a public trait names them")]
pub mod kind {
    #[derive(Debug)]
    pub struct Std;
    #[derive(Debug)]
    pub struct Boxed;
    #[derive(Debug)]
    pub struct Own;
    #[cfg(feature = "anyhow")]
    #[derive(Debug)]
    pub struct Anyhow;
}

#[diagnostic::do_not_recommend]
impl<E: StdError + Send + Sync + 'static> IntoTaskError<kind::Std> for E {
    fn into_task_error(self) -> TaskError {
        self.into()
    }
}

impl IntoTaskError<kind::Boxed> for BoxError {
    fn into_task_error(self) -> TaskError {
        TaskError::new(Held::Std(self), None)
    }
}

impl IntoTaskError<kind::Own> for TaskError {
    fn into_task_error(self) -> TaskError {
        self
    }
}

#[cfg(feature = "anyhow")]
impl IntoTaskError<kind::Anyhow> for anyhow::Error {
    fn into_task_error(self) -> TaskError {
        TaskError::new(Held::Anyhow(self), None)
    }
}

/// An error with a mark: what [`Mark`] makes. Unlike [`TaskError`] it is an
/// [`std::error::Error`], so that it travels through `anyhow`, `Box<dyn Error>` and the
/// `#[source]` and `#[from]` of your own errors, and is found again when the task fails.
///
/// It is not found below an `Arc<dyn Error>`, nor where it was only passed to `anyhow`'s `.context(..)`.
pub struct Marked(Box<Carried>);

/// What a [`Marked`] has as its source: carries the mark a second time, for wrappers that forward
/// `source` of what they wrap and so skip the `Marked` itself.
pub(crate) struct Carried(TaskError);

impl Marked {
    pub(crate) fn task_error(&self) -> &TaskError {
        &self.0.0
    }
}

impl Carried {
    pub(crate) fn task_error(&self) -> &TaskError {
        &self.0
    }
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.0, f)
    }
}

impl fmt::Debug for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.0, f)
    }
}

impl StdError for Marked {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.0.say {
            Some(Say::Retry { .. }) => "marked retryable",
            Some(Say::Permanent) => "marked permanent",
            Some(Say::Snooze(_)) => "put off",
            None => "not marked",
        })
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Carried {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.as_dyn()
    }
}

/// A `TaskError` as an error that others can hold: itself marked, or just the error inside.
impl From<TaskError> for BoxError {
    fn from(error: TaskError) -> Self {
        match *error.0 {
            Inner { say: None, error: Held::Std(error), .. } => error,
            inner => Box::new(Marked(Box::new(Carried(TaskError(Box::new(inner)))))),
        }
    }
}

#[cfg(feature = "anyhow")]
impl From<TaskError> for anyhow::Error {
    fn from(error: TaskError) -> Self {
        match *error.0 {
            Inner { say: None, error: Held::Anyhow(error), .. } => error,
            Inner { say: None, error: Held::Std(error), .. } => Self::from_boxed(error),
            inner => Self::new(Marked(Box::new(Carried(TaskError(Box::new(inner)))))),
        }
    }
}

/// Marks the error of a `Result`: `.retryable()?`, `.permanent()?`, `.retry_after(d)?`.
///
/// ```
/// use dtq::Mark;
///
/// fn read(path: &str) -> Result<String, dtq::TaskError> {
///     let text = std::fs::read_to_string(path).retryable()?;
///     let count: u32 = text.trim().parse().permanent()?;
///     Ok(format!("{count} lines"))
/// }
/// # assert!(read("/no/such/file").is_err());
/// ```
///
/// `M` is always inferred.
pub trait Mark<T, M>: Sized {
    /// The error is worth retrying.
    ///
    /// # Errors
    ///
    /// The error that was there, marked.
    fn retryable(self) -> Result<T, Marked>;

    /// Retrying cannot help.
    ///
    /// # Errors
    ///
    /// The error that was there, marked.
    fn permanent(self) -> Result<T, Marked>;

    /// The error is worth retrying after exactly this delay.
    ///
    /// # Errors
    ///
    /// The error that was there, marked.
    fn retry_after(self, delay: Duration) -> Result<T, Marked>;
}

impl<T, M, E: IntoTaskError<M>> Mark<T, M> for Result<T, E> {
    fn retryable(self) -> Result<T, Marked> {
        self.map_err(|error| Marked(Box::new(Carried(TaskError::retryable(error)))))
    }

    fn permanent(self) -> Result<T, Marked> {
        self.map_err(|error| Marked(Box::new(Carried(TaskError::permanent(error)))))
    }

    fn retry_after(self, delay: Duration) -> Result<T, Marked> {
        self.map_err(|error| Marked(Box::new(Carried(error.into_task_error().retry_after(delay)))))
    }
}

/// A [`TaskError`] from a formatted text, marked as worth retrying.
///
/// ```
/// let error = dtq::retryable!("the bank answered {}", 503);
/// assert_eq!(error.to_string(), "the bank answered 503");
/// ```
#[macro_export]
macro_rules! retryable {
    ($($text:tt)+) => {
        $crate::TaskError::retryable($crate::TaskError::message($crate::__private::format!($($text)+)))
    };
}

/// A [`TaskError`] from a formatted text, marked as permanent.
///
/// ```
/// let error = dtq::permanent!("no user {}", 7);
/// assert_eq!(error.to_string(), "no user 7");
/// ```
#[macro_export]
macro_rules! permanent {
    ($($text:tt)+) => {
        $crate::TaskError::permanent($crate::TaskError::message($crate::__private::format!($($text)+)))
    };
}
