//! Opening a ledger in etcd.

use std::path::Path;

use ipledger_core::store::StoreError;
use ipledger_store_etcd::{EtcdStore, Identity, OpenError, Options, Tls, User};

use super::{EtcdLocation, LedgerError};
use crate::cli::Exit;

/// Holds the password of the store's user, if no file does.
const PASSWORD_ENV: &str = "IPLEDGER_STORE_PASSWORD";

pub(super) fn exit(error: &OpenError) -> Exit {
    match error {
        OpenError::BadOption { .. } => Exit::Usage,
        OpenError::WrongCredentials { .. } | OpenError::Forbidden { .. } => Exit::Unauthorised,
        _ => Exit::Unavailable,
    }
}

/// Opens a ledger that is complete.
pub(super) async fn open(location: &EtcdLocation) -> Result<EtcdStore, LedgerError> {
    let store = connect(location).await?;
    let failed = |e: StoreError| LedgerError::Store {
        location: location.url.clone(),
        reason: e.to_string(),
    };
    match store.importing().await.map_err(failed)? {
        None => Ok(store),
        Some(by) => Err(LedgerError::Importing {
            location: location.url.clone(),
            by,
        }),
    }
}

/// Opens a ledger, complete or not.
///
/// # Errors
/// Also what is wrong with the options, by their names on the command line.
pub(crate) async fn connect(location: &EtcdLocation) -> Result<EtcdStore, LedgerError> {
    EtcdStore::open(options(location)?)
        .await
        .map_err(|e| match e {
            OpenError::BadOption {
                option: "tls",
                reason,
            } => {
                let named = |option: &str, file: &Path| format!("{option} {}", file.display());
                let mut files: Vec<String> = Vec::new();
                files.extend(location.ca.as_deref().map(|f| named("--store-ca", f)));
                if let Some((certificate, key)) = &location.identity {
                    files.push(named("--store-cert", certificate));
                    files.push(named("--store-key", key));
                }
                LedgerError::BadOption(format!("{}: {reason}", files.join(", ")))
            }
            e => e.into(),
        })
}

/// The options for a location, with what the files that it names hold.
pub(crate) fn options(location: &EtcdLocation) -> Result<Options, LedgerError> {
    let mut options = Options::parse(&location.url).map_err(LedgerError::BadOption)?;
    match &mut options.tls {
        Some(tls) => {
            *tls = Tls {
                ca: location
                    .ca
                    .as_deref()
                    .map(|p| read_pem(p, "--store-ca", CERTIFICATE))
                    .transpose()?,
                identity: match &location.identity {
                    None => None,
                    Some((certificate, key)) => Some(Identity {
                        certificate: read_pem(certificate, "--store-cert", CERTIFICATE)?,
                        key: read_pem(key, "--store-key", PRIVATE_KEY)?,
                    }),
                },
                server_name: None,
            };
        }
        None if location.ca.is_some() || location.identity.is_some() => {
            return Err(LedgerError::BadOption(format!(
                "{} speaks no TLS, so that --store-ca, --store-cert and --store-key have no use: \
                 write etcds:// for TLS",
                location.url
            )));
        }
        None => {}
    }
    if let Some(name) = &location.user {
        let password = match &location.password_file {
            Some(file) => read(file, "--store-password-file")?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
            None => std::env::var(PASSWORD_ENV).map_err(|_| {
                LedgerError::BadOption(format!(
                    "--store-user {name}: there is no password; name its file with \
                     --store-password-file, or set {PASSWORD_ENV}"
                ))
            })?,
        };
        options.user = Some(User {
            name: name.clone(),
            password,
        });
    }
    Ok(options)
}

/// What a file in PEM form has to have in it, so that two that were confused are told apart.
struct Pem {
    name: &'static str,
    /// How the line ends that begins it.
    begins: &'static str,
}

const CERTIFICATE: Pem = Pem {
    name: "certificate",
    begins: " CERTIFICATE-----",
};
/// With the kind of key before it, perhaps.
const PRIVATE_KEY: Pem = Pem {
    name: "private key",
    begins: "PRIVATE KEY-----",
};

fn read_pem(path: &Path, option: &str, wanted: Pem) -> Result<String, LedgerError> {
    let text = read(path, option)?;
    let mut lines = text.lines().map(str::trim);
    if lines.any(|l| l.starts_with("-----BEGIN ") && l.ends_with(wanted.begins)) {
        return Ok(text);
    }
    Err(LedgerError::BadOption(format!(
        "{option} {}: there is no {} in PEM form in it",
        path.display(),
        wanted.name
    )))
}

fn read(path: &Path, option: &str) -> Result<String, LedgerError> {
    std::fs::read_to_string(path).map_err(|e| {
        LedgerError::BadOption(format!(
            "{option} {}: it cannot be read: {e}",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(url: &str) -> EtcdLocation {
        EtcdLocation {
            url: url.to_owned(),
            ..EtcdLocation::default()
        }
    }

    fn refused(location: &EtcdLocation) -> String {
        let e = options(location).unwrap_err();
        assert_eq!(e.exit(), Exit::Usage);
        e.to_string()
    }

    #[test]
    fn files_that_cannot_be_read_are_named_with_their_option() {
        let missing = Some("/nowhere/file".into());
        let ca = EtcdLocation {
            ca: missing.clone(),
            ..location("etcds://a:1/x")
        };
        assert!(refused(&ca).starts_with("--store-ca /nowhere/file: it cannot be read"));
        let password = EtcdLocation {
            user: Some("u".to_owned()),
            password_file: missing,
            ..location("etcd://a:1/x")
        };
        assert!(refused(&password).starts_with("--store-password-file /nowhere/file"));
    }

    #[tokio::test]
    async fn a_file_with_something_else_in_it_is_named_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let junk = "x".repeat(70);
        let pem = |what| format!("-----BEGIN {what}-----\n{junk}\n-----END {what}-----\n");
        let text = file("text", "no certificate");
        let cert = file("cert", &pem("CERTIFICATE"));
        let key = file("key", &pem("EC PRIVATE KEY"));
        for (ca, identity, said) in [
            (Some(&text), None, "--store-ca"),
            (Some(&key), None, "--store-ca"),
            (None, Some((&text, &key)), "--store-cert"),
            (None, Some((&cert, &cert)), "--store-key"),
        ] {
            let location = EtcdLocation {
                ca: ca.cloned(),
                identity: identity.map(|(c, k)| (c.clone(), k.clone())),
                ..location("etcds://127.0.0.1:1/x")
            };
            let wrong = ca.or(identity.map(|(c, k)| if said.ends_with("cert") { c } else { k }));
            let start = format!("{said} {}: there is no ", wrong.unwrap().display());
            let message = refused(&location);
            assert!(message.starts_with(&start), "{message}");
        }
        let damaged = EtcdLocation {
            ca: Some(cert.clone()),
            identity: Some((cert, key)),
            ..location("etcds://127.0.0.1:1/x")
        };
        let Err(error) = connect(&damaged).await else {
            panic!("a damaged certificate is used");
        };
        assert_eq!(error.exit(), Exit::Usage);
        for option in ["--store-ca", "--store-cert", "--store-key"] {
            assert!(error.to_string().contains(option), "{error}");
        }
    }

    #[test]
    fn certificates_without_tls_are_refused_because_they_would_not_be_used() {
        let ca = EtcdLocation {
            ca: Some("/dev/null".into()),
            ..location("etcd://a:1/x")
        };
        assert!(refused(&ca).contains("write etcds:// for TLS"));
    }

    #[test]
    fn a_password_is_read_from_its_file_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "two words \n").unwrap();
        let location = EtcdLocation {
            user: Some("u".to_owned()),
            password_file: Some(file),
            ..location("etcd://a:1/x")
        };
        let user = options(&location).unwrap().user.unwrap();
        assert_eq!(
            (user.name.as_str(), user.password.as_str()),
            ("u", "two words ")
        );
    }
}
