//! A server process that never outlives the test, however that ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a server may take to start or to stop.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it has.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Runs the server as a child of a shell, whose standard input the test holds. When that is closed,
/// also because the test was killed, the shell kills the server, even if it is frozen.
const KEEPER: &str = r#"
exec 3<&0 </dev/null
"$@" >>"$0" 2>&1 3<&- &
server=$!
echo "$server"
{ cat <&3 >/dev/null; kill -KILL "$server"; } >/dev/null 2>&1 &
guard=$!
wait "$server"
kill -KILL "$guard" 2>/dev/null
"#;

/// A running server.
pub struct Process {
    /// The shell. Its standard input is open as long as this lives.
    keeper: Child,
    server: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts a program that writes what it has to say to the end of a file.
    ///
    /// # Panics
    /// There is no such program.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Process {
        assert!(program.is_file(), "{} does not exist", program.display());
        let mut keeper = Command::new("sh")
            .arg("-c")
            .arg(KEEPER)
            .arg(log)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        let mut line = String::new();
        let output = keeper.stdout.take().expect("its output");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("the number of the server");
        let server = line
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process number");
        Process {
            keeper,
            server,
            log: log.to_owned(),
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.keeper.try_wait(), Ok(None))
    }

    /// Stops it from doing anything, as a machine that hangs.
    pub fn freeze(&self) {
        kill_process(self.server, Signal::STOP).expect("the server runs");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        kill_process(self.server, Signal::CONT).expect("the server runs");
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(mut self) {
        let _ = kill_process(self.server, Signal::TERM);
        let end = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(
                Instant::now() < end,
                "the server does not stop:\n{}",
                self.said()
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Kills it as a loss of power does, except that what the system has taken is kept.
    pub fn kill(mut self) {
        let _ = kill_process(self.server, Signal::KILL);
        let _ = self.keeper.wait();
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// It has ended, with what it said.
    ///
    /// # Panics
    /// It takes too long.
    pub fn wait_until(&mut self, mut ready: impl FnMut() -> bool) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !ready() {
            if !self.is_running() {
                return Err(self.said());
            }
            assert!(
                Instant::now() < end,
                "the server does not get ready:\n{}",
                self.said()
            );
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The end of its log.
    fn said(&self) -> String {
        let lines = File::open(&self.log).map(|f| BufReader::new(f).lines().map_while(Result::ok));
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group has the number of the shell, which is not given to another process before it is
        // waited for.
        if self.is_running() {
            let group = i32::try_from(self.keeper.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|g| kill_process_group(g, Signal::KILL));
            let _ = self.keeper.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process;

    use super::*;

    fn sleeper(folder: &Path) -> Process {
        let arguments = ["1000".to_owned()];
        Process::start(Path::new("/bin/sleep"), &arguments, &folder.join("log"))
    }

    fn gone(server: Pid) -> bool {
        let end = Instant::now() + PATIENCE;
        while test_kill_process(server).is_ok() && !is_zombie(server) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    fn is_zombie(server: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.as_raw_nonzero()));
        stat.is_ok_and(|s| s.contains(") Z "))
    }

    #[test]
    fn a_server_is_gone_when_its_handle_is_dropped_even_if_it_is_frozen() {
        let folder = tempfile::tempdir().unwrap();
        for frozen in [false, true] {
            let process = sleeper(folder.path());
            let server = process.server;
            if frozen {
                process.freeze();
            }
            assert!(test_kill_process(server).is_ok());
            drop(process);
            assert!(gone(server));
        }
    }

    /// The handle is never dropped, but the pipe closes, as when the test is killed.
    #[test]
    fn a_server_is_gone_when_the_test_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = sleeper(folder.path());
        process.freeze();
        drop(process.keeper.stdin.take());
        assert!(gone(process.server));
        assert!(process.keeper.wait().is_ok());
    }

    #[test]
    fn a_server_that_ends_by_itself_is_noticed_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["-c".to_owned(), "echo no such thing; exit 1".to_owned()];
        let mut process =
            Process::start(Path::new("/bin/sh"), &arguments, &folder.path().join("log"));
        let said = process.wait_until(|| false).unwrap_err();
        assert_eq!(said, "no such thing");
    }

    #[test]
    fn a_server_that_is_stopped_has_stopped() {
        let folder = tempfile::tempdir().unwrap();
        for kill in [false, true] {
            let process = sleeper(folder.path());
            let server = process.server;
            if kill {
                process.kill();
            } else {
                process.stop();
            }
            assert!(gone(server));
        }
    }
}
