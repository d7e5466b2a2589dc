//! What a node does for a container before its program runs: the account of the pod is mounted where
//! programs look for it, the root is read-only, and the program runs as the user of the pod and may do
//! nothing that root may. (There is no kubelet; the rest of an image is tried in `tests/image`.)

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use ipledger_tests::program::binary;
use rustix::process::getuid;
use tempfile::TempDir;

/// Where a pod finds the token of its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const PROGRAM: &str = "/var/run/ipledger";

/// As root of a file system of its own: `ACCOUNT SECRETS PROGRAM BINARY COMMAND...`
const CONTAINER: &str = r#"
mount -t tmpfs -o mode=755 tmpfs /var/run
mkdir -p "$1"
mount --bind "$2" "$1"
touch "$3"
mount --bind "$4" "$3"
mount -o remount,ro /var/run
mount -o remount,bind,ro /
shift 4
exec setpriv "$@"
"#;

/// The user that a container runs as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
}

/// The files of an account, as they are mounted in a pod.
pub(crate) struct Secrets {
    folder: TempDir,
    reader: User,
}

impl Secrets {
    pub(crate) fn of(namespace: &str, token: &str, authority: &str, reader: User) -> Secrets {
        let folder = tempfile::tempdir().unwrap();
        give(folder.path(), reader);
        let secrets = Secrets { folder, reader };
        for (name, text) in [
            ("namespace", namespace),
            ("token", token),
            ("ca.crt", authority),
        ] {
            secrets.put(name, text);
        }
        secrets
    }

    /// Puts another token in the place of the first, as a node does long before that one expires.
    pub(crate) fn renew(&self, token: &str) {
        self.put("token", token);
    }

    /// A reader sees the file of before or the new one.
    fn put(&self, name: &str, text: &str) {
        let [file, new] = [name, "new"].map(|name| self.folder.path().join(name));
        std::fs::write(&new, text).unwrap();
        give(&new, self.reader);
        std::fs::rename(&new, &file).unwrap();
    }
}

fn give(path: &Path, to: User) {
    if getuid().is_root() {
        chown(path, Some(to.id), Some(to.group)).unwrap();
    }
}

/// The program in a container: its user, the files of its account, its environment and nothing of
/// ours. The arguments are still to be added.
pub(crate) fn container(
    user: User,
    secrets: &Secrets,
    environment: &[(String, String)],
) -> Command {
    let mut command = Command::new("unshare");
    if !getuid().is_root() {
        // Who is not root is it in there, and keeps their own user outside.
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-euc", CONTAINER, "container", ACCOUNT]);
    command
        .arg(secrets.folder.path())
        .arg(PROGRAM)
        .arg(binary());
    if getuid().is_root() {
        command.arg(format!("--reuid={}", user.id));
        command.arg(format!("--regid={}", user.group));
        command.arg("--clear-groups");
    }
    command.args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]);
    command.args(["env", "-i"]);
    command.args(
        environment
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    command.arg(PROGRAM);
    command
}
