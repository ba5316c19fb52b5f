//! The write budget as a client and an operator see it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use cairn_core::{NamespaceId, PageKey, chain_from_tokens};
use cairn_proto::v1;
use house::*;

const PAGE_BYTES: u64 = 1 << 20;
const SSD: v1::Durability = v1::Durability::Ssd;

/// Two pages of a chain of its own.
fn keys(namespace: &NamespaceId, name: u32) -> Vec<PageKey> {
    let tokens: Vec<u32> = (0..2 * PAGE_TOKENS).map(|token| token + 1000 * name).collect();
    chain_from_tokens(namespace, &tokens, PAGE_TOKENS, &[]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn case_52_a_put_beyond_the_budget_stays_in_memory_says_why_and_a_restart_does_not_change_it() {
    // A tenth of 32 MiB a day: enough for two pages of 1 MiB, not for four.
    let budget = [("endurance.dwpd", "0.1")];
    let mut house = House::open_with(&budget).await;
    let namespace = house.namespace(&identity(PAGE_BYTES)).await;
    let durable = keys(&namespace, 1);
    let answers = house.put(begin(&namespace, &durable, SSD), all_parts(2, PAGE_BYTES)).await.unwrap();
    assert_eq!((totals(&answers).durability(), totals(&answers).kept_off()), (SSD, v1::KeptOff::Unspecified));
    for name in 2..4 {
        let keys = keys(&namespace, name);
        let answers = house.put(begin(&namespace, &keys, SSD), all_parts(2, PAGE_BYTES)).await.unwrap();
        let done = totals(&answers);
        assert_eq!((done.good_pages, done.stored, done.durability()), (2, 2, v1::Durability::Memory));
        assert_eq!(done.kept_off(), v1::KeptOff::BudgetSpent);
        assert_eq!(house.get(get(&namespace, &keys)).await.unwrap().0.len(), 2);
        if name == 2 {
            // The account, as `kvctl budget` shows it.
            let stats = house.stats().await.budget.unwrap();
            assert_eq!(
                (stats.policy.as_str(), stats.plan_day_bytes, stats.wear_source.as_str()),
                ("budget", (32 << 20) / 10, "ledger")
            );
            assert_eq!((stats.bucket_bytes, stats.plan_years), (7 * stats.plan_day_bytes, 5));
            assert!(stats.written_bytes > 2 * PAGE_BYTES && stats.written_bytes < 5 * PAGE_BYTES / 2, "{stats:?}");
            assert_eq!((stats.admitted_pages, stats.not_durable_pages), (2, 2));
            assert_eq!(stats.refused_pages, [v1::Count { reason: "budget_spent".into(), count: 2 }]);
            assert_eq!(stats.refused_bytes, [v1::Count { reason: "budget_spent".into(), count: 2 * PAGE_BYTES }]);
            assert!(stats.years_left.is_some());
            let metrics = house.http("/metrics").await;
            assert!(metrics.contains("cairn_ssd_refused_pages_total{reason=\"budget_spent\"} 2"), "{metrics}");
            house = House::open_in(house.stop().await, &budget).await;
            house.namespace(&identity(PAGE_BYTES)).await;
            assert_eq!(house.get(get(&namespace, &durable)).await.unwrap().0.len(), 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_budget_everything_is_written_and_counted() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(PAGE_BYTES)).await;
    let keys = keys(&namespace, 1);
    house.put(begin(&namespace, &keys, SSD), all_parts(2, PAGE_BYTES)).await.unwrap();
    let stats = house.stats().await.budget.unwrap();
    assert_eq!((stats.policy.as_str(), stats.plan_day_bytes, stats.bucket_bytes), ("all", 0, 0));
    assert!(stats.written_bytes > 2 * PAGE_BYTES && stats.years_left.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_is_not_asked_or_not_known_leaves_the_ledger_in_its_place_and_says_why() {
    let mut house = House::open().await;
    let stats = house.stats().await.budget.unwrap();
    assert_eq!((stats.drive, stats.drive_unknown.as_str()), (None, "ssd.health_program is empty"));
    assert_eq!(stats.wear_source, "ledger");
    assert!(house.http("/metrics").await.contains("cairn_ssd_drive_known 0"));
    // No program, or no drive that could be asked, whatever this machine has: the server is as it was, and there is a reason.
    let absent = house.folder.path().join("smartctl");
    let changes = [("ssd.health_program", absent.to_str().unwrap())];
    let mut house = House::open_in(house.stop().await, &changes).await;
    let has_reason = |stats: &v1::StatsResponse| {
        let budget = stats.budget.as_ref().unwrap();
        !budget.drive_unknown.is_empty() && budget.drive_unknown != "the drive is being asked for the first time"
    };
    house.until("the drive was asked in vain", has_reason).await;
    assert_eq!(house.stats().await.budget.unwrap().drive, None);
    house.stop().await;
}
