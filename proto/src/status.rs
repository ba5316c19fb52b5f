//! Errors across the wire: the one place where [`Error`] and [`Status`] meet.
//!
//! The kind travels twice: as the gRPC code, for any client and any proxy, and exactly, in the metadata key `cairn-kind`, because two
//! kinds share a code. `Overloaded` also carries `cairn-retry-after-ms`.

use std::time::Duration;

use cairn_core::{Error, ErrorKind};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// Metadata key of the exact kind.
pub const KIND_KEY: &str = "cairn-kind";
/// Metadata key of the time to wait before another try, in milliseconds.
pub const RETRY_AFTER_KEY: &str = "cairn-retry-after-ms";

/// The wait after `RESOURCE_EXHAUSTED` from someone who gave none, such as a proxy.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_millis(100);

/// Code and name of a kind. A kind that is added later travels as internal until it is named here.
fn code_and_name(kind: ErrorKind) -> (Code, &'static str) {
    match kind {
        ErrorKind::Invalid => (Code::InvalidArgument, "invalid"),
        ErrorKind::Unauthenticated => (Code::Unauthenticated, "unauthenticated"),
        ErrorKind::Denied => (Code::PermissionDenied, "denied"),
        ErrorKind::Overloaded { .. } => (Code::ResourceExhausted, "overloaded"),
        ErrorKind::Deadline => (Code::DeadlineExceeded, "deadline"),
        ErrorKind::Unavailable => (Code::Unavailable, "unavailable"),
        ErrorKind::NoSpace => (Code::ResourceExhausted, "no_space"),
        ErrorKind::Fenced => (Code::FailedPrecondition, "fenced"),
        ErrorKind::Internal | _ => (Code::Internal, "internal"),
    }
}

/// The status of an error. An internal error sends its context only: its causes name files and devices, and belong in the log.
pub fn to_status(error: &Error) -> Status {
    let (code, name) = code_and_name(error.kind());
    let message = if code == Code::Internal { error.context().to_owned() } else { error.chain() };
    let mut status = Status::new(code, message);
    status.metadata_mut().insert(KIND_KEY, MetadataValue::from_static(name));
    if let ErrorKind::Overloaded { retry_after } = error.kind() {
        let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        status.metadata_mut().insert(RETRY_AFTER_KEY, MetadataValue::from(millis));
    }
    status
}

/// The error of a status, from Cairn or from anything between: exact by `cairn-kind`, else by code.
pub fn from_status(status: &Status) -> Error {
    let named = status.metadata().get(KIND_KEY).and_then(|name| name.to_str().ok());
    let kind = named.and_then(|name| kind_of_name(name, status)).unwrap_or_else(|| kind_of_code(status));
    Error::new(kind, status.message())
}

fn kind_of_name(name: &str, status: &Status) -> Option<ErrorKind> {
    Some(match name {
        "invalid" => ErrorKind::Invalid,
        "unauthenticated" => ErrorKind::Unauthenticated,
        "denied" => ErrorKind::Denied,
        "overloaded" => ErrorKind::Overloaded { retry_after: retry_after(status) },
        "deadline" => ErrorKind::Deadline,
        "unavailable" => ErrorKind::Unavailable,
        "no_space" => ErrorKind::NoSpace,
        "fenced" => ErrorKind::Fenced,
        "internal" => ErrorKind::Internal,
        _ => return None,
    })
}

fn kind_of_code(status: &Status) -> ErrorKind {
    match status.code() {
        // A message over the limit is OUT_OF_RANGE, a call that the server does not have UNIMPLEMENTED: neither can ever succeed.
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented | Code::NotFound | Code::AlreadyExists => {
            ErrorKind::Invalid
        }
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::Denied,
        Code::ResourceExhausted => ErrorKind::Overloaded { retry_after: retry_after(status) },
        // A client-side timeout ends a call as CANCELLED.
        Code::DeadlineExceeded | Code::Cancelled => ErrorKind::Deadline,
        // A connection that breaks ends its calls as UNKNOWN.
        Code::Unavailable | Code::Unknown | Code::Aborted => ErrorKind::Unavailable,
        Code::FailedPrecondition => ErrorKind::Fenced,
        Code::Ok | Code::Internal | Code::DataLoss => ErrorKind::Internal,
    }
}

fn retry_after(status: &Status) -> Duration {
    let given = status.metadata().get(RETRY_AFTER_KEY).and_then(|millis| millis.to_str().ok()?.parse().ok());
    given.map_or(RETRY_AFTER_DEFAULT, Duration::from_millis)
}
