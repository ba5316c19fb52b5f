//! What `kvctl` does without a server: arguments, identity files, completions, and what it says when there is no server.

#![allow(clippy::unwrap_used, reason = "a test stands on it")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn kvctl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvctl")).args(args).env_remove("CAIRN_SERVER").output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Writes the template to `path`, changed by replacing text.
fn identity(path: &Path, changes: &[(&str, &str)]) -> String {
    let mut text = out(&kvctl(&["identity", "template"]));
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    std::fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn wrong_arguments_exit_with_2_and_say_what_is_wrong() {
    for args in [
        &["nonsense"][..],
        &["match"],
        &["put", "--identity", "x", "--tokens", "1"],
        &["put", "--identity", "x", "--tokens", "1", "--random", "--from", "y"],
        &["match", "--identity", "x", "--tokens", "1", "--hashes", "y"],
        &["ping", "--count", "0"],
        &["ping", "--timeout", "10"],
        &["stats", "--server", "http://"],
        &["clear", "not-hex"],
    ] {
        let output = kvctl(args);
        assert_eq!(code(&output), Some(2), "{args:?}: {}", err(&output));
        assert!(err(&output).starts_with("error:"), "{args:?}: {}", err(&output));
    }
}

#[test]
fn help_documents_the_exit_codes() {
    let help = kvctl(&["--help"]);
    assert_eq!(code(&help), Some(0));
    for line in [
        "0  all is well",
        "1  miss",
        "2  the command",
        "3  the server can not be reached",
        "4  the time",
        "5  the server failed",
    ] {
        assert!(out(&help).contains(line), "{line}");
    }
}

#[test]
fn a_server_that_is_not_there_exits_with_3_and_says_what_to_do() {
    // Nothing listens on the port of a listener that is gone.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("127.0.0.1:{port}");
    let text = kvctl(&["stats", "--server", &server]);
    assert_eq!(code(&text), Some(3), "{}", err(&text));
    assert!(err(&text).contains(&server) && err(&text).contains("hint: start it with `cairnd`"), "{}", err(&text));
    let json = kvctl(&["stats", "--json", "--server", &server]);
    let told: serde_json::Value = serde_json::from_str(&err(&json)).unwrap();
    assert_eq!((told["exit"].as_str(), code(&json)), (Some("unreachable"), Some(3)));
}

#[test]
fn a_server_that_says_nothing_exits_with_4() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let output = kvctl(&["stats", "--timeout", "50ms", "--server", &server]);
    assert_eq!(code(&output), Some(4), "{}", err(&output));
}

#[test]
fn the_template_is_a_complete_identity() {
    let folder = tempfile::tempdir().unwrap();
    let file = identity(&folder.path().join("a.json"), &[]);
    let checked = kvctl(&["identity", "check", &file]);
    assert_eq!(code(&checked), Some(0), "{}", err(&checked));
    let json = kvctl(&["identity", "check", &file, "--json"]);
    let digest = serde_json::from_str::<serde_json::Value>(&out(&json)).unwrap()["digest"].as_str().unwrap().to_owned();
    assert_eq!(digest.len(), 64);
    assert!(out(&checked).contains(&digest));
}

#[test]
fn an_identity_comes_through_standard_input_too() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvctl"))
        .args(["identity", "check", "@-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&kvctl(&["identity", "template"]).stdout).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn missing_and_misspelt_fields_are_named_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = identity(
        &folder.path().join("a.json"),
        &[("\"dtype\"", "\"dtyp\""), ("\"page_tokens\": 16", "\"page_tokens\": -1")],
    );
    let checked = kvctl(&["identity", "check", &file]);
    assert_eq!(code(&checked), Some(2));
    for words in ["dtype: missing", "dtyp: no such field", "page_tokens: invalid value"] {
        assert!(err(&checked).contains(words), "{words}: {}", err(&checked));
    }
}

#[test]
fn bf16_and_fp8_state_of_one_model_differ_and_the_fields_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let bf16 = identity(&folder.path().join("bf16.json"), &[]);
    let fp8 = identity(&folder.path().join("fp8.json"), &[("\"bf16\"", "\"fp8_e4m3\""), ("2097152", "1048576")]);
    let differ = kvctl(&["identity", "diff", &bf16, &fp8]);
    assert_eq!(code(&differ), Some(1), "{}", err(&differ));
    let told = out(&differ);
    assert!(told.starts_with("2 fields differ"), "{told}");
    for words in ["dtype", "bf16", "fp8_e4m3", "page_bytes", "2097152", "1048576"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let same = kvctl(&["identity", "diff", &bf16, &bf16]);
    assert_eq!(code(&same), Some(0));
    assert!(out(&same).contains("the same identity"));
}

#[test]
fn files_are_checked_before_the_server_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = identity(&folder.path().join("a.json"), &[]);
    let output = kvctl(&["match", "--identity", &file, "--tokens", "1,zwei", "--server", "127.0.0.1:1"]);
    assert_eq!(code(&output), Some(2));
    assert!(err(&output).contains("zwei"), "{}", err(&output));
    let output = kvctl(&["match", "--identity", "/nowhere.json", "--tokens", "1", "--server", "127.0.0.1:1"]);
    assert_eq!(code(&output), Some(2));
    assert!(err(&output).contains("/nowhere.json"), "{}", err(&output));
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = kvctl(&["completions", shell]);
        assert_eq!(code(&output), Some(0), "{shell}");
        assert!(out(&output).contains("kvctl"), "{shell}");
    }
}
