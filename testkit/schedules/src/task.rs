//! Tasks, in place of tokio's runtime.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

pub use shuttle::future::{JoinError, JoinHandle, block_on, spawn};

/// The time was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed(());

/// Does blocking work in a task of its own.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn(async move { work() })
}

/// Never ends: time stands still.
pub async fn sleep(_time: Duration) {
    pending().await
}

/// Waits for `work`, for ever if there is any time `left`: time stands still.
///
/// # Errors
/// [`Elapsed`] if there was no time left and `work` did not end at once.
pub async fn timeout<F: Future>(left: Duration, work: F) -> Result<F::Output, Elapsed> {
    let mut work = pin!(work);
    if !left.is_zero() {
        return Ok(work.await);
    }
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => Poll::Ready(Err(Elapsed(()))),
    })
    .await
}
