//! The way out of a streaming call: a short queue between the task that serves the call and the connection that sends.
//!
//! The queue's bound is what a slow client can hold. A channel would do, but for one thing: when the deadline passes while the client does
//! not read, what waits here must be let go of, and the client must still be told how the call ended.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

/// The serving end. One task holds it.
#[derive(Debug)]
pub(crate) struct Outlet<M> {
    shared: Arc<Shared<M>>,
}

/// The sending end: the body of the response.
#[derive(Debug)]
pub(crate) struct Outgoing<M> {
    shared: Arc<Shared<M>>,
}

#[derive(Debug)]
struct Shared<M> {
    state: Mutex<State<M>>,
    /// Tells the serving end that there is room, or that the client is gone.
    moved: Notify,
    waiting_max: usize,
}

#[derive(Debug)]
struct State<M> {
    waiting: VecDeque<Result<M, Status>>,
    reader: Option<Waker>,
    ended: bool,
    abandoned: bool,
}

/// The client is gone; nobody will read more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

/// An outlet in which [`Outlet::pour`] lets `waiting_max` messages wait.
pub(crate) fn outlet<M>(waiting_max: usize) -> (Outlet<M>, Outgoing<M>) {
    let state = State { waiting: VecDeque::new(), reader: None, ended: false, abandoned: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), moved: Notify::new(), waiting_max });
    (Outlet { shared: Arc::clone(&shared) }, Outgoing { shared })
}

impl<M> Outlet<M> {
    /// Sends `message`, once there is room. Cancel-safe: a message is queued or dropped.
    pub(crate) async fn pour(&self, message: M) -> Result<(), Gone> {
        let mut message = Some(message);
        loop {
            {
                let mut state = self.shared.state.lock();
                if state.abandoned {
                    return Err(Gone);
                }
                if state.waiting.len() < self.shared.waiting_max {
                    state.waiting.extend(message.take().map(Ok));
                    state.wake_reader();
                    return Ok(());
                }
            }
            self.shared.moved.notified().await;
        }
    }

    /// Sends `message` without waiting for room: for short messages whose number the caller bounds.
    pub(crate) fn add(&self, message: M) {
        self.shared.state.lock().queue(Ok(message));
    }

    /// Waits until the client is gone. Cancel-safe.
    pub(crate) async fn abandoned(&self) {
        while !self.shared.state.lock().abandoned {
            self.shared.moved.notified().await;
        }
    }

    /// Takes back what waits and has not been sent.
    pub(crate) fn take_back(&self) -> Vec<M> {
        self.shared.state.lock().waiting.drain(..).filter_map(Result::ok).collect()
    }

    /// Ends the stream with a last message or a status, behind what waits.
    pub(crate) fn end(self, last: Result<M, Status>) {
        self.shared.state.lock().queue(last);
    }
}

impl<M> State<M> {
    fn queue(&mut self, message: Result<M, Status>) {
        if !self.abandoned {
            self.waiting.push_back(message);
            self.wake_reader();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<M> Drop for Outlet<M> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.ended = true;
        state.wake_reader();
    }
}

impl<M> Stream for Outgoing<M> {
    type Item = Result<M, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.shared.state.lock();
        match state.waiting.pop_front() {
            Some(message) => {
                self.shared.moved.notify_one();
                Poll::Ready(Some(message))
            }
            None if state.ended => Poll::Ready(None),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<M> Drop for Outgoing<M> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.shared.state.lock();
            state.abandoned = true;
            std::mem::take(&mut state.waiting)
        };
        // Outside the lock: letting go of page bytes takes the pool's.
        drop(waiting);
        self.shared.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use futures::StreamExt;

    use super::{Gone, outlet};

    /// Whether `work` is still waiting after a look at it.
    async fn waits<F: Future>(work: F) -> bool {
        let mut work = pin!(work);
        futures::future::poll_immediate(&mut work).await.is_none()
    }

    #[tokio::test]
    async fn a_slow_reader_holds_back_the_writer_and_reads_in_order() {
        let (outlet, mut outgoing) = outlet::<u32>(2);
        outlet.pour(1).await.unwrap();
        outlet.pour(2).await.unwrap();
        assert!(waits(outlet.pour(3)).await);
        assert_eq!(outgoing.next().await.unwrap().unwrap(), 1);
        outlet.pour(3).await.unwrap();
        outlet.end(Ok(4));
        let rest: Vec<u32> = outgoing.map(Result::unwrap).collect().await;
        assert_eq!(rest, [2, 3, 4]);
    }

    #[tokio::test]
    async fn what_was_not_read_can_be_taken_back_and_the_end_still_comes() {
        let (outlet, outgoing) = outlet::<u32>(2);
        outlet.pour(1).await.unwrap();
        outlet.pour(2).await.unwrap();
        assert_eq!(outlet.take_back(), [1, 2]);
        outlet.end(Ok(9));
        assert_eq!(outgoing.map(Result::unwrap).collect::<Vec<u32>>().await, [9]);
    }

    #[tokio::test]
    async fn a_writer_learns_that_its_reader_is_gone() {
        let (outlet, outgoing) = outlet::<u32>(1);
        assert!(waits(outlet.abandoned()).await);
        outlet.pour(1).await.unwrap();
        drop(outgoing);
        outlet.abandoned().await;
        assert_eq!(outlet.pour(2).await, Err(Gone));
    }
}
