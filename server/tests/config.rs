//! File, environment and flags: later ones win, unknown keys are refused wherever they stand, and the documentation is the table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::error::Error;
use std::ffi::OsString;

use cairn_server::config::{ConfigError, Flags, Settings, doc, load};

fn with_file(text: &str) -> Result<Settings, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    load(&Flags { config: Some(file.path().to_owned()), ..Flags::default() }, [])
}

fn with_variable(name: &str, value: &str) -> Result<Settings, ConfigError> {
    load(&Flags::default(), [(OsString::from(name), OsString::from(value))])
}

fn with_set(text: &str) -> Result<Settings, ConfigError> {
    load(&Flags { set: vec![text.to_owned()], ..Flags::default() }, [])
}

/// The error with its causes, in one line.
fn line(refused: Result<Settings, ConfigError>) -> String {
    let error = refused.unwrap_err();
    let cause = error.source().map(|cause| cause.to_string()).unwrap_or_default();
    format!("{error}: {cause}")
}

#[test]
fn the_defaults_are_valid() {
    Settings::default().validate().unwrap();
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[dram]\nbytes = \"2GiB\"\n[ssd]\nbytes = \"8GiB\"\nread_threads = 2\n").unwrap();
    let flags = Flags { config: Some(file.path().to_owned()), dram: Some("4GiB".into()), ..Flags::default() };
    let environment = [("CAIRN_DRAM_BYTES", "3GiB"), ("CAIRN_SSD_BYTES", "9GiB"), ("PATH", "/bin")];
    let settings = load(&flags, environment.map(|(name, value)| (name.into(), value.into()))).unwrap();
    assert_eq!((settings.dram.bytes.0 >> 30, settings.ssd.bytes.0 >> 30, settings.ssd.read_threads), (4, 9, 2));
}

#[test]
fn an_unknown_key_is_refused_wherever_it_stands_with_the_nearest_one() {
    assert!(line(with_file("[server]\nlisten_addr = \"127.0.0.1:1\"\n")).contains("unknown key server.listen_addr"));
    assert!(line(with_file("[server]\nlistne = \"127.0.0.1:1\"\n")).contains("did you mean server.listen?"));
    assert!(line(with_file("[drm]\nbytes = 1\n")).contains("unknown key drm; did you mean dram?"));
    assert!(line(with_variable("CAIRN_DRAM_BYTE", "1GiB")).contains("did you mean dram.bytes?"));
    assert!(line(with_variable("CAIRN_SSDBYTES", "1GiB")).contains("did you mean CAIRN_SSD_BYTES?"));
    assert!(line(with_set("ssd.write_behind=1GiB")).contains("unknown key ssd.write_behind"));
    assert!(line(with_set("log.levle=info")).contains("did you mean log.level?"));
}

#[test]
fn variables_of_other_programs_and_of_kubernetes_are_let_be() {
    for name in ["CAIRN_CACHE", "CAIRN_SERVER_PORT", "CAIRN_SERVER_SERVICE_HOST", "CAIRN_SERVER_PORT_7420_TCP_ADDR"] {
        assert_eq!(with_variable(name, "10.0.0.1").unwrap(), Settings::default(), "{name}");
    }
}

#[test]
fn a_value_out_of_range_is_refused_with_key_and_range() {
    assert!(line(with_set("ssd.read_threads=0")).contains("ssd.read_threads = 0 is out of range; it is from 1 to 256"));
    assert!(line(with_set("dram.bytes=lots")).contains("dram.bytes: not a size"));
    let conflict = line(with_set("dram.bytes=32MiB"));
    assert!(
        conflict.contains("dram.arena_bytes = 64MiB does not fit: it must be at most dram.bytes = 32MiB"),
        "{conflict}"
    );
    assert!(line(with_set("dram.arena_bytes=33554433")).contains("not a multiple of 4KiB"));
}

#[test]
fn a_write_budget_comes_from_drive_writes_or_from_bytes_and_years() {
    assert_eq!(Settings::default().endurance_plan(), None);
    let mut settings = with_set("endurance.dwpd=1").unwrap();
    settings.set("ssd.bytes", "3.84TB").unwrap();
    let plan = settings.endurance_plan().unwrap();
    assert_eq!(format!("{:.1} MB/s", plan.bytes_per_second() / 1e6), "44.4 MB/s");
    let mut by_bytes = with_set("endurance.tbw=7008TB").unwrap();
    by_bytes.set("endurance.bucket_days", "7").unwrap();
    assert_eq!(by_bytes.endurance_plan().unwrap().day_bytes(), plan.day_bytes());
    assert!(line(with_set("endurance.dwpd=0.5555")).contains("three decimals"));
    assert!(line(with_set("endurance.dwpd=101")).contains("from 0 to 100"));
    let file = "[endurance]\ndwpd = 0.55\ntbw = \"600TB\"\n";
    assert!(line(with_file(file)).contains("endurance.tbw"), "{}", line(with_file(file)));
    assert_eq!(with_file("[endurance]\ndwpd = 0.55\n").unwrap().endurance.dwpd.0, 550);
}

#[test]
fn sizes_that_can_not_hold_what_they_must_are_refused() {
    let flags = |ssd: &str| Flags { ssd: Some(ssd.into()), ..Flags::default() };
    let refused = line(load(&flags("64MiB"), []));
    assert!(refused.contains("ssd.bytes = 64MiB is too small") && refused.contains("at least 65600KiB"), "{refused}");
    load(&flags("65600KiB"), []).unwrap();
    assert!(line(with_set("limits.part_bytes_max=5MiB")).contains("limits.message_bytes_max = 5MiB is too small"));
    assert!(line(with_set("limits.chain_pages_max=90000")).contains("limits.chain_pages_max keys of 64B"));
    assert!(line(with_set("limits.request_bytes_max=4MiB")).contains("must be at most limits.request_bytes_max"));
}

#[test]
fn an_address_that_others_can_reach_is_refused_unless_it_is_allowed() {
    for address in ["0.0.0.0:7420", "10.1.2.3:7420", "[::]:7420"] {
        assert!(line(with_set(&format!("server.listen={address}"))).contains("insecure_routable"));
        assert!(line(with_set(&format!("server.metrics_listen={address}"))).contains("insecure_routable"));
        let flags = Flags { listen: Some(address.into()), insecure_routable: true, ..Flags::default() };
        assert!(load(&flags, []).unwrap().is_insecure());
    }
    assert!(!with_set("server.listen=[::1]:7420").unwrap().is_insecure());
}

#[test]
fn printed_settings_can_be_read_again() {
    let mut settings = Settings::default();
    settings.set("data.dir", "/tmp/a \"quoted\" folder").unwrap();
    settings.set("server.stop_grace", "0").unwrap();
    assert_eq!(with_file(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn the_documents_are_printed_from_the_tables() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    assert_eq!(read("CONFIG.md"), doc::config_doc(), "run: cairnd --print-config-doc > docs/CONFIG.md");
    assert_eq!(read("METRICS.md"), doc::metrics_doc(), "run: cairnd --print-metrics-doc > docs/METRICS.md");
}
