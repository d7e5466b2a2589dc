//! What the figures were measured on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::milliseconds;

/// How often the disk is asked to sync.
const SYNCS: usize = 200;
/// The size of what is synced each time.
const PAGE: [u8; 4096] = [b'x'; 4096];

/// Name and value of what matters for the speed of a store in this folder.
pub(super) fn facts(folder: &Path) -> io::Result<Vec<(&'static str, String)>> {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let syncs = syncs(folder)?;
    Ok(vec![
        ("cores", cores().to_string()),
        ("load before", or_unknown(load)),
        (
            "system",
            format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        ),
        ("file system", or_unknown(&file_system(folder))),
        (
            "sync of 4 KiB",
            format!(
                "p50 {:.2} ms, p99 {:.2} ms ({SYNCS} times)",
                milliseconds(&syncs, 50),
                milliseconds(&syncs, 99)
            ),
        ),
    ])
}

fn or_unknown(text: &str) -> String {
    let text = if text.is_empty() { "unknown" } else { text };
    text.to_owned()
}

/// Processors that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// The most memory that this process has had, with all that it is made of.
pub(super) fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{} MiB", kib / 1024))
}

/// How long each of some appended pages takes to be on disk, sorted.
fn syncs(folder: &Path) -> io::Result<Vec<Duration>> {
    let path = folder.join("sync");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&PAGE)?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    fs::remove_file(path)?;
    times.sort_unstable();
    Ok(times)
}

/// The type of the file system, from the mount that holds the folder; empty where that is not
/// told.
pub(super) fn file_system(folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let holding = mounts.filter(|(at, _)| folder.starts_with(at));
    let last = holding.max_by_key(|(at, _)| at.len());
    last.map_or(String::new(), |(_, kind)| kind.to_owned())
}
