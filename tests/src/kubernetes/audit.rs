//! The audit log of the API server: what it answered to the accounts of one namespace.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;

/// What is written down, and of whom: of each request of a service account of this namespace who asked
/// for what, and the answer, without the objects.
pub(super) fn policy(namespace: &str) -> String {
    format!(
        "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [\"system:serviceaccounts:{namespace}\"]
- level: None
"
    )
}

/// One answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The service account that asked, without its namespace.
    pub account: String,
    /// Which of its tokens the account has shown.
    pub token: String,
    /// The program that asked, as it calls itself.
    pub program: String,
    /// What was asked for: the verb and the path.
    pub request: String,
    /// The HTTP status.
    pub code: u64,
    /// What was said, if the request failed.
    pub message: String,
    /// Whether the server was starting, and did not know yet who may do what.
    pub starting: bool,
}

impl Answer {
    /// Whether it says that the account may not do this. (A server that is starting says so to everybody,
    /// and what is written into a namespace that is being deleted is answered 403 whoever writes it.)
    #[must_use]
    pub fn is_denial(&self) -> bool {
        matches!(self.code, 401 | 403)
            && !self.starting
            && !self.message.contains("because it is being terminated")
    }

    fn read(line: &str, starting: bool) -> Answer {
        let event: Value = serde_json::from_str(line).expect("a line of the audit log is JSON");
        let text = |path: &str| {
            let value = event.pointer(path).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let user = text("/user/username");
        Answer {
            account: user.rsplit(':').next().unwrap_or_default().to_owned(),
            token: text("/user/extra/authentication.kubernetes.io~1credential-id/0"),
            program: text("/userAgent"),
            request: format!("{} {}", text("/verb"), text("/requestURI")),
            code: event
                .pointer("/responseStatus/code")
                .and_then(Value::as_u64)
                .unwrap_or_default(),
            message: text("/responseStatus/message"),
            starting,
        }
    }
}

/// All answers so far; those in one of the ranges of lines were given while the server was starting. A
/// line that is being written is not read yet.
pub(super) fn read(log: &Path, starts: &[Range<usize>]) -> Vec<Answer> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let starting = |n: &usize| starts.iter().any(|range| range.contains(n));
    let lines = whole.lines().enumerate();
    lines
        .map(|(n, line)| Answer::read(line, starting(&n)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u64, message: &str) -> Answer {
        let event = serde_json::json!({
            "user": {"username": "system:serviceaccount:system:core"}, "userAgent": "x",
            "verb": "update", "requestURI": "/apis/x",
            "responseStatus": {"code": code, "message": message}});
        Answer::read(&event.to_string(), false)
    }

    #[test]
    fn an_answer_that_the_account_may_not_is_a_denial() {
        for code in [401, 403] {
            assert!(answer(code, "x is forbidden: User cannot update").is_denial());
        }
        let gone = "unable to create new content in namespace a because it is being terminated";
        assert!(!answer(403, gone).is_denial());
        let starting = Answer {
            starting: true,
            ..answer(403, "x is forbidden: User cannot update")
        };
        assert!(!starting.is_denial());
        for code in [200, 404, 409, 422] {
            assert!(!answer(code, "").is_denial());
        }
        let read = answer(200, "");
        assert_eq!((&*read.account, &*read.request), ("core", "update /apis/x"));
    }

    #[test]
    fn a_line_that_is_being_written_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(read(&log, &[]), []);
        std::fs::write(&log, "{}\n{}\n{\"user\":").unwrap();
        let starting = read(&log, &[1..2, 5..7]).into_iter().map(|a| a.starting);
        assert_eq!(starting.collect::<Vec<_>>(), [false, true]);
    }
}
