//! The control socket: the protocol between commands and a running server.
//!
//! The socket is a unix socket beside the pool file that only its owner may open. A client sends one JSON
//! document a line and gets one line in answer to each, in order:
//!
//! ```text
//! {"do":"create_volume","name":"disk","size_bytes":1073741824}
//! "done"
//! {"do":"remove_volume","name":"dusk"}
//! {"failed":{"class":"usage","message":"there is no volume \"dusk\"; ..."}}
//! ```

use crate::explain::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_engine::AdminCommand;
use weir_model::{Bytes, ErrorKind};
use weir_policy::placement::{self, TunedPolicy};

/// Longest request line, in bytes.
pub const LINE_MAX: usize = 64 << 10;

/// A request to a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Reports the state of the pool; answered by [`Answer::Status`].
    Status,
    /// Creates a thin volume; answered when it is durable.
    CreateVolume {
        /// Volume name.
        name: String,
        /// Size in bytes.
        size_bytes: u64,
        /// When the volume's map changes become durable; by default, with each flush.
        #[serde(default)]
        hardening: Hardening,
        /// Number of copies of every block; by default, one.
        #[serde(default = "one_copy")]
        copies: u8,
    },
    /// Changes when a volume's map changes become durable; answered when the change is durable.
    SetHardening {
        /// Volume name.
        name: String,
        /// The new setting.
        hardening: Hardening,
    },
    /// Removes a volume that no client uses and frees its space; answered when the removal is durable.
    RemoveVolume {
        /// Volume name.
        name: String,
    },
    /// Switches to another placement policy, without moving data; answered when it is active.
    SetPolicy {
        /// Policy name.
        name: String,
        /// Keys that differ from their defaults, as numbers (see
        /// [`Settings`](weir_policy::placement::Settings)).
        #[serde(default)]
        tuning: BTreeMap<String, f64>,
    },
    /// Gives a volume a policy of its own, or the pool's again, without moving data; answered when it is
    /// active.
    SetVolumePolicy {
        /// Volume name.
        volume: String,
        /// Policy name; the pool's policy if absent.
        #[serde(default)]
        name: Option<String>,
        /// Keys that differ from their defaults, as for [`Request::SetPolicy`].
        #[serde(default)]
        tuning: BTreeMap<String, f64>,
    },
    /// Says where a block of a volume is stored, since when and why; answered by [`Answer::Explained`].
    Explain {
        /// Volume name.
        volume: String,
        /// Offset of any byte of the block.
        offset_bytes: u64,
    },
    /// Records client requests to these volumes from now on; answered by [`Answer::Recording`] and then by
    /// frames: see [`recording`](crate::recording).
    Record {
        /// Volume names.
        volumes: Vec<String>,
    },
    /// Stops the server as SIGTERM does; answered when the stop has begun.
    Stop,
}

const fn one_copy() -> u8 {
    1
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request has been executed.
    Done,
    /// The state of the pool, in the form that the embedding program defines.
    Status(serde_json::Value),
    /// Where a block is stored, since when and why.
    Explained(Box<Explanation>),
    /// Recording has started; frames follow.
    Recording,
    /// The request failed.
    Failed {
        /// The class of the failure, which determines the exit status of the command.
        class: Class,
        /// The failure, its reason, and the remedy.
        message: String,
    },
}

/// When the map changes of a write are durable.
// `weir_engine::Hardening` on the wire and the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hardening {
    /// Map changes become durable with the next flush.
    #[default]
    Flush,
    /// When the write is acknowledged.
    Write,
}

impl From<Hardening> for weir_engine::Hardening {
    fn from(hardening: Hardening) -> Self {
        match hardening {
            Hardening::Flush => Self::Flush,
            Hardening::Write => Self::Write,
        }
    }
}

impl From<weir_engine::Hardening> for Hardening {
    fn from(hardening: weir_engine::Hardening) -> Self {
        match hardening {
            weir_engine::Hardening::Flush => Self::Flush,
            weir_engine::Hardening::Write => Self::Write,
        }
    }
}

impl std::fmt::Display for Hardening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Write => "write",
        })
    }
}

/// [`ErrorKind`] on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The request is wrong; correct it.
    Usage,
    /// The request is unsafe in the current state.
    Refused,
    /// Stored data is damaged.
    Damaged,
    /// The environment prevents it.
    Environment,
}

impl From<ErrorKind> for Class {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Refused => Self::Refused,
            ErrorKind::Corrupt => Self::Damaged,
            ErrorKind::Environment => Self::Environment,
        }
    }
}

impl From<Class> for ErrorKind {
    fn from(class: Class) -> Self {
        match class {
            Class::Usage => Self::Usage,
            Class::Refused => Self::Refused,
            Class::Damaged => Self::Corrupt,
            Class::Environment => Self::Environment,
        }
    }
}

impl Answer {
    /// Makes the answer to a request that failed for this reason.
    pub fn failed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::Failed { class: kind.into(), message: message.into() }
    }

    /// Encodes the answer as a line.
    pub fn line(&self) -> Vec<u8> {
        // Every answer can be encoded as JSON; if one could not, the empty line would be an answer that no
        // client accepts.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    /// Returns the answer to send if the line is not a request.
    pub fn parse(line: &[u8]) -> Result<Self, Answer> {
        serde_json::from_slice(line).map_err(|error| {
            Answer::failed(ErrorKind::Usage, format!("not a request of this server: {error}"))
        })
    }

    /// Returns the placement policy to switch the pool to, if that is the request.
    ///
    /// # Errors
    /// Returns the answer to send if there is no such policy.
    pub fn policy(&self) -> Option<Result<TunedPolicy, Answer>> {
        let Self::SetPolicy { name, tuning } = self else { return None };
        Some(tuned_policy(name, tuning))
    }

    /// Returns the volume and its policy (`None`: the pool's), if the request sets the policy of a volume.
    ///
    /// # Errors
    /// Returns the answer to send if there is no such policy.
    pub fn volume_policy(&self) -> Option<Result<(&str, Option<TunedPolicy>), Answer>> {
        let Self::SetVolumePolicy { volume, name, tuning } = self else { return None };
        let choice = name.as_ref().map(|name| tuned_policy(name, tuning)).transpose();
        Some(choice.map(|choice| (volume.as_str(), choice)))
    }

    /// Returns the engine command for the request, if the engine executes it.
    pub fn command(&self) -> Option<AdminCommand> {
        match self {
            Self::CreateVolume { name, size_bytes, hardening, copies } => Some(AdminCommand::CreateVolume {
                name: name.clone(),
                size: Bytes(*size_bytes),
                hardening: (*hardening).into(),
                copies: *copies,
            }),
            Self::SetHardening { name, hardening } => {
                Some(AdminCommand::SetHardening { name: name.clone(), hardening: (*hardening).into() })
            }
            Self::RemoveVolume { name } => Some(AdminCommand::RemoveVolume { name: name.clone() }),
            Self::Status
            | Self::SetPolicy { .. }
            | Self::SetVolumePolicy { .. }
            | Self::Explain { .. }
            | Self::Record { .. }
            | Self::Stop => None,
        }
    }
}

/// Returns the policy of that name with this tuning.
fn tuned_policy(name: &str, tuning: &BTreeMap<String, f64>) -> Result<TunedPolicy, Answer> {
    let refuse = |message: String| Err(Answer::failed(ErrorKind::Usage, message));
    let Some(TunedPolicy { info: known, mut settings }) = placement::with_default_settings(name) else {
        return refuse(format!("there is no policy {name:?}"));
    };
    for (key, value) in tuning {
        let good = known.keys.iter().find(|k| k.name == key).is_some_and(|k| settings.set(k, *value));
        if !good {
            return refuse(format!("policy {name} has no key {key:?} that can be {value}"));
        }
    }
    Ok(TunedPolicy { info: known, settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_match_documentation() {
        let create = Request::parse(br#"{"do":"create_volume","name":"disk","size_bytes":1073741824}"#);
        let expected = Request::CreateVolume {
            name: "disk".into(),
            size_bytes: 1 << 30,
            hardening: Hardening::Flush,
            copies: 1,
        };
        assert_eq!(create, Ok(expected));
        assert_eq!(Request::parse(br#"{"do":"status"}"#), Ok(Request::Status));
        assert_eq!(Answer::Done.line(), b"\"done\"\n");
        let failed = Answer::failed(ErrorKind::Corrupt, "no");
        assert_eq!(failed.line(), b"{\"failed\":{\"class\":\"damaged\",\"message\":\"no\"}}\n");
        assert_eq!(serde_json::from_slice::<Answer>(&failed.line()).ok(), Some(failed));
    }

    #[test]
    fn set_policy_accepts_tuning() {
        let policy = |line: &str| {
            let request = Request::parse(line.as_bytes()).expect("a request");
            request.policy().expect("about a policy").map(|choice| choice.info.name)
        };
        assert_eq!(policy(r#"{"do":"set_policy","name":"stripe"}"#), Ok("stripe"));
        assert_eq!(policy(r#"{"do":"set_policy","name":"wardrop","tuning":{"alpha":2.5}}"#), Ok("wardrop"));
        for bad in [
            r#""name":"strip""#,
            r#""name":"stripe","tuning":{"alpha":1}"#,
            r#""name":"wardrop","tuning":{"alpha":-1}"#,
        ] {
            assert!(policy(&format!("{{\"do\":\"set_policy\",{bad}}}")).is_err(), "{bad}");
        }
        assert!(Request::Stop.policy().is_none());
        let of = |line: &str| {
            let request = Request::parse(line.as_bytes()).expect("a request");
            let found = request.volume_policy().expect("about a volume's policy");
            found.map(|(volume, choice)| (volume.to_owned(), choice.map(|choice| choice.info.name)))
        };
        let own = of(r#"{"do":"set_volume_policy","volume":"v","name":"stripe"}"#);
        assert_eq!(own, Ok(("v".into(), Some("stripe"))));
        assert_eq!(of(r#"{"do":"set_volume_policy","volume":"v"}"#), Ok(("v".into(), None)));
        assert!(of(r#"{"do":"set_volume_policy","volume":"v","name":"strip"}"#).is_err());
    }

    #[test]
    fn malformed_request_is_answered() {
        for line in [&b""[..], b"{}", b"\xff", br#"{"do":"dance"}"#, b"[[[["] {
            assert!(matches!(Request::parse(line), Err(Answer::Failed { class: Class::Usage, .. })));
        }
    }
}
