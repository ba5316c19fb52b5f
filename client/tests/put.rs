//! Puts: only what is needed travels, and the report says what became of each page.

mod fake;

use bytes::Bytes;
use cairn_client::{ErrorKind, PageSource, PutOptions, Result};
use cairn_core::{Durability, NotStored, PageOutcome};
use fake::{Fake, PAGE_BYTES, PART_BYTES, chain, kind, page};

#[tokio::test(start_paused = true)]
async fn a_put_stores_the_bytes_of_every_page() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 5);
    let report = namespace.put_prefix(&chain, page, PutOptions::default()).await.unwrap();
    assert_eq!((report.good_pages, report.stored(), report.needed_pages), (5, 5, 5));
    assert_eq!(report.durability, Some(Durability::Memory));
    for i in 0..5 {
        assert_eq!(fake.with(|state| state.pages[chain.key(i).unwrap()].clone()), page(i));
    }
}

#[tokio::test(start_paused = true)]
async fn only_pages_that_the_server_lacks_are_asked_for_and_sent() {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 4);
    fake.holds(&chain, 2);
    let mut asked = Vec::new();
    let source = |i| {
        asked.push(i);
        page(i)
    };
    let report = namespace.put_prefix(&chain, source, PutOptions::default()).await.unwrap();
    assert_eq!(asked, [2, 3]);
    assert_eq!((report.good_pages, report.stored(), report.present()), (4, 2, 2));
    assert!(fake.with(|state| state.parts.iter().all(|(page, _, _)| *page >= 2)));
}

#[tokio::test(start_paused = true)]
async fn parts_are_as_long_as_the_server_allows_and_in_order() {
    let (fake, namespace) = Fake::opened().await;
    namespace.put_prefix(&chain(&namespace, 1), page, PutOptions::default()).await.unwrap();
    let part = PART_BYTES as u64;
    let expected = [(0, 0, 300), (0, part, 300), (0, 2 * part, 300), (0, 3 * part, PAGE_BYTES - 900)];
    assert_eq!(fake.with(|state| state.parts.clone()), expected);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_the_wrong_length_is_refused_and_named() {
    let (_fake, namespace) = Fake::opened().await;
    let short = |i: usize| page(i).slice(..PAGE_BYTES - usize::from(i == 1));
    let error = namespace.put_prefix(&chain(&namespace, 3), short, PutOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.context().contains("page=1"), "{error}");
}

struct Failing;

impl PageSource for Failing {
    fn page(&mut self, _: usize) -> Result<Bytes> {
        Err(cairn_client::Error::new(ErrorKind::Internal, "the disk is gone"))
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_source_is_the_result_of_the_put() {
    let (_fake, namespace) = Fake::opened().await;
    let ended = namespace.put_prefix(&chain(&namespace, 1), Failing, PutOptions::default()).await;
    assert_eq!(ended.unwrap_err().context(), "the disk is gone");
}

#[tokio::test(start_paused = true)]
async fn a_put_that_the_server_ends_early_is_reported_page_by_page() {
    let (fake, namespace) = Fake::opened().await;
    fake.with(|state| state.put_ends_after = Some(2));
    let report = namespace.put_prefix(&chain(&namespace, 40), page, PutOptions::default()).await.unwrap();
    assert_eq!((report.good_pages, report.stored()), (2, 2));
    assert_eq!(report.first_missing(), Some(NotStored::Deadline));
    assert_eq!(report.outcomes[2..], [PageOutcome::NotStored(NotStored::Deadline); 38]);

    fake.with(|state| (state.put_ends_after, state.pages) = (Some(0), Default::default()));
    let nothing = namespace.put_prefix(&chain(&namespace, 3), page, PutOptions::default()).await.unwrap();
    assert_eq!((nothing.good_pages, nothing.durability), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_put_of_no_pages_is_answered() {
    let (_fake, namespace) = Fake::opened().await;
    let report = namespace.put_prefix(&chain(&namespace, 0), page, PutOptions::default()).await.unwrap();
    assert_eq!((report.good_pages, report.outcomes.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_put_whose_connection_breaks_is_not_repeated() {
    let (fake, namespace) = Fake::opened().await;
    let cutting = {
        let fake = fake.clone();
        move |i| {
            if i == 1 {
                fake.cut();
            }
            page(i)
        }
    };
    let ended = namespace.put_prefix(&chain(&namespace, 8), cutting, PutOptions::default()).await;
    assert_eq!(kind(ended), ErrorKind::Unavailable);
    assert_eq!(fake.count("put_prefix"), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_can_be_spawned() {
    let (_fake, namespace) = Fake::opened().await;
    let put = async move {
        let chain = chain(&namespace, 1);
        namespace.put_prefix(&chain, page, PutOptions::default()).await.unwrap();
        let mut memory = vec![0; PAGE_BYTES];
        namespace.get_prefix_into(&chain, Default::default(), &mut memory).await.unwrap().good_pages
    };
    assert_eq!(tokio::spawn(put).await.unwrap(), 1);
}
