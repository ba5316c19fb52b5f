//! The door: every call passes here before any of its bytes are decoded.
//!
//! Here a call gets its place among the calls in flight (or is told to come back), its principal, the moment it arrived, which its deadline
//! counts from, and, when it ends, its count. Authentication belongs here: it turns a call's headers into a [`Principal`]; today everyone
//! is [`Principal::local`]. What HTTP has to do with it is in [`crate::doorway`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{Call, Ending, Metrics};
use cairn_core::{Clock, Deadline, Error, ErrorKind, Moment, Principal, Result, Span};
use cairn_proto::status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Extensions, Request, Status};
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
    /// Bytes of requests, while they are received.
    request_bytes: Arc<Semaphore>,
    message_bytes_max: usize,
    timeout_default: Duration,
    timeout_max: Duration,
}

/// A call inside the house. Dropping it ends the call and counts its end.
#[derive(Debug)]
pub(crate) struct Visit {
    frame: Arc<Frame>,
    arrived: Moment,
    principal: Principal,
    call: Option<Call>,
    ending: Ending,
    place: Place,
    put_place: Option<OwnedSemaphorePermit>,
}

/// A place among the calls in flight. Whatever of a call still takes memory or a thread holds on to it: the visit, work that can not be
/// called back, the answer on its way out. It is free again when all have let go.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    _taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken {
    frame: Arc<Frame>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.frame.metrics.calls_in_flight.dec();
    }
}

/// What the bytes of one request are charged to. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Charge {
    frame: Arc<Frame>,
    held: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// Counts `bytes` more. A request of several messages counts as one of the largest: one at a time is in memory.
    ///
    /// # Errors
    /// `Overloaded` if the server is receiving too much at once.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        let held_bytes = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.min(self.frame.message_bytes_max.saturating_sub(held_bytes));
        let taken =
            Arc::clone(&self.frame.request_bytes).try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX));
        let taken = taken.map_err(|_| overloaded("the server is at its limit of request bytes"))?;
        match &mut self.held {
            Some(held) => held.merge(taken),
            None => self.held = Some(taken),
        }
        Ok(())
    }
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
            request_bytes: places(limits.request_bytes_max.0),
            message_bytes_max: usize::try_from(limits.message_bytes_max.0).unwrap_or(usize::MAX),
            timeout_default: limits.timeout_default.0,
            timeout_max: limits.timeout_max.0,
        };
        Self { frame: Arc::new(frame) }
    }

    /// Lets a call in whose headers have come: leaves its visit among them for [`Door::receive`], and returns its place.
    ///
    /// # Errors
    /// `Overloaded` at the limit of calls in flight.
    pub(crate) fn enter(&self, headers: &mut Extensions) -> Result<Place> {
        let frame = &self.frame;
        let Ok(permit) = Arc::clone(&frame.calls).try_acquire_owned() else {
            frame.metrics.call_endings.of(Ending::Overloaded).inc();
            return Err(overloaded("the server is at its limit of calls in flight"));
        };
        frame.metrics.calls_in_flight.inc();
        let place = Place { _taken: Arc::new(Taken { frame: Arc::clone(frame), _permit: permit }) };
        let visit = Visit {
            frame: Arc::clone(frame),
            arrived: frame.clock.now(),
            principal: Principal::local(),
            call: None,
            // What ends before it has found its call could not be decoded.
            ending: Ending::Refused,
            place: place.clone(),
            put_place: None,
        };
        headers.insert(Ticket(Arc::new(Mutex::new(Some(visit)))));
        Ok(place)
    }

    /// What the bytes of a request are charged to.
    pub(crate) fn charge(&self) -> Charge {
        Charge { frame: Arc::clone(&self.frame), held: None }
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

impl Visit {
    /// On whose behalf the call is made.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The deadline of a call that asked for `timeout_ms` from its arrival; 0 is the default.
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
        let clock = &*self.frame.clock;
        Ok(Deadline::after(clock, budget.saturating_sub(clock.now().since(self.arrived))))
    }

    /// Waits for `work` until `deadline`; `None` if that passes first.
    pub(crate) async fn until<F: Future>(&self, deadline: Deadline, work: F) -> Option<F::Output> {
        tokio::time::timeout(deadline.remaining(&*self.frame.clock), work).await.ok()
    }

    /// Runs `work`, which may block, on a thread of its own until `deadline`. It can not be called back, so it keeps the call's place:
    /// clients that try again while a disk hangs do not pile up threads.
    ///
    /// # Errors
    /// `Deadline` with the words `late` if the time passes first; `Internal` if the work panicked.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        deadline: Deadline,
        late: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let place = self.place.clone();
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        let done = self.until(deadline, working).await.ok_or_else(|| Error::new(ErrorKind::Deadline, late))?;
        done.map_err(|died| Error::new(ErrorKind::Internal, "a thread of a call died").caused_by(died))
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

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::config::Settings;

    /// A clock that a test sets, in seconds.
    #[derive(Default, Debug)]
    struct SetClock(Mutex<u64>);

    impl Clock for SetClock {
        fn now(&self) -> Moment {
            Moment::from_start(Duration::from_secs(*self.0.lock()))
        }
    }

    fn door(changes: &[(&str, &str)]) -> (Door, Arc<SetClock>) {
        let mut settings = Settings::default();
        changes.iter().for_each(|(name, value)| settings.set(name, value).unwrap());
        let clock = Arc::new(SetClock::default());
        let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
        (Door::new(&settings.limits, clock.clone(), metrics), clock)
    }

    fn visit(door: &Door) -> Result<Visit, Status> {
        let mut request = Request::new(());
        door.enter(request.extensions_mut()).map_err(|error| status::to_status(&error))?;
        door.receive(&mut request, Call::Match)
    }

    #[test]
    fn the_time_of_a_call_counts_from_its_arrival() {
        let (door, clock) = door(&[]);
        let visit = visit(&door).unwrap();
        *clock.0.lock() = 7;
        assert_eq!(visit.deadline(10_000).unwrap().remaining(&*clock), Duration::from_secs(3));
        assert!(visit.deadline(5_000).unwrap().passed(&*clock));
    }

    #[tokio::test]
    async fn work_that_hangs_is_given_up_at_the_deadline_and_keeps_the_calls_place_until_it_ends() {
        let (door, clock) = door(&[("limits.calls_max", "1")]);
        let first = visit(&door).unwrap();
        *clock.0.lock() = 3600;
        let (let_go, hangs) = std::sync::mpsc::sync_channel::<()>(0);
        let work = move || hangs.recv().is_ok();
        let late = first.blocking(first.deadline(0).unwrap(), "too late", work);
        assert_eq!(late.await.unwrap_err().kind(), ErrorKind::Deadline);
        first.answer();
        assert!(visit(&door).is_err());
        drop(let_go);
        while visit(&door).is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn requests_are_refused_when_too_much_is_received_at_once_and_a_long_put_counts_as_one_message() {
        let (door, _) = door(&[("limits.message_bytes_max", "100"), ("limits.request_bytes_max", "250")]);
        let (mut put, mut other) = (door.charge(), door.charge());
        for _ in 0..10 {
            put.add(60).unwrap();
        }
        other.add(100).unwrap();
        let mut third = door.charge();
        third.add(50).unwrap();
        assert!(matches!(third.add(1).unwrap_err().kind(), ErrorKind::Overloaded { .. }));
        drop(put);
        third.add(1).unwrap();
    }
}
