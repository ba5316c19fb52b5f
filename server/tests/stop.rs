//! A stop lets calls end, waits for nobody who never will, and leaves the folder to the next server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use std::time::Duration;

use cairn_proto::v1;
use cairn_server::{Closed, Server};
use house::*;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Longer than any test: a stop that takes all of its grace hangs the test.
const AGES: Duration = Duration::from_secs(600);

/// A put of one page that has begun and waits for the page.
async fn put_begun(house: &mut House) -> (mpsc::Sender<v1::PutPrefixRequest>, Streaming<v1::PutPrefixResponse>) {
    let namespace = house.namespace(&identity(4096)).await;
    let begin = begin(&namespace, &keys(&namespace, 1), v1::Durability::Ssd);
    let (send, receive) = mpsc::channel(4);
    send.send(put_step(PutStep::Begin(begin))).await.unwrap();
    let mut answers = house.cairn.put_prefix(ReceiverStream::new(receive)).await.unwrap().into_inner();
    answers.message().await.unwrap();
    (send, answers)
}

/// Asks for the server's health until it says that it is stopping.
async fn until_stopping(address: std::net::SocketAddr) {
    while !http_get(address, "/healthz").await.contains("\"status\":\"stopping\"") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_ends_as_it_would_have_and_the_stop_is_seen_from_outside_meanwhile() {
    let mut house = House::open().await;
    let (send, mut answers) = put_begun(&mut house).await;
    let House { running, folder, .. } = house;
    let metrics_address = running.metrics_address();
    let stop = tokio::spawn(running.stop(AGES));
    until_stopping(metrics_address).await;
    for part in all_parts(1, 4096) {
        send.send(put_step(PutStep::Part(part))).await.unwrap();
    }
    drop(send);
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        all.push(answer.step.unwrap());
    }
    assert_eq!((totals(&all).good_pages, totals(&all).durability()), (1, v1::Durability::Ssd));
    stop.await.unwrap();

    let mut house = House::open_in(folder, &[]).await;
    let namespace = house.namespace(&identity(4096)).await;
    assert_eq!(house.get(get(&namespace, &keys(&namespace, 1))).await.unwrap().0.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_end_is_cut_off_and_the_folder_is_let_go_of_only_if_the_storage_was_closed() {
    for grace in [Duration::ZERO, Duration::from_secs(2)] {
        let mut house = House::open().await;
        let (send, mut answers) = put_begun(&mut house).await;
        let House { running, folder, .. } = house;
        let closed = running.stop(grace).await;
        while let Ok(Some(_)) = answers.message().await {}
        drop(send);
        match Server::start(settings(folder.path())).await {
            Ok(_) => assert_eq!(closed, Closed::Orderly),
            Err(refused) => {
                assert_eq!(closed, Closed::Abandoned);
                assert!(refused.to_string().contains("in use by another server"), "{refused}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_the_health_or_has_connected_and_says_nothing_does_not_hold_up_a_stop() {
    let house = House::open().await;
    let address = house.running.address();
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut watched = Vec::new();
    for service in ["", "cairn.v1.Cairn"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut statuses = HealthClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        assert_eq!(statuses.message().await.unwrap().unwrap().status, ServingStatus::Serving as i32);
        watched.push(statuses);
    }
    let _silent = TcpStream::connect(address).await.unwrap();
    house.running.stop(AGES).await;
    for mut statuses in watched {
        assert_eq!(statuses.message().await.unwrap().unwrap().status, ServingStatus::NotServing as i32);
        assert!(!matches!(statuses.message().await, Ok(Some(_))));
    }
}
