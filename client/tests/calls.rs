//! Repetition, deadlines and restarts: what a caller may rely on when the server is away, slow or new.

mod fake;

use std::time::Duration;

use cairn_client::{Client, ClientOptions, Error, ErrorKind, MatchOptions, PutOptions};
use cairn_core::{Declared, KeyScheme};
use fake::{Act, Fake, chain, identity, kind, namespace_id, page};
use tokio::time::Instant;

fn overloaded(retry_after: Duration) -> Act {
    Act::Fail(Error::new(ErrorKind::Overloaded { retry_after }, "full"))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_up_late_is_found() {
    let (fake, client) = Fake::start();
    fake.with(|state| state.refuse_connections = 3);
    let namespace = client.open_namespace(&identity()).await.unwrap();
    assert_eq!(namespace.id(), namespace_id(0));
    assert_eq!(fake.with(|state| state.connections), 4);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_tried_a_few_times_and_named() {
    let (fake, client) = Fake::start();
    fake.with(|state| state.refuse_connections = u32::MAX);
    let error = client.open_namespace(&identity()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("http://fake"), "{}", error.chain());
    assert!(error.chain().contains("refused"), "{}", error.chain());
    assert_eq!(fake.with(|state| state.connections), 4);
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_called_again_after_the_time_it_asks_for() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 2);
    fake.holds(&chain, 1);
    fake.will(overloaded(Duration::from_secs(2)));
    let started = Instant::now();
    let matched = namespace.match_prefix(&chain, MatchOptions::default()).await.unwrap();
    assert_eq!(matched.pages, 1);
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert_eq!(fake.count("match"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_call_is_not_begun() {
    let (fake, namespace) = Fake::opened().await;
    fake.will(overloaded(Duration::from_secs(60)));
    let started = Instant::now();
    let ended = namespace.match_prefix(&chain(&namespace, 1), MatchOptions::default()).await;
    assert!(matches!(kind(ended), ErrorKind::Overloaded { .. }));
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_can_never_succeed_is_not_repeated() {
    let (fake, namespace) = Fake::opened().await;
    fake.will(Act::Fail(Error::invalid("no")));
    let ended = namespace.match_prefix(&chain(&namespace, 1), MatchOptions::default()).await;
    assert_eq!(kind(ended), ErrorKind::Invalid);
    assert_eq!(fake.count("match"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_does_not_hang_its_client() {
    let (fake, namespace) = Fake::opened().await;
    fake.will(Act::Hang);
    let options = MatchOptions { timeout: Some(Duration::from_secs(3)), ..Default::default() };
    let started = Instant::now();
    let ended = namespace.match_prefix(&chain(&namespace, 1), options).await;
    assert_eq!(kind(ended), ErrorKind::Deadline);
    let grace = ClientOptions::new("").grace;
    assert!((3.0..3.1 + grace.as_secs_f64()).contains(&started.elapsed().as_secs_f64()));
    fake.will(Act::Hang);
    assert_eq!(
        kind(namespace.put_prefix(&chain(&namespace, 1), page, PutOptions::default()).await),
        ErrorKind::Deadline
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_fallen_silent_ends_its_calls_before_their_time() {
    // Takes the connection and never says a word, as a machine that has lost its power.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ClientOptions {
        timeout: Duration::from_secs(60),
        retries_max: 0,
        ..ClientOptions::new(silent.local_addr().unwrap().to_string())
    };
    let client = Client::connect(options).await.unwrap();
    let started = Instant::now();
    assert_eq!(kind(client.stats().await), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_server_is_told_the_time_that_is_left_and_no_more_than_it_allows() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 1);
    for seconds in [0, 5, 600] {
        let options = MatchOptions { timeout: Some(Duration::from_secs(seconds)), ..Default::default() };
        namespace.match_prefix(&chain, options).await.unwrap();
    }
    assert_eq!(fake.with(|state| state.timeouts_ms.clone()), [1, 5000, 60_000]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_the_server_lost_is_opened_again() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 2);
    fake.holds(&chain, 2);
    fake.with(|state| (state.known, state.boot) = (None, 9));
    assert_eq!(namespace.match_prefix(&chain, MatchOptions::default()).await.unwrap().pages, 2);
    assert_eq!(fake.count("open_namespace"), 2);
    assert_eq!(namespace.boot_id().as_bytes(), &[9; 16]);

    fake.with(|state| state.known = None);
    let report = namespace.put_prefix(&chain, page, PutOptions::default()).await.unwrap();
    assert_eq!((report.good_pages, report.present()), (2, 2));
    fake.with(|state| state.known = None);
    let get = namespace.get_prefix(&chain, cairn_client::GetOptions::default()).await.unwrap();
    assert_eq!(get.end().await.good_pages, 2);
}

#[tokio::test(start_paused = true)]
async fn many_calls_that_find_a_namespace_lost_open_it_once() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 1);
    fake.with(|state| state.known = None);
    let calls = (0..8).map(|_| {
        let (namespace, chain) = (namespace.clone(), chain.clone());
        tokio::spawn(async move { namespace.match_prefix(&chain, MatchOptions::default()).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(fake.count("open_namespace"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_refused_again_after_opening_is_an_error() {
    let (fake, namespace) = Fake::opened().await;
    for _ in 0..2 {
        fake.will(Act::Fail(Error::new(ErrorKind::Fenced, "gone")));
        fake.with(|state| state.acts.push_back(Act::Fail(Error::new(ErrorKind::Fenced, "gone"))));
    }
    let ended = namespace.match_prefix(&chain(&namespace, 1), MatchOptions::default()).await;
    assert_eq!(kind(ended), ErrorKind::Fenced);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_a_namespace_that_came_back_with_another_id_is_refused_until_made_again() {
    let (fake, namespace) = Fake::opened().await;
    let old = chain(&namespace, 1);
    fake.with(|state| (state.known, state.next_id) = (None, 5));
    assert_eq!(kind(namespace.match_prefix(&old, MatchOptions::default()).await), ErrorKind::Fenced);
    assert_eq!(namespace.id(), namespace_id(5));
    let new = chain(&namespace, 1);
    assert_ne!(old.key(0), new.key(0));
    namespace.match_prefix(&new, MatchOptions::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_engine_hashes_outlives_the_id_of_its_namespace() {
    let (fake, client) = Fake::start();
    let keys = KeyScheme::EngineHash { algorithm: "sha256".to_owned(), seed: Declared::None };
    let namespace = client.open_namespace(&cairn_core::Identity { keys, ..identity() }).await.unwrap();
    let hashes = [[1u8; 32], [2; 32]];
    let chain = namespace.chain_of_engine_hashes(hashes.iter().map(|hash| &hash[..])).unwrap();
    fake.holds(&chain, 1);
    fake.with(|state| (state.known, state.next_id) = (None, 5));
    assert_eq!(namespace.match_prefix(&chain, MatchOptions::default()).await.unwrap().pages, 1);
}

#[tokio::test(start_paused = true)]
async fn a_put_is_repeated_only_if_it_has_not_begun() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 1);
    fake.will(Act::Fail(Error::new(ErrorKind::Unavailable, "going down")));
    assert_eq!(kind(namespace.put_prefix(&chain, page, PutOptions::default()).await), ErrorKind::Unavailable);
    assert_eq!(fake.count("put_prefix"), 1);

    fake.cut();
    // Lets the client see that its connection is gone.
    tokio::time::advance(Duration::from_millis(1)).await;
    fake.with(|state| state.refuse_connections = 2);
    fake.will(overloaded(Duration::from_millis(10)));
    let report = namespace.put_prefix(&chain, page, PutOptions::default()).await.unwrap();
    assert_eq!(report.good_pages, 1);
    assert_eq!(fake.count("put_prefix"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_new_server_process_is_noticed() {
    let (fake, client) = Fake::start();
    assert_eq!(client.boot_id(), None);
    client.stats().await.unwrap();
    client.stats().await.unwrap();
    assert_eq!((client.boot_id().unwrap().as_bytes(), client.restarts_seen()), (&[0; 16], 0));
    fake.with(|state| state.boot = 1);
    client.stats().await.unwrap();
    assert_eq!((client.boot_id().unwrap().as_bytes(), client.restarts_seen()), (&[1; 16], 1));
}

#[tokio::test(start_paused = true)]
async fn mistakes_are_found_before_anything_is_sent() {
    let (fake, client) = Fake::start();
    let refused = cairn_core::Identity { page_bytes: 1, ..identity() };
    assert_eq!(kind(client.open_namespace(&refused).await), ErrorKind::Invalid);
    assert_eq!(fake.with(|state| state.connections), 0);

    let namespace = client.open_namespace(&identity()).await.unwrap();
    let too_long: Vec<u32> = (0..65 * fake::PAGE_TOKENS).collect();
    assert_eq!(kind(namespace.chain_of_tokens(&too_long, &[])), ErrorKind::Invalid);
    assert_eq!(kind(namespace.chain_of_engine_hashes([&[0; 32][..]])), ErrorKind::Invalid);

    let keys = KeyScheme::EngineHash { algorithm: "sha256".to_owned(), seed: Declared::None };
    let hashed = client.open_namespace(&cairn_core::Identity { keys, ..identity() }).await.unwrap();
    assert_eq!(kind(hashed.chain_of_tokens(&[1, 2, 3, 4], &[])), ErrorKind::Invalid);
    assert_eq!(kind(hashed.chain_of_engine_hashes([&[0; 8][..]])), ErrorKind::Invalid);
    assert_eq!(kind(hashed.chain_of_engine_hashes([&[0; 16][..], &[1; 32]])), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_are_none_are_refused() {
    for wrong in ["", "http://", "ftp://host:1", "http://a b", "https://host:1"] {
        let made = Client::connect(ClientOptions::new(wrong)).await;
        assert_eq!(kind(made), ErrorKind::Invalid, "{wrong:?}");
    }
    Client::connect(ClientOptions::new("localhost:7420")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn clearing_reports_the_pages_dropped() {
    let (fake, client) = Fake::start();
    let namespace = client.open_namespace(&identity()).await.unwrap();
    fake.holds(&chain(&namespace, 3), 3);
    assert_eq!(client.clear(&namespace.id()).await.unwrap(), 3);
    assert_eq!(kind(client.clear(&namespace_id(77)).await), ErrorKind::Fenced);
}

#[tokio::test(start_paused = true)]
async fn a_verification_goes_on_over_as_many_calls_as_it_takes_and_counts_all_of_them() {
    let (fake, client) = Fake::start();
    fake.with(|state| state.acts.push_back(overloaded(Duration::from_secs(1))));
    let mut verification = client.verify(None, 0);
    let mut heard = Vec::new();
    while let Some(verified) = verification.next().await.unwrap() {
        heard.push((verified.counts.pages, verified.counts.damaged, verified.done));
    }
    assert_eq!(heard, [(1, 0, false), (3, 0, false), (5, 1, true)]);
    assert_eq!(fake.with(|state| state.calls.iter().filter(|call| **call == "verify").count()), 3);
    assert!(client.scrub_now(Some(7)).await.unwrap().asked && !client.scrub().await.unwrap().asked);
    assert_eq!(client.release(true, false).await.unwrap().released_slots, 1);
}
