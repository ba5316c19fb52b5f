//! `cairnd` as an operator meets it: exit codes, one line about what is wrong, and a stop on SIGTERM.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use std::io::Read;
use std::process::Output;

use house::process::{cairnd, serving};
use rustix::process::{Pid, Signal, kill_process};

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn settings_are_checked_and_printed_without_starting() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let checked = cairnd(&data).arg("--check-config").output().unwrap();
    assert!(checked.status.success());
    let printed = cairnd(&data).arg("--print-config").output().unwrap();
    assert!(String::from_utf8_lossy(&printed.stdout).contains("[dram]\nbytes = \"8MiB\"\n"));
    let refused = cairnd(&data).args(["--set", "dram.byts=1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(error(&refused).contains("did you mean dram.bytes?"));
    let small = cairnd(&data).args(["--ssd", "4MiB", "--check-config"]).output().unwrap();
    assert_eq!(small.status.code(), Some(2));
    assert!(error(&small).contains("ssd.bytes = 4MiB is too small"), "{}", error(&small));
    assert!(!data.exists());
}

#[test]
fn a_second_server_on_a_folder_is_refused_and_sigterm_stops_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut log, _) = serving(&mut cairnd(folder.path()));
    let second = cairnd(folder.path()).args(["--log-level", "error"]).output().unwrap();
    assert_eq!(second.status.code(), Some(3));
    assert!(error(&second).contains("in use by another server"), "{}", error(&second));
    kill_process(Pid::from_child(&first.0), Signal::TERM).unwrap();
    assert!(first.0.wait().unwrap().success());
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("stopped"), "{rest}");
}

#[test]
fn a_json_log_is_one_object_a_line_with_fields() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut log, line) = serving(cairnd(folder.path()).args(["--set", "log.format=json"]));
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((said["level"].as_str(), said["fields"]["message"].as_str()), (Some("INFO"), Some("serving")));
    let address: std::net::SocketAddr = said["fields"]["address"].as_str().unwrap().parse().unwrap();
    std::net::TcpStream::connect(address).unwrap();
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    for line in rest.lines() {
        let said: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(said["fields"]["message"].is_string(), "{line}");
    }
}

#[test]
fn a_folder_of_another_version_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("FORMAT"), "something else").unwrap();
    let refused = cairnd(folder.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(4));
    assert!(error(&refused).contains("was not touched"), "{}", error(&refused));
}
