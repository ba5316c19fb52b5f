//! Every kind of error crosses the wire and comes back as it was.

use std::time::Duration;

use cairn_core::{Error, ErrorKind};
use cairn_proto::status::{from_status, to_status};
use tonic::{Code, Status};

const TABLE: [(ErrorKind, Code); 9] = [
    (ErrorKind::Invalid, Code::InvalidArgument),
    (ErrorKind::Unauthenticated, Code::Unauthenticated),
    (ErrorKind::Denied, Code::PermissionDenied),
    (ErrorKind::Overloaded { retry_after: Duration::from_millis(250) }, Code::ResourceExhausted),
    (ErrorKind::Deadline, Code::DeadlineExceeded),
    (ErrorKind::Unavailable, Code::Unavailable),
    (ErrorKind::NoSpace, Code::ResourceExhausted),
    (ErrorKind::Fenced, Code::FailedPrecondition),
    (ErrorKind::Internal, Code::Internal),
];

#[test]
fn every_kind_has_its_code_and_comes_back_exactly() {
    for (kind, code) in TABLE {
        let status = to_status(&Error::new(kind, "what happened key=1"));
        assert_eq!(status.code(), code, "{kind:?}");
        let back = from_status(&status);
        assert_eq!(back.kind(), kind);
        assert_eq!(back.context(), "what happened key=1");
    }
}

#[test]
fn a_status_from_elsewhere_is_taken_by_its_code() {
    let kind = |code| from_status(&Status::new(code, "from a proxy")).kind();
    assert_eq!(kind(Code::Unavailable), ErrorKind::Unavailable);
    assert_eq!(kind(Code::OutOfRange), ErrorKind::Invalid);
    assert_eq!(kind(Code::Cancelled), ErrorKind::Deadline);
    assert_eq!(kind(Code::FailedPrecondition), ErrorKind::Fenced);
    assert!(matches!(kind(Code::ResourceExhausted), ErrorKind::Overloaded { retry_after } if !retry_after.is_zero()));
}

#[test]
fn the_causes_of_an_internal_error_stay_in_the_server() {
    let cause = std::io::Error::other("/var/lib/cairn/ssd/pages");
    let status = to_status(&Error::new(ErrorKind::Internal, "the write failed").caused_by(cause));
    assert_eq!(status.message(), "the write failed");
    let cause = std::io::Error::other("size is 3");
    let status = to_status(&Error::invalid("the page is refused").caused_by(cause));
    assert_eq!(status.message(), "the page is refused: size is 3");
}
