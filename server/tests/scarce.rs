//! What the system has too little of: page memory (F26) and open files (F27). Who is served stays served, who is not ends in time or waits,
//! and when there is enough again, all is as before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, reason = "tests")]

mod house;

use std::io::BufRead;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_core::{Durability, NamespaceId, NotStored, PageKey, PageOutcome};
use cairn_proto::v1::cairn_client::CairnClient;
use cairn_proto::{namespace_id, v1};
use cairn_testkit::dice::Dice;
use cairn_testkit::trials::Rig;
use house::process::{Serving, cairnd, serving};
use house::*;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

const MEMORY_PRESSURE: Rig = Rig {
    name: "F26 memory pressure",
    target: "-p cairn-server --test scarce -- --nocapture f26_",
    trials: 300,
    nightly: 10_000,
    each: 1,
};
const FILE_EXHAUSTION: Rig = Rig {
    name: "F27 too few files",
    target: "-p cairn-server --test scarce -- --nocapture f27_",
    trials: 50,
    nightly: 1_000,
    each: 1,
};
/// The memory of [`settings`] holds sixteen of them.
const PAGE_BYTES: u64 = 1 << 20;
const FRAMES: usize = 16;
/// Files that a server may open when it has enough.
const FILES_ENOUGH: u64 = 4096;

/// A server in this process whose memory is to be filled.
struct Tight {
    house: House,
    namespace: NamespaceId,
    /// A chain that is on the SSD.
    stored: Vec<PageKey>,
    chains: u32,
    // Last: the server needs it to the end.
    runtime: Runtime,
}

/// A put that has sent half of its page, and so holds a frame, or waits for one.
struct HalfPut {
    send: mpsc::Sender<v1::PutPrefixRequest>,
    answers: Streaming<v1::PutPrefixResponse>,
}

impl Tight {
    fn open() -> Self {
        let runtime = Runtime::new().unwrap();
        let (house, namespace, stored) = runtime.block_on(async {
            let mut house = House::open().await;
            let namespace = house.namespace(&identity(PAGE_BYTES)).await;
            let stored = chain_of(&namespace, 0, 2);
            let begin = begin(&namespace, &stored, v1::Durability::Ssd);
            house.put(begin, all_parts(2, PAGE_BYTES)).await.unwrap();
            (house, namespace, stored)
        });
        Self { house, namespace, stored, chains: 0, runtime }
    }

    fn next_chain(&mut self) -> Vec<PageKey> {
        self.chains += 1;
        chain_of(&self.namespace, self.chains, 1)
    }

    async fn half_put(&mut self, timeout_ms: u64) -> HalfPut {
        let chain = self.next_chain();
        let begin = v1::PutBegin { timeout_ms, ..begin(&self.namespace, &chain, v1::Durability::Memory) };
        let (send, receive) = mpsc::channel(4);
        send.send(put_step(PutStep::Begin(begin))).await.unwrap();
        send.send(put_step(PutStep::Part(halves().swap_remove(0)))).await.unwrap();
        let answers = self.house.cairn.put_prefix(ReceiverStream::new(receive)).await.unwrap().into_inner();
        HalfPut { send, answers }
    }

    /// Reads what is on the SSD: some of it, as memory allows, and right.
    async fn read_stored(&mut self) -> Result<(), String> {
        let request = v1::GetPrefixRequest { timeout_ms: 50, ..get(&self.namespace, &self.stored) };
        let (pages, done) = self.house.get(request).await.map_err(|refused| refused.to_string())?;
        let right = pages.iter().zip(0..).all(|(found, number)| *found == page(number, PAGE_BYTES));
        let stop = done.stop();
        let known = matches!(
            stop,
            v1::StopReason::EndOfChain | v1::StopReason::NoSpace | v1::StopReason::Deadline | v1::StopReason::NotStored
        );
        if right && known { Ok(()) } else { Err(format!("I1: right={right} {stop:?}")) }
    }
}

fn halves() -> Vec<v1::PagePart> {
    parts(0, &page(0, PAGE_BYTES), PAGE_BYTES as usize / 2)
}

impl HalfPut {
    /// Sends the rest, and says what became of the page.
    async fn finish(mut self) -> Option<PageOutcome> {
        // A put that is over takes nothing more.
        self.send.send(put_step(PutStep::Part(halves().swap_remove(1)))).await.ok();
        drop(self.send);
        let mut all = Vec::new();
        while let Some(answer) = self.answers.message().await.unwrap() {
            all.push(answer.step.unwrap());
        }
        outcomes(&all).first().map(|(_, outcome)| *outcome)
    }
}

#[test]
fn f26_memory_that_is_all_in_use_delays_or_refuses_and_loses_nothing() {
    MEMORY_PRESSURE.run(Tight::open, |tight, _, dice| {
        let (handle, halves) = (tight.runtime.handle().clone(), FRAMES / 2 + dice.place(FRAMES));
        handle.block_on(press(tight, halves, dice))
    });
}

async fn press(tight: &mut Tight, halves: usize, dice: &mut Dice) -> Result<(), String> {
    let mut puts = Vec::new();
    for _ in 0..halves {
        // Some have no time to wait for a frame.
        let timeout_ms = if dice.place(4) == 0 { 20 } else { 0 };
        puts.push(tight.half_put(timeout_ms).await);
    }
    tight.read_stored().await?;
    let late = tight.next_chain();
    let late = v1::PutBegin { timeout_ms: 20, ..begin(&tight.namespace, &late, v1::Durability::Memory) };
    let answers = tight.house.put(late, all_parts(1, PAGE_BYTES)).await.map_err(|refused| refused.to_string())?;
    is_expected(outcomes(&answers).first().map(|(_, outcome)| *outcome))?;
    // In any order, some finish and some go away.
    while !puts.is_empty() {
        let put = puts.swap_remove(dice.place(puts.len()));
        if dice.place(2) == 0 {
            is_expected(put.finish().await)?;
        }
    }
    tight.house.until("only whole pages take memory", is_quiet).await;
    let (stored, deadline) = (tight.next_chain(), v1::Durability::Memory);
    let answers = tight.house.put(begin(&tight.namespace, &stored, deadline), all_parts(1, PAGE_BYTES)).await;
    match totals(&answers.map_err(|refused| refused.to_string())?).good_pages {
        1 => Ok(()),
        _ => Err("I7: a put is not stored although there is room again".to_owned()),
    }
}

fn is_expected(outcome: Option<PageOutcome>) -> Result<(), String> {
    match outcome {
        Some(PageOutcome::Stored(_) | PageOutcome::NotStored(NotStored::Deadline | NotStored::NoSpace)) => Ok(()),
        other => Err(format!("I2: a put ended with {other:?}")),
    }
}

/// I5: nothing but pages takes memory, and nobody is being served but who asks.
fn is_quiet(stats: &v1::StatsResponse) -> bool {
    let dram = stats.dram.as_ref().unwrap();
    dram.used_bytes == dram.pages * PAGE_BYTES && dram.queued_pages == 0
}

/// A server process that may open few files.
struct Poor {
    pid: Pid,
    api: SocketAddr,
    metrics: SocketAddr,
    cairn: CairnClient<Channel>,
    namespace: NamespaceId,
    chains: u32,
    /// Times that the log said that connections can not be accepted.
    complaints: Arc<AtomicU64>,
    runtime: Runtime,
    _server: Serving,
    _folder: tempfile::TempDir,
}

impl Poor {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (server, log, line) = serving(&mut cairnd(folder.path()));
        let (api, metrics) = (said_in(&line, "address="), said_in(&line, "metrics_address="));
        let complaints = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&complaints);
        std::thread::spawn(move || {
            let lines = log.lines().map_while(Result::ok);
            lines.filter(|line| line.contains("can not be accepted")).for_each(|_| {
                heard.fetch_add(1, Ordering::SeqCst);
            });
        });
        let runtime = Runtime::new().unwrap();
        let (cairn, namespace) = runtime.block_on(async {
            let channel = Channel::from_shared(format!("http://{api}")).unwrap().connect().await.unwrap();
            let mut cairn = CairnClient::new(channel);
            let request = v1::OpenNamespaceRequest { identity: Some((&identity(4096)).into()) };
            let opened = cairn.open_namespace(request).await.unwrap().into_inner();
            (cairn, namespace_id(&opened.namespace_id).unwrap())
        });
        let pid = Pid::from_child(&server.0);
        let (chains, _server, _folder) = (0, server, folder);
        Self { pid, api, metrics, cairn, namespace, chains, complaints, runtime, _server, _folder }
    }

    fn open_files(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid.as_raw_nonzero())).unwrap().count() as u64
    }

    fn allow(&self, files: u64) {
        let limit = Rlimit { current: Some(files), maximum: Some(FILES_ENOUGH) };
        prlimit(Some(self.pid), Resource::Nofile, limit).unwrap();
    }

    /// A page is put, kept for good, and read: over the connection that there is.
    async fn serves(&mut self) -> Result<(), String> {
        self.chains += 1;
        let keys = chain_of(&self.namespace, self.chains, 1);
        let begin = begin(&self.namespace, &keys, v1::Durability::Ssd);
        let answers = put(&mut self.cairn, begin, all_parts(1, 4096)).await.map_err(|refused| refused.to_string())?;
        if outcomes(&answers) != [(0, PageOutcome::Stored(Durability::Ssd))] {
            return Err(format!("a put ended with {:?}", outcomes(&answers)));
        }
        let got = get_pages(&mut self.cairn, get(&self.namespace, &keys)).await;
        match got.map_err(|refused| refused.to_string())?.0.as_slice() {
            [found] if *found == page(0, 4096) => Ok(()),
            _ => Err("I1: the page is not what was put".to_owned()),
        }
    }
}

#[test]
fn f27_a_server_that_may_open_no_more_files_serves_who_is_there_and_recovers() {
    FILE_EXHAUSTION.run(Poor::open, |poor, _, dice| {
        let handle = poor.runtime.handle().clone();
        handle.block_on(exhaust(poor, 1 + dice.below(12)))
    });
}

/// `spare`: files that it may still open.
async fn exhaust(poor: &mut Poor, spare: u64) -> Result<(), String> {
    poor.serves().await?;
    let (before, complaints) = (poor.open_files(), poor.complaints.load(Ordering::SeqCst));
    poor.allow(before + spare);
    let mut crowd = Vec::new();
    for _ in 0..spare + 4 {
        crowd.push(TcpStream::connect(poor.api).await.map_err(|failed| failed.to_string())?);
    }
    while poor.complaints.load(Ordering::SeqCst) == complaints {
        tokio::task::yield_now().await;
    }
    poor.serves().await.map_err(|failed| format!("without files: {failed}"))?;
    let people = crowd.len() as u64;
    drop(crowd);
    // Still with as few files: those that went away have left theirs.
    if !http_get(poor.metrics, "/healthz").await.contains("serving") {
        return Err("I7: it does not serve when files are free again".to_owned());
    }
    poor.allow(FILES_ENOUGH);
    while poor.open_files() != before {
        tokio::task::yield_now().await;
    }
    // At most once for each connection that was accepted in between, on each of the two ports.
    let said = poor.complaints.load(Ordering::SeqCst) - complaints;
    if said > 2 * (people + 2) { Err(format!("the log was flooded: {said} lines")) } else { Ok(()) }
}

/// Runs `cairnd` with a limit of open files that it can not raise.
fn with_files(files: u64, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""));
    shell.arg(command.get_program()).args(command.get_args()).env_clear();
    shell
}

#[test]
fn a_server_that_can_not_open_the_files_of_its_memory_says_so_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    // Eight arenas, each of them a file.
    let output = with_files(26, cairnd(folder.path()).args(["--set", "dram.arena_bytes=1MiB"])).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cairnd: ") && said.contains("Too many open files"), "{said}");
}

#[test]
fn a_server_takes_no_more_connections_than_leave_files_for_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, _log, line) = serving(&mut with_files(300, &cairnd(folder.path())));
    let (api, metrics) = (said_in(&line, "address="), said_in(&line, "metrics_address="));
    Runtime::new().unwrap().block_on(async {
        let mut crowd = Vec::new();
        for _ in 0..30 {
            crowd.push(TcpStream::connect(api).await.unwrap());
        }
        // 300 less 256 for itself, 2 arenas and 32 connections of the metrics port: ten are taken, and the others closed at once.
        let refused = "cairn_connections_refused_total{port=\"api\"} 20\n";
        while !http_get(metrics, "/metrics").await.contains(refused) {
            tokio::task::yield_now().await;
        }
    });
}

/// An address that the server named when it began to serve.
fn said_in(line: &str, name: &str) -> SocketAddr {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok()).unwrap()
}
