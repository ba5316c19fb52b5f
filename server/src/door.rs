//! The door: every call passes here before any of its bytes are decoded.
//!
//! Here a call gets its place among the calls in flight (or is told to come back), its principal, its deadline and, when it ends, its
//! count. Authentication belongs here: it turns a call's headers into a [`Principal`]; today everyone is [`Principal::local`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{Call, Ending, Metrics};
use cairn_core::{Clock, Deadline, Error, ErrorKind, Principal, Result, Span};
use cairn_proto::status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tracing::{debug, error};

use crate::config::settings::LimitSettings;

/// When to come back after being refused at the limit: about the time of a put of some pages.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// The door of the server. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    frame: Arc<Frame>,
}

#[derive(Debug)]
struct Frame {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    calls: Arc<Semaphore>,
    puts: Arc<Semaphore>,
    timeout_default: Duration,
    timeout_max: Duration,
}

/// A call inside the house. Dropping it ends the call: its place is free again and its end is counted.
#[derive(Debug)]
pub(crate) struct Visit {
    frame: Arc<Frame>,
    principal: Principal,
    call: Option<Call>,
    ending: Ending,
    _place: OwnedSemaphorePermit,
    put_place: Option<OwnedSemaphorePermit>,
}

/// A visit on its way from the door to the call it is for.
#[derive(Clone)]
struct Ticket(Arc<Mutex<Option<Visit>>>);

impl Door {
    pub(crate) fn new(limits: &LimitSettings, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let frame = Frame {
            clock,
            metrics,
            calls: places(limits.calls_max),
            puts: places(limits.puts_max),
            timeout_default: limits.timeout_default.0,
            timeout_max: limits.timeout_max.0,
        };
        Self { frame: Arc::new(frame) }
    }

    fn enter(&self) -> Result<Visit> {
        let frame = &self.frame;
        let Ok(place) = Arc::clone(&frame.calls).try_acquire_owned() else {
            frame.metrics.call_endings.of(Ending::Overloaded).inc();
            return Err(overloaded("the server is at its limit of calls in flight"));
        };
        frame.metrics.calls_in_flight.inc();
        Ok(Visit {
            frame: Arc::clone(frame),
            principal: Principal::local(),
            call: None,
            // What ends before it has found its call could not be decoded.
            ending: Ending::Refused,
            _place: place,
            put_place: None,
        })
    }

    /// Receives a call that has been decoded: it is `call` from now on.
    ///
    /// # Errors
    /// `Internal` if it did not come through the door; `Overloaded` for one put too many.
    pub(crate) fn receive<T>(&self, request: &mut Request<T>, call: Call) -> Result<Visit, Status> {
        let visit = request.extensions_mut().remove::<Ticket>().and_then(|ticket| ticket.0.lock().take());
        let Some(mut visit) = visit else {
            return Err(status::to_status(&Error::new(ErrorKind::Internal, "a call did not come through the door")));
        };
        visit.call = Some(call);
        visit.ending = Ending::Abandoned;
        if call == Call::PutPrefix {
            match Arc::clone(&self.frame.puts).try_acquire_owned() {
                Ok(place) => visit.put_place = Some(place),
                Err(_) => return Err(visit.fail(&overloaded("the server is at its limit of puts"))),
            }
        }
        Ok(visit)
    }
}

impl Interceptor for Door {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let visit = self.enter().map_err(|error| status::to_status(&error))?;
        request.extensions_mut().insert(Ticket(Arc::new(Mutex::new(Some(visit)))));
        Ok(request)
    }
}

impl Visit {
    /// On whose behalf the call is made.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The deadline of a call that asked for `timeout_ms`; 0 is the default.
    ///
    /// # Errors
    /// `Invalid` above the most that a call may ask for.
    pub(crate) fn deadline(&self, timeout_ms: u64) -> Result<Deadline> {
        let budget = if timeout_ms == 0 { self.frame.timeout_default } else { Duration::from_millis(timeout_ms) };
        if budget > self.frame.timeout_max {
            let max = Span(self.frame.timeout_max);
            return Err(Error::invalid(format!(
                "a call may not ask for so much time timeout_ms={timeout_ms} timeout_max={max}"
            )));
        }
        Ok(Deadline::after(&*self.frame.clock, budget))
    }

    /// Waits for `work` until `deadline`; `None` if that passes first.
    pub(crate) async fn until<F: Future>(&self, deadline: Deadline, work: F) -> Option<F::Output> {
        tokio::time::timeout(deadline.remaining(&*self.frame.clock), work).await.ok()
    }

    /// Ends the call with an answer.
    pub(crate) fn answer(mut self) {
        self.ending = Ending::Answered;
    }

    /// Ends the call with an error, and returns it as the client will see it. What is the server's own fault is logged here, once.
    pub(crate) fn fail(mut self, error: &Error) -> Status {
        let call = self.call.map(cairn_core::metrics::Label::text);
        self.ending = ending(error.kind());
        match error.kind() {
            ErrorKind::Internal => error!(call, error = error.chain(), "a call failed"),
            kind => debug!(call, ?kind, error = error.chain(), "a call was refused"),
        }
        status::to_status(error)
    }

    /// Ends the call with an answer or an error.
    pub(crate) fn end<T>(self, outcome: Result<T>) -> Result<T, Status> {
        match outcome {
            Ok(value) => {
                self.answer();
                Ok(value)
            }
            Err(error) => Err(self.fail(&error)),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let metrics = &self.frame.metrics;
        metrics.calls_in_flight.dec();
        metrics.call_endings.of(self.ending).inc();
        if let Some(call) = self.call {
            metrics.calls_answered.of(call).inc();
        }
    }
}

fn ending(kind: ErrorKind) -> Ending {
    match kind {
        ErrorKind::Invalid | ErrorKind::Unauthenticated | ErrorKind::Denied | ErrorKind::Fenced => Ending::Refused,
        ErrorKind::Overloaded { .. } | ErrorKind::NoSpace | ErrorKind::Deadline => Ending::Overloaded,
        ErrorKind::Unavailable | ErrorKind::Internal | _ => Ending::Failed,
    }
}

fn overloaded(context: &str) -> Error {
    Error::new(ErrorKind::Overloaded { retry_after: RETRY_AFTER }, context)
}

fn places(max: u64) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(usize::try_from(max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)))
}
