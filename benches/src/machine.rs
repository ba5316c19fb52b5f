//! What the machine itself does: the stream that bounds every TCP path, and the processor time of another process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use cairn_core::Clock;

/// Bytes handed to the kernel at once.
const PIECE_BYTES: usize = 256 << 10;

/// Sends `bytes` over a plain TCP connection on the loopback interface and returns the time from the first byte to the last. Blocks.
///
/// One thread writes a buffer again and again, another reads into one: nothing over TCP on this machine is faster with one connection.
///
/// # Errors
/// What the sockets say.
pub fn loopback_stream(clock: &dyn Clock, bytes: usize) -> io::Result<Duration> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let sender = thread::spawn(move || send(listener.accept()?.0, bytes));
    let mut stream = TcpStream::connect(address)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let start = clock.now();
    let mut left = bytes;
    while left > 0 {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read),
        }
    }
    let elapsed = clock.now().since(start);
    sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))?;
    Ok(elapsed)
}

fn send(mut stream: TcpStream, bytes: usize) -> io::Result<()> {
    let buffer = vec![7; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(PIECE_BYTES);
        stream.write_all(&buffer[..piece])?;
        left -= piece;
    }
    Ok(())
}

/// Processor time that process `pid` has used, in user and kernel mode, in steps of 10 ms. Linux only.
///
/// # Errors
/// What `/proc` says; `InvalidData` if it says something else.
pub fn processor_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name may hold anything, also blanks and brackets; the numbers start after its closing bracket.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).ok_or(io::ErrorKind::InvalidData)?;
    // Fields 14 and 15 of the line; the first after the name is field 3.
    let ticks = after_name.split_ascii_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Duration::from_secs(ticks).div_f64(rustix::param::clock_ticks_per_second() as f64))
}

/// Memory of this process that is resident, in bytes. Linux only.
///
/// # Errors
/// What `/proc` says; `InvalidData` if it says something else.
pub fn resident_bytes() -> io::Result<u64> {
    let sizes = fs::read_to_string("/proc/self/statm")?;
    let resident_pages = sizes.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(resident_pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size() as u64)
}

/// Processes that want to run, on average over the last minute. Linux only.
///
/// # Errors
/// What `/proc` says; `InvalidData` if it says something else.
pub fn load() -> io::Result<f64> {
    let averages = fs::read_to_string("/proc/loadavg")?;
    let minute = averages.split_ascii_whitespace().next().and_then(|load| load.parse().ok());
    minute.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use cairn_core::SystemClock;

    use super::*;

    #[test]
    fn a_stream_delivers_every_byte_and_takes_time() {
        let elapsed = loopback_stream(&SystemClock::start(), 3 * PIECE_BYTES + 1).unwrap();
        assert!(elapsed > Duration::ZERO);
    }

    #[test]
    fn the_processor_time_of_this_process_grows_with_work() {
        let pid = std::process::id();
        let before = processor_time(pid).unwrap();
        let mut sum = 0u64;
        while processor_time(pid).unwrap() == before {
            sum = (0..1_000_000u64).fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
        }
        assert_ne!(sum, 1);
    }

    #[test]
    fn memory_that_was_written_is_resident() {
        let before = resident_bytes().unwrap();
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() > before);
        assert_eq!(memory[memory.len() - 1], 1);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(processor_time(u32::MAX).is_err());
    }
}
