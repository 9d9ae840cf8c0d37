//! Functions as gRPC calls: each side sends one message or a stream.

use axum::extract::Request as HttpRequest;
use axum::routing::{MethodRouter, post};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use prost::Message;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// Longest message of a controller, bytes.
pub const MOST_BYTES: usize = 4 << 20;

/// Answers as a stream.
pub(crate) type Answers<A> = BoxStream<'static, Result<A, Status>>;

/// Adapter for tonic of a function whose request, a message or a stream, is `T`.
struct Call<W>(W);

fn grpc<Q, A>() -> Grpc<ProstCodec<A, Q>>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MOST_BYTES)
}

impl<W, Q, A, F> UnaryService<Q> for Call<W>
where
    W: FnMut(Q) -> F,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = BoxFuture<'static, Result<Response<A>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let work = (self.0)(request.into_inner());
        Box::pin(async { work.await.map(Response::new) })
    }
}

impl<W, Q, A, F> ServerStreamingService<Q> for Call<W>
where
    W: FnMut(Q) -> F,
    F: Future<Output = Result<Answers<A>, Status>> + Send + 'static,
{
    type Response = A;
    type ResponseStream = Answers<A>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let work = (self.0)(request.into_inner());
        Box::pin(async { work.await.map(Response::new) })
    }
}

impl<W, Q, A, F> StreamingService<Q> for Call<W>
where
    W: FnMut(Streaming<Q>) -> F,
    F: Future<Output = Result<Answers<A>, Status>> + Send + 'static,
{
    type Response = A;
    type ResponseStream = Answers<A>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Self::Future {
        let work = (self.0)(request.into_inner());
        Box::pin(async { work.await.map(Response::new) })
    }
}

/// A call with one request and one answer.
pub(crate) fn unary<W, Q, A, F>(work: W) -> MethodRouter
where
    W: FnMut(Q) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<A, Status>> + Send + 'static,
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    post(move |request: HttpRequest| async move { grpc::<Q, A>().unary(Call(work), request).await })
}

/// A call with one request and a stream of answers.
pub(crate) fn answers<W, Q, A, F>(work: W) -> MethodRouter
where
    W: FnMut(Q) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Answers<A>, Status>> + Send + 'static,
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    post(move |request: HttpRequest| async move {
        grpc::<Q, A>().server_streaming(Call(work), request).await
    })
}

/// A call with a stream of requests and a stream of answers.
pub(crate) fn streams<W, Q, A, F>(work: W) -> MethodRouter
where
    W: FnMut(Streaming<Q>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Answers<A>, Status>> + Send + 'static,
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    post(move |request: HttpRequest| async move {
        let mut call = grpc::<Q, A>();
        call.streaming(Call(work), request).await
    })
}
