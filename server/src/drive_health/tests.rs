//! A drive's wear from end to end, with a script in the program's place and a folder in that of sysfs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use prometheus::Registry;
use rustix::fs::{major, minor};
use tempfile::TempDir;

use super::*;

/// A clock that a test sets, in hours.
#[derive(Default, Debug)]
struct SetClock(Mutex<u64>);

impl Clock for SetClock {
    fn now(&self) -> Moment {
        Moment::from_start(Duration::from_secs(3600 * *self.0.lock()))
    }
}

/// A file on `nvme0n1`, and a program to ask it.
struct Drive {
    folder: TempDir,
    clock: Arc<SetClock>,
}

impl Drive {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, disk) = (folder.path().join("pages"), folder.path().join("nvme0n1"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&disk).unwrap();
        fs::create_dir_all(folder.path().join("dev/block")).unwrap();
        let number = fs::metadata(&file).unwrap().dev();
        symlink(disk, folder.path().join(format!("dev/block/{}:{}", major(number), minor(number)))).unwrap();
        Self { folder, clock: Arc::default() }
    }

    /// With a script for a program. Another process writes it: a file that this one has open can not be run while a thread forks.
    fn script(self, text: &str) -> Self {
        let mut install = Command::new("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(self.program()).stdin(Stdio::piped());
        let mut child = install.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        self
    }

    fn program(&self) -> std::path::PathBuf {
        self.folder.path().join("smartctl")
    }

    fn health(&self, deadline: Duration) -> Arc<DriveHealth> {
        let path = |name: &str| self.folder.path().join(name);
        let question = Question { file: path("pages"), program: Some(self.program()), sys: path(""), deadline };
        let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
        DriveHealth::new(question, self.clock.clone(), metrics)
    }

    /// Asks until there is an answer, good or bad.
    async fn asked(&self, deadline: Duration) -> (Arc<DriveHealth>, Look) {
        let health = self.health(deadline);
        assert_eq!(health.look().unknown.as_deref(), Some("the drive is being asked for the first time"));
        let watching = tokio::spawn(Arc::clone(&health).watch());
        while matches!(health.state.lock().unknown, Some(Unknown::NotYet)) {
            tokio::task::yield_now().await;
        }
        watching.abort();
        let look = health.look();
        (health, look)
    }

    /// Why there is no answer.
    async fn unknown(&self, deadline: Duration) -> String {
        let (_, look) = self.asked(deadline).await;
        assert_eq!(look.wear, None);
        look.unknown.unwrap()
    }
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

fn log(used_percent: u64, written_bytes: Option<u64>) -> HealthLog {
    HealthLog { used_percent, written_bytes, spare_percent: Some(100), critical_warning: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_is_asked_at_the_start_and_what_it_tells_is_looked_at_and_measured() {
    let answer = r#"[ "$*" = "--json=c -A /dev/nvme0n1" ] || exit 1
echo '{"nvme_smart_health_information_log":{"percentage_used":7,"data_units_written":1000,"available_spare":98,"critical_warning":4}}'
exit 8"#;
    let drive = Drive::new().script(answer);
    let (health, look) = drive.asked(LONG).await;
    let wear = look.wear.unwrap();
    assert_eq!((wear.disk.as_str(), wear.log.used_percent, wear.log.written_bytes), ("nvme0n1", 7, Some(512_000_000)));
    assert_eq!((wear.age, wear.pace_day_bytes, look.unknown), (Duration::ZERO, None, None));
    *drive.clock.0.lock() = 2;
    assert_eq!(health.look().wear.unwrap().age, Duration::from_secs(7200));
    let metrics = &health.metrics;
    let gauges = [&metrics.drive_known, &metrics.drive_wear_percent, &metrics.drive_written_bytes];
    assert_eq!(gauges.map(|gauge| gauge.get()), [1, 7, 512_000_000]);
    let gauges = [&metrics.drive_spare_percent, &metrics.drive_warning, &metrics.drive_age_seconds];
    assert_eq!(gauges.map(|gauge| gauge.get()), [98, 4, 7200]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_absent_or_answers_nonsense_or_too_much_is_a_reason() {
    let unknown = Drive::new().unknown(LONG).await;
    assert!(unknown.contains("is not installed"), "{unknown}");
    let unknown = Drive::new().script("echo usage: smartctl; exit 1").unknown(LONG).await;
    assert!(unknown.contains("is no JSON; smartmontools 7.0"), "{unknown}");
    let unknown = Drive::new().script("exec yes").unknown(LONG).await;
    assert!(unknown.contains("more than 1048576 bytes"), "{unknown}");
    let drive = Drive::new();
    fs::write(drive.program(), "not for running").unwrap();
    let unknown = drive.unknown(LONG).await;
    assert!(unknown.contains("can not be started: Permission denied"), "{unknown}");
}

/// Reads `path`, a pipe: to the end of all who write to it.
fn drain(mut pipe: fs::File) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}

fn pipe(path: &Path) -> fs::File {
    let no_wait = rustix::fs::OFlags::NONBLOCK;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Not to wait for a writer now, but for their end later.
    let pipe = fs::OpenOptions::new().read(true).custom_flags(no_wait.bits().cast_signed()).open(path).unwrap();
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::empty()).unwrap();
    pipe
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hangs_is_killed_and_holds_up_nobody() {
    let drive = Drive::new().script("exec 9>$0.alive; exec tail -f /dev/null");
    let pipe = pipe(&drive.folder.path().join("smartctl.alive"));
    let unknown = drive.unknown(Duration::from_millis(100)).await;
    assert!(unknown.contains("did not answer within 0 s and was killed"), "{unknown}");
    assert_eq!(drain(pipe), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_runs_when_the_server_stops_is_killed() {
    let drive = Drive::new().script("exec 9>$0.alive; echo x >&9; exec tail -f /dev/null");
    let path = drive.folder.path().join("smartctl.alive");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let watching = tokio::spawn(drive.health(LONG).watch());
    // Opens when the program runs.
    let mut pipe = tokio::task::spawn_blocking(move || fs::File::open(path).unwrap()).await.unwrap();
    let mut first = [0];
    pipe.read_exact(&mut first).unwrap();
    watching.abort();
    assert_eq!(drain(pipe), "\n");
}

#[test]
fn a_reading_outlives_a_later_attempt_that_fails_and_shows_its_age() {
    let drive = Drive::new();
    let health = drive.health(LONG);
    health.keep(Ok(log(3, Some(1 << 40))));
    *drive.clock.0.lock() = 5;
    health.keep(Err(Unknown::NotJson));
    let look = health.look();
    assert_eq!((look.wear.unwrap().age, look.unknown.is_some()), (Duration::from_secs(5 * 3600), true));
    health.keep(Ok(log(4, Some(1 << 40))));
    assert_eq!((health.look().wear.unwrap().log.used_percent, health.look().unknown), (4, None));
}

#[test]
fn the_pace_is_that_of_the_last_day_and_everybodys_writes() {
    let drive = Drive::new();
    let health = drive.health(LONG);
    let mut written_bytes = 1 << 40;
    for hour in 0..100 {
        *drive.clock.0.lock() = hour;
        // Two days of a gigabyte an hour, then twice that.
        written_bytes += if hour < 48 { 1_000_000_000 } else { 2_000_000_000 };
        health.keep(Ok(log(50, Some(written_bytes))));
    }
    let wear = health.look().wear.unwrap();
    assert_eq!(wear.pace_day_bytes, Some(48_000_000_000));
    assert_eq!(health.state.lock().readings.len(), READINGS_MAX);
    // Half of it took `written_bytes`; so will the other half.
    let years = wear.years_left(1).unwrap();
    assert!((years - written_bytes as f64 / 48e9 / 365.0).abs() < 1e-9, "{years}");
}

#[test]
fn years_left_need_a_per_cent_used_a_count_of_bytes_and_a_pace_and_end_at_a_hundred_per_cent() {
    let wear = |used_percent, written_bytes| Wear {
        disk: "nvme0n1".to_owned(),
        log: log(used_percent, written_bytes),
        age: Duration::ZERO,
        pace_day_bytes: None,
    };
    // 36.5 TB for 10 %: 90 % are 328.5 TB, at 90 GB a day ten years.
    let years = wear(10, Some(36_500_000_000_000)).years_left(90_000_000_000).unwrap();
    assert!((years - 10.0).abs() < 1e-9, "{years}");
    for worn in [100, 255] {
        assert_eq!(wear(worn, Some(1 << 40)).years_left(1), Some(0.0));
    }
    assert_eq!(wear(0, Some(1 << 40)).years_left(1), None);
    assert_eq!(wear(10, None).years_left(1), None);
    assert_eq!(wear(10, Some(1 << 40)).years_left(0), None);
}
