//! What the door and the decoders refuse, by name, without harm.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use std::time::Duration;

use cairn_core::{ErrorKind, NamespaceId};
use cairn_proto::{status, token_chain, v1};
use cairn_server::{Server, StartError};
use house::*;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test(flavor = "multi_thread")]
async fn case_30_an_identity_with_a_missing_field_is_refused_by_the_fields_name() {
    let mut house = House::open().await;
    let wire = v1::Identity { layout_version: None, ..(&identity(4096)).into() };
    let error = refusal(house.cairn.open_namespace(v1::OpenNamespaceRequest { identity: Some(wire) }).await);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.context().ends_with("field=identity.layout_version"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_no_byte_of_one_byte_and_of_more_than_the_limit_are_refused() {
    let mut house = House::open().await;
    for bytes in [0, 1, 1 << 40] {
        let request = v1::OpenNamespaceRequest { identity: Some((&identity(bytes)).into()) };
        let error = refusal(house.cairn.open_namespace(request).await);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.context().contains("page_bytes"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_nobody_opened_is_fenced_in_every_call() {
    let mut house = House::open().await;
    let unknown = NamespaceId::from_bytes([9; 32]);
    let keys = keys(&unknown, 2);
    let fenced = ErrorKind::Fenced;
    assert_eq!(refusal(house.cairn.r#match(matching(&unknown, &keys)).await).kind(), fenced);
    assert_eq!(refusal(house.get(get(&unknown, &keys)).await).kind(), fenced);
    assert_eq!(refusal(house.put(begin(&unknown, &keys, v1::Durability::Memory), vec![]).await).kind(), fenced);
    let request = v1::ClearRequest { namespace_id: unknown.as_bytes().to_vec() };
    assert_eq!(refusal(house.admin.clear(request).await).kind(), fenced);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_does_not_begin_with_begin_or_asks_for_no_durability_is_refused() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let first = tokio_stream::iter(vec![put_step(PutStep::Part(all_parts(1, 4096).remove(0)))]);
    let mut answers = house.cairn.put_prefix(first).await.unwrap().into_inner();
    assert_eq!(refusal(answers.message().await).kind(), ErrorKind::Invalid);
    let begin = begin(&namespace, &keys(&namespace, 1), v1::Durability::Unspecified);
    let error = refusal(house.put(begin, vec![]).await);
    assert!(error.context().contains("field=durability"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_may_not_ask_for_more_time_than_the_limit() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let request = v1::MatchRequest { timeout_ms: 3_600_000, ..matching(&namespace, &[]) };
    let error = refusal(house.cairn.r#match(request).await);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.context().contains("timeout_max=5m"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_or_a_chain_over_the_limit_is_refused_and_the_server_goes_on() {
    let changes =
        [("limits.message_bytes_max", "64KiB"), ("limits.part_bytes_max", "32KiB"), ("limits.chain_pages_max", "4")];
    let mut house = House::open_with(&changes).await;
    let namespace = house.namespace(&identity(4096)).await;
    let huge = v1::KeyChain { packed: vec![1; 1 << 20].into(), key_bytes: 32 };
    let chain = Some(v1::Chain { of: Some(v1::chain::Of::Keys(huge)) });
    let refused = house.cairn.r#match(v1::MatchRequest { chain, ..matching(&namespace, &[]) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    let error = refusal(house.cairn.r#match(matching(&namespace, &keys(&namespace, 5))).await);
    assert!(error.context().contains("chain_pages_max=4"), "{error}");
    let matched = house.cairn.r#match(matching(&namespace, &keys(&namespace, 4))).await.unwrap().into_inner();
    assert_eq!(matched.pages, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_name_the_same_pages_as_the_keys_made_of_them() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 3);
    house.put(begin(&namespace, &keys, v1::Durability::Memory), all_parts(3, 4096)).await.unwrap();
    let tokens: Vec<u32> = (0..4 * PAGE_TOKENS).collect();
    let chain = Some(token_chain(&tokens, &[]).unwrap());
    let matched = house.cairn.r#match(v1::MatchRequest { chain, ..matching(&namespace, &[]) }).await.unwrap();
    assert_eq!(matched.into_inner().pages, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_bytes_that_may_be_received_at_once_are_told_to_come_back() {
    let changes = [
        ("limits.message_bytes_max", "64KiB"),
        ("limits.request_bytes_max", "64KiB"),
        ("limits.part_bytes_max", "32KiB"),
        ("limits.chain_pages_max", "900"),
    ];
    let mut house = House::open_with(&changes).await;
    let namespace = house.namespace(&identity(30 << 10)).await;
    let (send, receive) = mpsc::channel(4);
    let begin = begin(&namespace, &keys(&namespace, 3), v1::Durability::Memory);
    send.send(put_step(PutStep::Begin(begin))).await.unwrap();
    let mut answers = house.cairn.put_prefix(ReceiverStream::new(receive)).await.unwrap().into_inner();
    answers.message().await.unwrap();
    for part in all_parts(3, 30 << 10) {
        send.send(put_step(PutStep::Part(part))).await.unwrap();
        answers.message().await.unwrap();
    }
    // The put has sent more than all that may be received at once, and counts as one message of the largest size until it ends.
    let error = refusal(house.cairn.r#match(matching(&namespace, &keys(&namespace, 1))).await);
    assert!(matches!(error.kind(), ErrorKind::Overloaded { .. }), "{error}");
    drop(send);
    while answers.message().await.unwrap().is_some() {}
    let matched = house.cairn.r#match(matching(&namespace, &keys(&namespace, 3))).await.unwrap().into_inner();
    assert_eq!(matched.pages, 3);
}

/// Sends bytes as they are, in place of a message.
#[derive(Clone, Copy, Default)]
struct RawBytes;

impl Codec for RawBytes {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawBytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(into, &bytes);
        Ok(())
    }
}

impl Decoder for RawBytes {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        bytes::Buf::advance(from, bytes::Buf::remaining(from));
        Ok(Some(()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_are_refused_and_the_server_goes_on() {
    let mut house = House::open().await;
    let address = format!("http://{}", house.running.address());
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    for call in ["OpenNamespace", "Match", "PutPrefix", "GetPrefix"] {
        let mut raw = tonic::client::Grpc::new(channel.clone());
        raw.ready().await.unwrap();
        let path = format!("/cairn.v1.Cairn/{call}").parse().unwrap();
        // Field 1, a length far beyond the end.
        let garbage = vec![0x0a, 0xff, 0xff, 0xff, 0x0f, 0x00];
        raw.unary(Request::new(garbage), path, RawBytes).await.unwrap_err();
    }
    let mut stream = tokio::net::TcpStream::connect(house.running.address()).await.unwrap();
    stream.write_all(&[0xff; 4096]).await.unwrap();
    house.namespace(&identity(4096)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_come_in_time_gives_its_place_back() {
    let mut house = House::open_with(&[("limits.calls_max", "1"), ("limits.timeout_default", "100ms")]).await;
    let address = format!("http://{}", house.running.address());
    let mut raw = tonic::client::Grpc::new(Channel::from_shared(address).unwrap().connect().await.unwrap());
    raw.ready().await.unwrap();
    let never = Request::new(tokio_stream::pending());
    let path = "/cairn.v1.Cairn/Match".parse().unwrap();
    let slow = raw.streaming(never, path, RawBytes).await.unwrap_err();
    assert_eq!(status::from_status(&slow).kind(), ErrorKind::Deadline);
    house.stats().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_too_many_is_told_when_to_come_back() {
    let mut house = House::open_with(&[("limits.puts_max", "1")]).await;
    let namespace = house.namespace(&identity(4096)).await;
    let (send, receive) = mpsc::channel(1);
    let begin = begin(&namespace, &keys(&namespace, 1), v1::Durability::Memory);
    send.send(put_step(PutStep::Begin(begin.clone()))).await.unwrap();
    let mut first = house.cairn.put_prefix(ReceiverStream::new(receive)).await.unwrap().into_inner();
    first.message().await.unwrap();
    let error = refusal(house.put(begin.clone(), vec![]).await);
    assert!(matches!(error.kind(), ErrorKind::Overloaded { retry_after } if retry_after > Duration::ZERO), "{error}");
    drop(send);
    while first.message().await.unwrap().is_some() {}
    house.put(begin, all_parts(1, 4096)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_too_many_is_closed() {
    let mut house = House::open_with(&[("limits.connections_max", "1")]).await;
    let address = format!("http://{}", house.running.address());
    let outcome = match Channel::from_shared(address).unwrap().connect().await {
        Err(_) => Err(()),
        Ok(channel) => {
            let mut second = cairn_proto::v1::admin_client::AdminClient::new(channel);
            second.stats(v1::StatsRequest {}).await.map(drop).map_err(drop)
        }
    };
    assert_eq!(outcome, Err(()));
    house.stats().await;
    let metrics = house.http("/metrics").await;
    assert!(metrics.contains("cairn_connections{port=\"api\"} 1"), "{metrics}");
    assert!(metrics.contains("cairn_connections_refused_total{port=\"api\"}"), "{metrics}");
    assert!(!metrics.contains("cairn_connections_refused_total{port=\"api\"} 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_shown() {
    let mut house = House::open().await;
    house.namespace(&identity(4096)).await;
    assert!(house.http("/healthz").await.contains("\"status\":\"serving\""));
    let metrics = house.http("/metrics").await;
    assert!(metrics.contains("cairn_calls_total{call=\"open_namespace\"} 1"), "{metrics}");
    assert!(metrics.contains("cairn_insecure 0"));
    let mut health = health_client(&house).await;
    let check = HealthCheckRequest { service: "cairn.v1.Cairn".into() };
    assert_eq!(health.check(check).await.unwrap().into_inner().status, 1);
    let check = HealthCheckRequest { service: "cairn.insecure".into() };
    assert_eq!(health.check(check).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routable_address_is_refused_unless_it_is_allowed_and_then_everyone_can_see_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    settings.set("server.listen", "0.0.0.0:0").unwrap();
    let refused = Server::start(settings).await.unwrap_err();
    assert!(matches!(&refused, StartError::Settings(_)), "{refused}");

    let mut house =
        House::open_in(folder, &[("server.listen", "0.0.0.0:0"), ("server.insecure_routable", "true")]).await;
    assert!(house.stats().await.server.unwrap().insecure);
    assert!(house.http("/healthz").await.contains("\"insecure\":true"));
    assert!(house.http("/metrics").await.contains("cairn_insecure 1"));
    let check = HealthCheckRequest { service: "cairn.insecure".into() };
    let shown = health_client(&house).await.check(check).await.unwrap().into_inner();
    assert_eq!(shown.status, 1);
}

async fn health_client(house: &House) -> HealthClient<Channel> {
    let address = format!("http://127.0.0.1:{}", house.running.address().port());
    HealthClient::new(Channel::from_shared(address).unwrap().connect().await.unwrap())
}
