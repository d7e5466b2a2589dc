use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipledger_core::api::Timestamp;

/// How to reach etcd, and how an [`EtcdStore`](crate::EtcdStore) works with it.
#[derive(Clone)]
pub struct Options {
    /// The members, each `HOST:PORT`. One is used at a time, the next one when it fails.
    pub endpoints: Vec<String>,
    /// Where in the keyspace the ledger lies, for example `ipledger`. Several ledgers share a
    /// cluster under different prefixes.
    pub prefix: String,
    /// User and password, if etcd asks for them.
    pub user: Option<User>,
    /// TLS; `None` means plain connections.
    pub tls: Option<Tls>,
    /// How long a call may take in all, with every repetition. A write that has had no answer by
    /// then is `OutcomeUnknown`.
    pub request_timeout: Duration,
    /// How long one member may keep a read waiting, or a watch that is known to lag behind, before
    /// the next one is asked.
    pub member_timeout: Duration,
    /// How often watches are compared with what is committed, so that one without events gets a
    /// bookmark, and one whose connection has died is opened anew.
    pub probe_interval: Duration,
    /// Largest object in bytes of JSON. The limit of etcd (`--max-request-bytes`, 1.5 MiB) is for
    /// the whole request, in which some room is needed for keys and the deletion mark.
    pub max_object_bytes: usize,
    /// How long a leader that is gone keeps its place. etcd makes it a few seconds at least.
    pub lease_ttl: Duration,
    /// The clock, for creation and deletion times.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// What a connection with TLS needs. All of it is text in PEM form.
#[derive(Clone, Default)]
pub struct Tls {
    /// Who signs the members' certificates; `None` means whom the system trusts.
    pub ca: Option<String>,
    /// Our own certificate and its key, if etcd asks for one.
    pub identity: Option<Identity>,
    /// The name in the members' certificates, if it is not the host that is connected to.
    pub server_name: Option<String>,
}

/// A certificate of our own.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, with what signs it.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Options {
    /// The default for these members and this prefix.
    pub fn new(endpoints: Vec<String>, prefix: impl Into<String>) -> Options {
        Options {
            endpoints,
            prefix: prefix.into(),
            user: None,
            tls: None,
            request_timeout: Duration::from_secs(5),
            member_timeout: Duration::from_secs(2),
            probe_interval: Duration::from_secs(2),
            lease_ttl: Duration::from_secs(8),
            max_object_bytes: (1_536 - 16) * 1_024,
            now: Arc::new(|| Timestamp::from(SystemTime::now())),
        }
    }

    /// The location as it may be shown: whoever puts a user and a password before an `@` is not told
    /// them again.
    fn without_password(location: &str) -> String {
        match location.rsplit_once('@') {
            Some((_, rest)) => format!("...@{rest}"),
            None => location.to_owned(),
        }
    }

    /// Reads `etcd://HOST:PORT[,HOST:PORT...]/PREFIX`; with `etcds://` for TLS.
    ///
    /// # Errors
    /// What is wrong with it and what to write instead.
    pub fn parse(location: &str) -> Result<Options, String> {
        let fail = |reason: &str| {
            format!(
                "`{}`: {reason}; write etcd://HOST:PORT[,HOST:PORT...]/PREFIX (etcds:// for TLS)",
                Options::without_password(location)
            )
        };
        let (tls, rest) = match location.split_once("://") {
            Some(("etcd", rest)) => (None, rest),
            Some(("etcds", rest)) => (Some(Tls::default()), rest),
            _ => return Err(fail("it does not begin with etcd:// or etcds://")),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // Also behind a slash: a password may have one.
        if rest.contains('@') {
            return Err(fail(
                "user and password do not belong into it, because it is shown in logs",
            ));
        }
        let endpoints: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        for endpoint in &endpoints {
            let port = endpoint
                .rsplit_once(':')
                .map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
            if !matches!(port, Some((false, Ok(_)))) {
                return Err(fail(&format!("`{endpoint}` is not HOST:PORT")));
            }
        }
        crate::keys::Keys::new(prefix)
            .map_err(|e| fail(&format!("the prefix `{prefix}` is refused: {e}")))?;
        Ok(Options {
            tls,
            ..Options::new(endpoints, prefix)
        })
    }
}

impl fmt::Debug for Options {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|u| &u.name))
            .field("tls", &self.tls.is_some())
            .field("request_timeout", &self.request_timeout)
            .field("member_timeout", &self.member_timeout)
            .field("probe_interval", &self.probe_interval)
            .field("lease_ttl", &self.lease_ttl)
            .field("max_object_bytes", &self.max_object_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_names_members_prefix_and_tls() {
        let options = Options::parse("etcd://127.0.0.1:2379,[::1]:2380/site/ledger").unwrap();
        assert_eq!(options.endpoints, ["127.0.0.1:2379", "[::1]:2380"]);
        assert_eq!(options.prefix, "site/ledger");
        assert!(options.tls.is_none());
        assert!(
            Options::parse("etcds://etcd.example.com:2379/a")
                .unwrap()
                .tls
                .is_some()
        );
    }

    #[test]
    fn a_location_that_cannot_be_is_refused_with_the_form() {
        for bad in [
            "",
            "http://a:1/x",
            "etcd://a:1",
            "etcd://a:1/",
            "etcd://a/x",
            "etcd://:1/x",
            "etcd://a:x/x",
            "etcd://a:1,/x",
            "etcd://user:password@a:1/x",
        ] {
            let e = Options::parse(bad).unwrap_err();
            assert!(e.contains("etcd://HOST:PORT"), "{bad}: {e}");
        }
    }

    #[test]
    fn a_password_in_a_location_is_refused_and_not_shown() {
        for bad in [
            "etcd://admin:hunter2@a:1/x",
            "etcds://admin:hunt/er2@a:1/x",
            "etcd://admin:p@hunter2@a:1/x",
            "http://admin:hunter2@a:1/x",
        ] {
            let e = Options::parse(bad).unwrap_err();
            assert!(!e.contains("hunt") && !e.contains("admin"), "{e}");
            assert!(e.contains("a:1/x"), "{e}");
        }
    }

    #[test]
    fn what_is_printed_of_the_options_holds_no_secret() {
        let mut options = Options::new(vec!["a:1".to_owned()], "x");
        options.user = Some(User {
            name: "admin".to_owned(),
            password: "hunter2".to_owned(),
        });
        let text = format!("{options:?}");
        assert!(
            text.contains("admin") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
