//! Keys and names: the same everywhere, and refused when they can not be right.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use std::process::Command;
use std::time::Duration;

use cairn_core::{
    ByteSize, ChainFault, NamespaceId, PageInputs, PageKey, ServerSecret, Span, TenantId, chain_from_engine_hashes,
    chain_from_tokens, usable_pages,
};

const NAMESPACE: NamespaceId = NamespaceId::from_bytes([5; 32]);

fn some_keys() -> String {
    let tokens: Vec<u32> = (0..80).collect();
    let inputs = [PageInputs { page: 2, digest: vec![1, 2, 3] }];
    let chain = chain_from_tokens(&NAMESPACE, &tokens, 16, &inputs).expect("a chain");
    chain.iter().map(PageKey::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn case_29_two_processes_with_other_locales_and_hash_seeds_compute_the_same_keys() {
    if std::env::var_os("CAIRN_PRINT_KEYS").is_some() {
        println!("keys={}", some_keys());
        return;
    }
    for (locale, seed) in [("C", "0"), ("tr_TR.UTF-8", "1"), ("ar_EG.UTF-8", "random")] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "case_29_two_processes_with_other_locales_and_hash_seeds_compute_the_same_keys",
                "--nocapture",
            ])
            .env("CAIRN_PRINT_KEYS", "1")
            .env("LC_ALL", locale)
            .env("PYTHONHASHSEED", seed)
            .output()
            .expect("it runs");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(printed.contains(&format!("keys={}", some_keys())), "{locale}: {printed}");
    }
}

#[test]
fn a_key_stands_for_everything_before_it() {
    let chain =
        |tokens: &[u32], inputs: &[PageInputs]| chain_from_tokens(&NAMESPACE, tokens, 4, inputs).expect("a chain");
    let base = chain(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[]);
    assert_eq!(base.len(), 2, "an incomplete last page has no key");
    assert_eq!(base, chain(&[1, 2, 3, 4, 5, 6, 7, 8], &[]));
    let other_head = chain(&[0, 2, 3, 4, 5, 6, 7, 8], &[]);
    assert_ne!(base[1], other_head[1], "the same page after another prefix");
    let with_image = chain(&[1, 2, 3, 4, 5, 6, 7, 8], &[PageInputs { page: 0, digest: vec![9] }]);
    assert!(base[0] != with_image[0] && base[1] != with_image[1]);
    let other_namespace = chain_from_tokens(&NamespaceId::from_bytes([6; 32]), &[1, 2, 3, 4], 4, &[]).expect("a chain");
    assert_ne!(base[0], other_namespace[0]);
}

#[test]
fn extra_inputs_out_of_order_beyond_the_chain_or_too_long_are_refused() {
    let input = |page, bytes| PageInputs { page, digest: vec![0; bytes] };
    for inputs in
        [vec![input(1, 8), input(0, 8)], vec![input(0, 8), input(0, 8)], vec![input(2, 8)], vec![input(0, 257)]]
    {
        let refused = chain_from_tokens(&NAMESPACE, &[0; 8], 4, &inputs);
        assert!(matches!(refused, Err(ChainFault::Inputs { .. })), "{inputs:?}");
    }
}

#[test]
fn engine_hashes_of_16_to_64_bytes_are_taken_and_8_byte_ones_refused() {
    for bytes in [16, 20, 32, 64] {
        assert!(PageKey::of_engine_hash(&NAMESPACE, &vec![7; bytes]).is_ok());
    }
    for bytes in [0, 8, 15, 65] {
        let refused = chain_from_engine_hashes(&NAMESPACE, [&[7; 32][..], &vec![7; bytes][..]]);
        assert_eq!(refused, Err(ChainFault::EngineHashBytes { bytes }));
    }
}

#[test]
fn a_request_can_not_use_the_page_that_ends_with_its_last_token() {
    assert_eq!(usable_pages(1024, 16), 63);
    assert_eq!(usable_pages(1025, 16), 64);
    assert_eq!(usable_pages(0, 16), 0);
    assert_eq!(usable_pages(u64::MAX, 0), u64::MAX - 1, "no panic on nonsense");
}

#[test]
fn tenants_have_salts_of_their_own_that_only_the_secret_gives() {
    let salt = |secret: u8, tenant: &str| {
        ServerSecret::from_bytes([secret; 32]).tenant_salt(&TenantId::new(tenant).expect("a name"))
    };
    assert_eq!(salt(1, "a"), salt(1, "a"));
    assert_ne!(salt(1, "a"), salt(1, "b"));
    assert_ne!(salt(1, "a"), salt(2, "a"));
    for name in ["", "A", "a b", "a/b", &"a".repeat(65)] {
        assert!(TenantId::new(name).is_err(), "{name:?}");
    }
    assert_eq!(format!("{:?}", salt(1, "a")), "TenantSalt(..)", "never printed");
}

#[test]
fn sizes_and_durations_read_as_people_write_them() {
    for (text, bytes) in
        [("0", 0), ("4096", 4096), ("64MiB", 64 << 20), ("1.5 GiB", 3 << 29), ("10TB", 10_000_000_000_000)]
    {
        assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
    }
    for text in ["", "MiB", "-1", "1XB", "99999999999TiB", "1e30GiB", "nan"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
    assert_eq!(ByteSize(64 << 20).to_string(), "64MiB");
    assert_eq!(ByteSize(1000).to_string(), "1000B");
    for (text, millis) in [("250ms", 250), ("1.5s", 1500), ("5m", 300_000), ("0", 0)] {
        assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
    }
    assert!("5".parse::<Span>().is_err(), "a duration needs a unit");
}
