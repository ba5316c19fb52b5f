//! What is put can be got; what is wrong is refused and leaves nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use cairn_core::{Declared, Durability, ErrorKind, Identity, KeyScheme, NotStored, PageOutcome};
use cairn_proto::v1;
use house::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

const MEMORY: v1::Durability = v1::Durability::Memory;
const SSD: v1::Durability = v1::Durability::Ssd;

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_several_parts_come_back_as_they_were_put() {
    let mut house = House::open().await;
    let bytes = (3 << 20) / 2 + 8;
    let namespace = house.namespace(&identity(bytes)).await;
    let keys = keys(&namespace, 3);
    let answers = house.put(begin(&namespace, &keys, MEMORY), all_parts(3, bytes)).await.unwrap();
    assert_eq!(outcomes(&answers), [0, 1, 2].map(|page| (page, PageOutcome::Stored(Durability::Memory))));
    let done = totals(&answers);
    assert_eq!((done.good_pages, done.stored, done.present, done.not_stored), (3, 3, 0, 0));

    let matched = house.cairn.r#match(matching(&namespace, &keys)).await.unwrap().into_inner();
    assert_eq!((matched.pages, matched.tokens, matched.stop()), (3, 48, v1::StopReason::EndOfChain));
    let (pages, done) = house.get(get(&namespace, &keys)).await.unwrap();
    assert_eq!(pages, [0, 1, 2].map(|number| page(number, bytes).to_vec()));
    assert_eq!((done.good_pages, done.good_tokens, done.stop()), (3, 48, v1::StopReason::EndOfChain));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_there_need_not_be_sent_again_and_its_bytes_are_dropped_if_it_is() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 2);
    house.put(begin(&namespace, &keys[..1], MEMORY), all_parts(1, 4096)).await.unwrap();
    let answers = house.put(begin(&namespace, &keys, MEMORY), all_parts(2, 4096)).await.unwrap();
    let PutAnswer::Plan(plan) = &answers[0] else { panic!("the plan comes first") };
    assert_eq!(plan.needed, [v1::PageRun { first: 1, pages: 1 }]);
    let done = totals(&answers);
    assert_eq!((done.good_pages, done.stored, done.present), (2, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_gets_only_pages_that_it_can_use_and_starts_where_it_says() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 4);
    house.put(begin(&namespace, &keys, MEMORY), all_parts(4, 4096)).await.unwrap();
    // 48 tokens: the third page ends with the last of them, which must be computed anyway.
    let request = v1::GetPrefixRequest { max_tokens: 48, ..get(&namespace, &keys) };
    let (pages, done) = house.get(request).await.unwrap();
    assert_eq!((pages.len(), done.good_pages, done.stop()), (2, 2, v1::StopReason::MaxTokens));
    let request = v1::GetPrefixRequest { first_page: 4, ..get(&namespace, &keys) };
    let (pages, done) = house.get(request).await.unwrap();
    assert_eq!((pages.len(), done.good_pages, done.stop()), (0, 4, v1::StopReason::EndOfChain));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_on_the_ssd_is_there_after_a_restart_and_after_the_directory_was_damaged() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(8192)).await;
    let keys = keys(&namespace, 3);
    let answers = house.put(begin(&namespace, &keys, SSD), all_parts(3, 8192)).await.unwrap();
    assert_eq!((totals(&answers).good_pages, totals(&answers).durability()), (3, SSD));

    let mut house = House::open_in(house.stop().await, &[]).await;
    assert_eq!(house.stats().await.recovery.unwrap().mode, "directory");
    let (pages, _) = house.get(get(&namespace, &keys)).await.unwrap();
    assert_eq!(pages, [0, 1, 2].map(|number| page(number, 8192).to_vec()));

    let folder = house.stop().await;
    damage(&folder.path().join("directory"));
    let mut house = House::open_in(folder, &[]).await;
    house.until("it is rebuilt", is_rebuilt).await;
    assert_eq!(house.namespace(&identity(8192)).await, namespace);
    let (pages, _) = house.get(get(&namespace, &keys)).await.unwrap();
    assert_eq!(pages, [0, 1, 2].map(|number| page(number, 8192).to_vec()));
}

/// Overwrites every manifest below `folder`.
fn damage(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            damage(&path);
        } else if path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST") {
            std::fs::write(&path, vec![0xff; 4096]).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cleared_pages_are_gone() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 3);
    house.put(begin(&namespace, &keys, SSD), all_parts(3, 4096)).await.unwrap();
    let listed = house.admin.list_namespaces(v1::ListNamespacesRequest {}).await.unwrap().into_inner().namespaces;
    assert_eq!((listed.len(), listed[0].dram_pages, listed[0].ssd_pages), (1, 3, 3));
    assert_eq!(Identity::try_from(listed[0].identity.clone().unwrap()), Ok(identity(4096)));
    let request = v1::ClearRequest { namespace_id: namespace.as_bytes().to_vec() };
    assert_eq!(house.admin.clear(request).await.unwrap().into_inner().pages, 3);
    let (pages, done) = house.get(get(&namespace, &keys)).await.unwrap();
    assert_eq!((pages.len(), done.stop()), (0, v1::StopReason::NotStored));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_the_wrong_checksum_is_not_stored_and_neither_is_what_follows_it() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 3);
    let mut sent = all_parts(3, 4096);
    sent[1].seal = Some(v1::PageSeal { checksum: 1, tier: 0 });
    let answers = house.put(begin(&namespace, &keys, MEMORY), sent).await.unwrap();
    let expected = [
        (0, PageOutcome::Stored(Durability::Memory)),
        (1, PageOutcome::NotStored(NotStored::ChecksumMismatch)),
        (2, PageOutcome::NotStored(NotStored::ParentMissing)),
    ];
    assert_eq!(outcomes(&answers), expected);
    assert_eq!((totals(&answers).good_pages, totals(&answers).not_stored), (1, 2));
    let (pages, _) = house.get(get(&namespace, &keys)).await.unwrap();
    assert_eq!(pages.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_with_parts_out_of_order_or_of_the_wrong_length_is_refused_and_leaves_nothing() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(8192)).await;
    let keys = keys(&namespace, 2);
    let whole = page(0, 8192);
    let halves = parts(0, &whole, 4096);
    let long = page(0, 8193);
    let cases = [
        ("wrong length", parts(0, &whole.slice(..8191), 4096)),
        ("wrong length", parts(0, &long, 8193)),
        ("without gaps", vec![halves[1].clone()]),
        ("without gaps", vec![halves[0].clone(), halves[0].clone()]),
        ("without gaps", vec![halves[0].clone(), parts(1, &whole, 4096)[0].clone()]),
        ("within the chain", parts(2, &whole, 8192)),
        ("empty", vec![v1::PagePart { page: 0, ..Default::default() }]),
    ];
    for (what, sent) in cases {
        let error = refusal(house.put(begin(&namespace, &keys, MEMORY), sent).await);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.context().contains(what), "{what}: {error}");
    }
    house.until("every frame is back", |stats| stats.dram.as_ref().unwrap().used_bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_sent_out_of_order_are_refused() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 3);
    let sent = [all_parts(2, 4096), all_parts(1, 4096)].concat();
    let error = refusal(house.put(begin(&namespace, &keys, MEMORY), sent).await);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.context().contains("ascending order"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_names_a_page_twice_or_in_the_wrong_place_is_refused() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 3);
    house.put(begin(&namespace, &keys, MEMORY), all_parts(3, 4096)).await.unwrap();
    for wrong in [[keys[0], keys[0]], [keys[0], keys[2]]] {
        let error = refusal(house.cairn.r#match(matching(&namespace, &wrong)).await);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.context().contains("key list out of order"), "{error}");
        assert_eq!(refusal(house.get(get(&namespace, &wrong)).await).kind(), ErrorKind::Invalid);
        assert_eq!(refusal(house.put(begin(&namespace, &wrong, MEMORY), vec![]).await).kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_hashes_of_8_bytes_are_refused() {
    let mut house = House::open().await;
    let keys = KeyScheme::EngineHash { algorithm: "builtin hash".into(), seed: Declared::None };
    let namespace = house.namespace(&Identity { keys, ..identity(4096) }).await;
    let packed = v1::KeyChain { packed: vec![1; 8].into(), key_bytes: 8 };
    let chain = Some(v1::Chain { of: Some(v1::chain::Of::Keys(packed)) });
    let error = refusal(house.get(v1::GetPrefixRequest { chain, ..get(&namespace, &[]) }).await);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.context().contains("16 to 64 bytes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_in_the_middle_of_a_page_leaves_nothing() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(8192)).await;
    let keys = keys(&namespace, 1);
    let (send, receive) = mpsc::channel(4);
    send.send(put_step(PutStep::Begin(begin(&namespace, &keys, MEMORY)))).await.unwrap();
    send.send(put_step(PutStep::Part(parts(0, &page(0, 8192), 4096)[0].clone()))).await.unwrap();
    let answers = house.cairn.put_prefix(ReceiverStream::new(receive)).await.unwrap();
    house.until("a frame is taken", |stats| stats.dram.as_ref().unwrap().used_bytes > 0).await;
    drop((send, answers));
    house.until("the frame is back", |stats| stats.dram.as_ref().unwrap().used_bytes == 0).await;
    let matched = house.cairn.r#match(matching(&namespace, &keys)).await.unwrap().into_inner();
    assert_eq!(matched.pages, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_whose_client_falls_silent_ends_at_its_deadline_and_says_so() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(4096)).await;
    let keys = keys(&namespace, 2);
    house.put(begin(&namespace, &keys[..1], MEMORY), all_parts(1, 4096)).await.unwrap();
    let (send, receive) = mpsc::channel(4);
    let begin = v1::PutBegin { timeout_ms: 100, ..begin(&namespace, &keys, MEMORY) };
    send.send(put_step(PutStep::Begin(begin))).await.unwrap();
    let mut answers = house.cairn.put_prefix(ReceiverStream::new(receive)).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        all.push(answer.step.unwrap());
    }
    assert_eq!(totals(&all).good_pages, 1);
    assert!(outcomes(&all).contains(&(1, PageOutcome::NotStored(NotStored::Deadline))));
    drop(send);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_whose_client_does_not_read_ends_at_its_deadline_lets_go_of_its_pages_and_tells_the_length_it_sent() {
    let mut house = House::open().await;
    let bytes = 1 << 20;
    let namespace = house.namespace(&identity(bytes)).await;
    let keys = keys(&namespace, 12);
    let answers = house.put(begin(&namespace, &keys, MEMORY), all_parts(12, bytes)).await.unwrap();
    assert_eq!(totals(&answers).good_pages, 12);
    let request = v1::GetPrefixRequest { timeout_ms: 200, ..get(&namespace, &keys) };
    let mut steps = house.cairn.get_prefix(request).await.unwrap().into_inner();
    house.until("the get has ended", |stats| stats.traffic.as_ref().unwrap().gets == 1).await;
    // It keeps the place that its answer costs until that has been read.
    assert!(house.http("/metrics").await.contains("cairn_calls_in_flight 1"));
    let mut sealed = 0;
    loop {
        match steps.message().await.unwrap().expect("a last message").step.unwrap() {
            GetStep::Part(part) => sealed += u64::from(part.seal.is_some()),
            GetStep::Plan(plan) => assert_eq!(plan.pages, 12),
            GetStep::Done(done) => {
                assert_eq!((done.good_pages, done.stop()), (sealed, v1::StopReason::Deadline));
                assert!(sealed < 12);
                break;
            }
        }
    }
    assert!(steps.message().await.unwrap().is_none());
    assert!(house.http("/metrics").await.contains("cairn_calls_in_flight 0"));
}
