//! What `kvctl` does with a server: every command against a real `cairnd`, its exit code, and JSON that a program can read.
//!
//! Needs `cairnd` beside the test's own build: `cargo build --release -p cairn-server`.

#![allow(clippy::unwrap_used, reason = "a test stands on it")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Bytes of a page of the template.
const PAGE_BYTES: u64 = 2 << 20;
/// Four pages of it, and eight.
const FOUR: &str = "0..64";
const EIGHT: &str = "0..128";

/// A server on a folder of its own, and an identity file to ask it with. Gone when dropped.
struct Served {
    child: Child,
    /// Kept open, so that the server can go on writing to it.
    _log: BufReader<ChildStderr>,
    address: String,
    identity: String,
    folder: TempDir,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(cairnd());
        command.env_clear().args(["--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path().join("data"));
        let small = [
            "server.metrics_listen=127.0.0.1:0",
            "dram.bytes=32MiB",
            "dram.arena_bytes=16MiB",
            "ssd.bytes=65MiB",
            "ssd.region_bytes=32MiB",
            "limits.page_bytes_max=4MiB",
        ];
        command.args(small.iter().flat_map(|set| ["--set", set]));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(": serving ") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "cairnd ended before it served");
        }
        let address = line.split(' ').find_map(|word| word.strip_prefix("address=")).unwrap().to_owned();
        let identity = folder.path().join("identity.json");
        std::fs::write(&identity, Command::new(kvctl()).args(["identity", "template"]).output().unwrap().stdout)
            .unwrap();
        Self { child, _log: log, address, identity: identity.to_str().unwrap().to_owned(), folder }
    }

    fn kvctl(&self, args: &[&str]) -> Output {
        Command::new(kvctl()).args(args).args(["--server", &self.address]).output().unwrap()
    }

    /// A command about the pages of some tokens.
    fn about(&self, command: &str, tokens: &str, more: &[&str]) -> Output {
        self.kvctl(&[&[command, "--identity", &self.identity, "--tokens", tokens], more].concat())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A command about a data folder whose server is stopped.
fn stopped(command: &str, folder: &Path, more: &[&str]) -> Output {
    Command::new(kvctl()).arg(command).arg("--data-folder").arg(folder).args(more).output().unwrap()
}

/// Flips a bit of the payload in a slot of the first region.
fn flip_bit(data: &Path, slot: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(data.join("ssd/pages")).unwrap();
    let at = 65_536 + 4096 + slot * (PAGE_BYTES + 4096) + 4096 + 99;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn kvctl() -> &'static str {
    env!("CARGO_BIN_EXE_kvctl")
}

fn cairnd() -> PathBuf {
    let path = Path::new(kvctl()).with_file_name("cairnd");
    assert!(path.is_file(), "build it first: cargo build --release -p cairn-server");
    path
}

/// The exit code, with what was said if it is not the one expected.
#[track_caller]
fn exits(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", out(output), String::from_utf8_lossy(&output.stderr));
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What a command with `--json` printed, all of it.
#[track_caller]
fn json(output: &Output, code: i32) -> Value {
    exits(output, code);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", out(output)))
}

#[test]
fn a_server_is_pinged_and_tells_what_it_is() {
    let served = Served::start();
    let ping = json(&served.kvctl(&["ping", "--count", "3", "--json"]), 0);
    assert_eq!((ping["health"].as_str(), ping["calls"].as_u64()), (Some("serving"), Some(3)));
    assert!(ping["rtt_us"]["median"].as_u64() <= ping["rtt_us"]["max"].as_u64());
    let stats = json(&served.kvctl(&["stats", "--json"]), 0);
    assert_eq!(stats["server"]["boot_id"], ping["boot_id"]);
    assert_eq!(stats["dram"]["capacity_bytes"].as_u64(), Some(32 << 20));
    let text = served.kvctl(&["stats"]);
    exits(&text, 0);
    for word in ["cairn ", "dram", "ssd", "recovery"] {
        assert!(out(&text).contains(word), "{word}: {}", out(&text));
    }
    let none = served.kvctl(&["namespaces"]);
    exits(&none, 0);
    assert!(out(&none).contains("no namespaces yet"));
}

#[test]
fn the_budget_shows_the_drives_wear_or_why_it_is_not_known() {
    let served = Served::start();
    let budget = json(&served.kvctl(&["budget", "--json"]), 0);
    let (drive, unknown) = (&budget["drive"], &budget["drive_unknown"]);
    assert!(drive.is_object() || unknown.is_string(), "{budget}");
    let text = served.kvctl(&["budget"]);
    exits(&text, 0);
    assert!(out(&text).contains("drive wear"), "{}", out(&text));
}

#[test]
fn pages_are_put_matched_got_verified_and_listed() {
    let served = Served::start();
    let missing = json(&served.about("match", FOUR, &["--json"]), 1);
    assert_eq!((missing["pages"].as_u64(), missing["stop"].as_str()), (Some(0), Some("not_stored")));

    let put = json(&served.about("put", FOUR, &["--random", "--durability", "ssd", "--json"]), 0);
    assert_eq!((put["stored"].as_u64(), put["durability"].as_str()), (Some(4), Some("ssd")));
    let again = json(&served.about("put", FOUR, &["--random", "--json"]), 0);
    assert_eq!((again["stored"].as_u64(), again["present"].as_u64()), (Some(0), Some(4)));

    let matched = json(&served.about("match", FOUR, &["--json"]), 0);
    assert_eq!((matched["pages"].as_u64(), matched["tokens"].as_u64()), (Some(4), Some(64)));
    let usable = json(&served.about("match", FOUR, &["--request-tokens", "64", "--json"]), 0);
    assert_eq!((usable["pages"].as_u64(), usable["pages_beyond"].as_u64()), (Some(3), Some(1)));

    let file = served.path("pages");
    let got = json(&served.about("get", FOUR, &["--verify", "--to", &file, "--json"]), 0);
    assert_eq!((got["good_pages"].as_u64(), got["read_pages"].as_u64()), (Some(4), Some(4)));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * PAGE_BYTES);
    let short = json(&served.about("get", EIGHT, &["--json"]), 1);
    assert_eq!((short["good_pages"].as_u64(), short["stop"].as_str()), (Some(4), Some("not_stored")));
    let rest = json(&served.about("get", FOUR, &["--first-page", "3", "--json"]), 0);
    assert_eq!((rest["good_pages"].as_u64(), rest["read_pages"].as_u64()), (Some(4), Some(1)));

    // The bytes of other pages, which is what --verify is there to find.
    exits(&served.about("put", "900..964", &["--from", &file]), 0);
    exits(&served.about("get", "900..964", &[]), 0);
    exits(&served.about("get", "900..964", &["--verify"]), 5);

    let listed = json(&served.kvctl(&["namespaces", "--json"]), 0);
    assert_eq!((listed["namespaces"].as_array().unwrap().len(), listed["omitted"].as_u64()), (1, Some(0)));
    assert_eq!(listed["namespaces"][0]["namespace"], put["namespace"]);
    assert_eq!(listed["namespaces"][0]["dram_pages"].as_u64(), Some(8));
    for text in [served.kvctl(&["namespaces"]), served.about("match", FOUR, &[]), served.about("get", FOUR, &[])] {
        exits(&text, 0);
        assert!(out(&text).contains(&put["namespace"].as_str().unwrap()[..12]), "{}", out(&text));
    }
}

#[test]
fn a_namespace_is_cleared_by_its_id_or_the_start_of_it() {
    let served = Served::start();
    let put = json(&served.about("put", FOUR, &["--random", "--json"]), 0);
    let id = put["namespace"].as_str().unwrap();
    let cleared = json(&served.kvctl(&["clear", &id[..10], "--json"]), 0);
    assert_eq!((cleared["namespace"].as_str(), cleared["pages"].as_u64()), (Some(id), Some(4)));
    exits(&served.about("match", FOUR, &[]), 1);
    let text = served.kvctl(&["clear", id]);
    exits(&text, 0);
    assert!(out(&text).contains("dropped 0 pages"), "{}", out(&text));

    let unknown = served.kvctl(&["clear", &"0".repeat(64), "--json"]);
    exits(&unknown, 2);
    let told: Value = serde_json::from_slice(&unknown.stderr).unwrap();
    assert!(told["hint"].as_str().unwrap().contains("kvctl namespaces"), "{told}");
    exits(&served.kvctl(&["clear", "00000000"]), 2);
}

#[test]
fn a_server_that_has_gone_is_told_from_one_that_answers() {
    let mut served = Served::start();
    exits(&served.kvctl(&["ping", "--count", "1"]), 0);
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    exits(&served.kvctl(&["ping", "--count", "1"]), 3);
    exits(&served.about("put", FOUR, &["--random"]), 3);
}

#[test]
fn a_verification_of_a_running_server_finds_damage_and_its_slot_is_listed_and_released() {
    let served = Served::start();
    json(&served.about("put", FOUR, &["--random", "--durability", "ssd", "--json"]), 0);
    let clean = json(&served.kvctl(&["verify", "--json"]), 0);
    assert_eq!((clean["clean"].as_bool(), clean["pages"].as_u64()), (Some(true), Some(4)));
    assert_eq!(clean["bytes"].as_u64(), Some(4 * PAGE_BYTES));
    let namespaces = json(&served.kvctl(&["namespaces", "--json"]), 0);
    let id = &namespaces["namespaces"][0]["namespace"].as_str().unwrap()[..12];
    flip_bit(&served.folder.path().join("data"), 1);
    let found = served.kvctl(&["verify", "--namespace", id, "--rate", "1GiB"]);
    exits(&found, 1);
    for line in ["whole       3 pages", "damaged     1 page, dropped"] {
        assert!(out(&found).contains(line), "{line}: {}", out(&found));
    }
    json(&served.kvctl(&["verify", "--json"]), 0);
    // A slot is in quarantine a moment after its page was dropped.
    let mut listed = json(&served.kvctl(&["quarantine", "list", "--json"]), 0);
    for _ in 0..100 {
        if listed["slots"].as_array().is_some_and(|slots| !slots.is_empty()) {
            break;
        }
        listed = json(&served.kvctl(&["quarantine", "list", "--json"]), 0);
    }
    assert_eq!(listed["writes_taken"].as_bool(), Some(true));
    let slot = &listed["slots"][0];
    assert_eq!((slot["region"].as_u64(), slot["offset"].as_u64()), (Some(0), Some(PAGE_BYTES + 4096)));
    assert_eq!(slot["damage"].as_str(), Some("payload"));
    exits(&served.kvctl(&["quarantine", "release"]), 2);
    let released = served.kvctl(&["quarantine", "release", "--slots", "--writes"]);
    exits(&released, 0);
    assert!(out(&released).starts_with("1 slot in use again"), "{}", out(&released));
}

#[test]
fn a_scrub_is_asked_for_and_shows_in_scrub_and_in_stats_with_the_write_amplification() {
    let served = Served::start();
    json(&served.about("put", FOUR, &["--random", "--durability", "ssd", "--json"]), 0);
    let before = json(&served.kvctl(&["scrub", "--json"]), 0);
    assert_eq!((before["period_seconds"].as_u64(), before["passes"].as_u64()), (Some(604_800), Some(0)));
    exits(&served.kvctl(&["scrub", "--rate", "1MiB"]), 2);
    exits(&served.kvctl(&["scrub", "--now", "--rate", "0"]), 0);
    let mut scrub = json(&served.kvctl(&["scrub", "--json"]), 0);
    for _ in 0..100 {
        if scrub["passes"].as_u64() == Some(1) {
            break;
        }
        scrub = json(&served.kvctl(&["scrub", "--json"]), 0);
    }
    assert_eq!((scrub["passes"].as_u64(), scrub["damaged"].as_u64()), (Some(1), Some(0)));
    let text = served.kvctl(&["scrub"]);
    assert!(out(&text).contains("everything once in 7 d 00 h, at 64.0 MiB/s at most"), "{}", out(&text));
    let stats = json(&served.kvctl(&["stats", "--json"]), 0);
    assert_eq!(stats["flash"]["page_bytes"].as_u64(), Some(4 * PAGE_BYTES));
    let amplification = stats["flash"]["write_amplification"].as_f64().unwrap();
    assert!((1.0..1.02).contains(&amplification), "{amplification}");
    let text = served.kvctl(&["stats"]);
    for word in ["amplification 1.0", "oldest unverified page"] {
        assert!(out(&text).contains(word), "{word}: {}", out(&text));
    }
}

#[test]
fn a_stopped_folder_is_verified_and_rebuilt_and_one_in_use_is_left_alone() {
    let mut served = Served::start();
    let data = served.folder.path().join("data");
    json(&served.about("put", FOUR, &["--random", "--durability", "ssd", "--json"]), 0);
    for refused in [stopped("verify", &data, &[]), stopped("rebuild", &data, &["--yes"])] {
        exits(&refused, 3);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by another server"));
    }
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let clean = json(&stopped("verify", &data, &["--json"]), 0);
    assert_eq!((clean["clean"].as_bool(), clean["pages"]["whole"].as_u64()), (Some(true), Some(4)));
    flip_bit(&data, 3);
    let found = stopped("verify", &data, &[]);
    exits(&found, 1);
    assert!(out(&found).contains("region 0 slot 3: payload page "), "{}", out(&found));
    exits(&stopped("rebuild", &data, &[]), 2);
    exits(&stopped("rebuild", &data, &["--yes"]), 0);
    let lost = json(&stopped("verify", &data, &["--json"]), 1);
    assert_eq!(lost["pages"]["without_entry"].as_u64(), Some(3));
    // Without a folder it says what to do.
    let told = Command::new(kvctl()).arg("rebuild").output().unwrap();
    exits(&told, 2);
    assert!(String::from_utf8_lossy(&told.stderr).contains("stop the server"));
}
