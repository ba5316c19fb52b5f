//! Errors as callers see them: a kind that says what to do, a context that says what happened.
//!
//! Each crate keeps its own precise error enum and converts it to [`Error`] at its border. A miss, a refusal by policy or a short
//! answer is not an error: see [`crate::StopReason`] and [`crate::PageOutcome`]. A function returns an error or logs it, not both.

use std::error::Error as StdError;
use std::time::Duration;
use std::{fmt, iter};

/// What the caller should do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Fix the call: it can never succeed as it is.
    Invalid,
    /// Say who you are.
    Unauthenticated,
    /// Get the right to do this.
    Denied,
    /// Wait this long, then call again.
    Overloaded {
        /// How long to wait.
        retry_after: Duration,
    },
    /// Treat it as a miss: the time was up.
    Deadline,
    /// Try elsewhere or later.
    Unavailable,
    /// Drop the put: there is no room.
    NoSpace,
    /// Open the namespace (or the session) again, then repeat the call.
    Fenced,
    /// Report it: this is a defect or a broken machine.
    Internal,
}

/// An error: kind, context and the cause below it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of a fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a cause below it. `context` is lowercase, with variables last as `key=value`.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// [`ErrorKind::Invalid`]: the caller's mistake, named.
    pub fn invalid(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, context)
    }

    /// Attaches the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, without the cause.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// What happened and why, as one line: the contexts of the whole chain joined by ": ".
    pub fn chain(&self) -> String {
        in_one_line(self)
    }
}

/// What any error says, and each of its causes, joined by ": ".
pub fn in_one_line(error: &dyn StdError) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
