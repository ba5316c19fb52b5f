//! How a command ends: the exit code, and words for what went wrong and what to do.

use cairn_client::{Error, ErrorKind};

/// The exit code; `--help` documents it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Code {
    Fine = 0,
    Short = 1,
    Usage = 2,
    Unreachable = 3,
    Deadline = 4,
    Server = 5,
}

impl Code {
    /// The word for it in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Short => "short",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::Deadline => "deadline",
            Self::Server => "server",
        }
    }

    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::Unauthenticated | ErrorKind::Denied | ErrorKind::Fenced => Self::Usage,
            ErrorKind::Unavailable | ErrorKind::Overloaded { .. } => Self::Unreachable,
            ErrorKind::Deadline => Self::Deadline,
            ErrorKind::NoSpace => Self::Short,
            ErrorKind::Internal | _ => Self::Server,
        }
    }
}

/// A command that did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// What happened; nothing if there is nobody to tell.
    pub(crate) text: String,
    /// What to do next.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// The command or a file is wrong.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { code: Code::Usage, text: text.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = hint_for(error.kind()).map(str::to_owned);
        Self { code: Code::of(error.kind()), text: error.chain(), hint }
    }
}

fn hint_for(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Unavailable => Some("start it with `cairnd`, or name another with --server or CAIRN_SERVER"),
        ErrorKind::Overloaded { .. } => Some("the server is at a limit; try again later, or see `kvctl stats`"),
        ErrorKind::Deadline => Some("give it more time with --timeout, or see `kvctl ping`"),
        ErrorKind::Fenced => Some(
            "the server no longer knows this namespace; see `kvctl namespaces`, or run the command again to open it",
        ),
        ErrorKind::Internal => Some("the server's log has more"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_gone_is_not_the_servers_failure() {
        let failure = Failure::from(Error::new(ErrorKind::Fenced, "gone"));
        assert_eq!(failure.code, Code::Usage);
        assert!(failure.hint.unwrap().contains("kvctl namespaces"));
    }
}
