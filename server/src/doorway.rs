//! The doorway: what HTTP has to do with [the door](crate::door).
//!
//! A call's place is taken when its headers come and given back when its answer has left: a client that does not read its answer keeps
//! the place that its answer costs. The bytes of its request are charged as they come, until the request has been read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cairn_proto::status;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use crate::door::{Charge, Door, Place};

/// A service behind the door.
#[derive(Clone, Debug)]
pub(crate) struct Doorway<S> {
    service: S,
    door: Door,
}

impl<S> Doorway<S> {
    pub(crate) fn new(service: S, door: Door) -> Self {
        Self { service, door }
    }
}

impl<S: NamedService> NamedService for Doorway<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Doorway<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let place = match self.door.enter(request.extensions_mut()) {
            Ok(place) => place,
            Err(error) => return Box::pin(std::future::ready(Ok(status::to_status(&error).into_http()))),
        };
        let charge = self.door.charge();
        let served = self.service.call(request.map(|body| Body::new(Arriving { body, charge })));
        Box::pin(async move {
            let answer = served.await?;
            Ok(answer.map(|body| Body::new(Leaving { body, place: Some(place) })))
        })
    }
}

/// The body of a request. Gone, and its bytes given back, when the last message has been read from it.
#[derive(Debug)]
struct Arriving {
    body: Body,
    charge: Charge,
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        match self.charge.add(bytes) {
            Ok(()) => Poll::Ready(frame),
            Err(error) => Poll::Ready(Some(Err(status::to_status(&error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. The place is free before the client can see the end: who asks again then finds it.
#[derive(Debug)]
struct Leaving {
    body: Body,
    place: Option<Place>,
}

impl http_body::Body for Leaving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.place = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
