//! Calls of the script on the wire, and the errors that servers return instead of answers.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::metrics::Metrics;
use crate::script::{Call, Item, Script};
use crate::server_address::Address;
use crate::survey::told;

/// A call of the script, ready to be sent.
pub(crate) struct Sent {
    pub(crate) call: Call,
    /// The time, for servers that are told it.
    pub(crate) told: Option<u64>,
    pub(crate) is_asking: bool,
}

impl Sent {
    /// The command for one call, by the script's hash, or by its text, which also loads it.
    fn command(&self, verb: &str, script: &str) -> Cmd {
        let keys = self.call.keys();
        let mut command = redis::cmd(verb);
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        command.arg(self.call.plan());
        if let Some(micros) = self.told {
            command.arg(micros);
        }
        command
    }
}

/// Sends the calls by the script's hash. A server that does not know the script has executed
/// nothing, and is asked again with the text. An error if the connection ends before any answer; if
/// it ends while some calls are sent again, only those have the error as their answer.
pub(crate) async fn ask(
    connection: &mut MultiplexedConnection,
    calls: &[Sent],
    script: &Script,
    metrics: &Metrics,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let all: Vec<&Sent> = calls.iter().collect();
    let mut replies = send(connection, &all, |call| {
        call.command("EVALSHA", script.sha1())
    })
    .await?;
    let is_unknown = |reply: &RedisResult<Value>| {
        let error = reply.as_ref().err();
        error.is_some_and(|it| it.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    };
    let unknown: Vec<usize> = (0..calls.len())
        .filter(|it| is_unknown(&replies[*it]))
        .collect();
    if !unknown.is_empty() {
        metrics.reloaded();
        let calls: Vec<&Sent> = unknown.iter().map(|number| &calls[*number]).collect();
        let loaded = send(connection, &calls, |call| {
            call.command("EVAL", script.text())
        });
        match loaded.await {
            Ok(loaded) => {
                for (number, reply) in unknown.into_iter().zip(loaded) {
                    replies[number] = reply;
                }
            }
            Err(lost) => {
                for number in unknown {
                    replies[number] = Err(lost.clone());
                }
            }
        }
    }
    Ok(replies)
}

/// Sends the calls together, and returns the answer to each; an error if the connection has ended.
async fn send(
    connection: &mut MultiplexedConnection,
    calls: &[&Sent],
    command: impl Fn(&Sent) -> Cmd,
) -> RedisResult<Vec<RedisResult<Value>>> {
    if let [call] = calls
        && !call.is_asking
    {
        let reply = connection.send_packed_command(&command(call)).await;
        return match reply.and_then(Value::extract_error) {
            Err(error) if is_of_connection(&error) => Err(error),
            reply => Ok(vec![reply]),
        };
    }
    let mut pipeline = redis::pipe();
    for call in calls {
        if call.is_asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(command(call));
    }
    let asked = calls.iter().filter(|call| call.is_asking).count() + calls.len();
    let values = connection.send_packed_commands(&pipeline, 0, asked).await?;
    let mut values = values.into_iter();
    let mut reply_to = |call: &&Sent| {
        let skipped = if call.is_asking {
            values.nth(1)
        } else {
            values.next()
        };
        // A server that returns fewer answers than calls breaks the protocol.
        skipped.unwrap_or(Value::Nil).extract_error()
    };
    Ok(calls.iter().map(&mut reply_to).collect())
}

/// Returns true if the connection has ended, and this is no answer of the server.
pub(crate) fn is_of_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error()
}

/// The meaning of a server's refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is there, and cannot serve: out of memory, unable to persist.
    Unable,
    /// It is not ready, or its cluster is not, and has carried out nothing.
    Unready,
    /// It is now a replica, or no longer serves this slot, and does not know who does.
    Elsewhere,
    /// The slot belongs to another server.
    Moved,
    /// The slot is migrating to another server, and these counters are there already.
    Ask,
    /// The slot is migrating, and these counters are not all at one end.
    Later,
    /// The script failed.
    Script,
}

impl Refusal {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => match kind {
                // This is about one slot, not the server.
                ServerErrorKind::ClusterDown if says_of_slot(error) => Self::Elsewhere,
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown => Self::Unready,
                ServerErrorKind::NoPerm => Self::Unable,
                ServerErrorKind::ReadOnly => Self::Elsewhere,
                ServerErrorKind::Moved => Self::Moved,
                ServerErrorKind::Ask => Self::Ask,
                ServerErrorKind::TryAgain => Self::Later,
                _ => Self::of_text(&error.to_string()),
            },
            _ => Self::of_text(&error.to_string()),
        }
    }

    /// Before Redis 7 a failing script has no error code, only text. A command that the script may not use is none of
    /// these: others may have been carried out before it.
    fn of_text(text: &str) -> Self {
        const UNABLE: [&str; 6] = ["OOM", "MISCONF", "NOREPLICAS", "BUSY", "LOADING", "NOAUTH"];
        if text.contains("READONLY") {
            Self::Elsewhere
        } else if UNABLE.into_iter().any(|code| text.contains(code)) {
            Self::Unable
        } else {
            Self::Script
        }
    }
}

/// The server that a redirection by the one at `from` names.
pub(crate) fn redirected(error: &RedisError, from: &Address) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(told(from, host, port.parse().ok()?))
}

fn says_of_slot(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.starts_with("Hash slot"))
}

/// An element of an answer, as the script names it.
pub(crate) fn item(value: &Value) -> Item<'_> {
    match value {
        Value::Int(number) => Item::Int(*number),
        Value::BulkString(bytes) => Item::Bytes(bytes),
        _ => Item::Null,
    }
}

#[cfg(test)]
mod tests {
    use redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::script::Clock;

    fn meaning(line: &str) -> Refusal {
        let line = format!("-{line}\r\n");
        let told = redis::parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
        Refusal::of(&told.expect_err("it is an error"))
    }

    /// The commands before that one were carried out: told as refused, they would be charged once more.
    #[test]
    fn a_command_inside_the_script_that_is_not_permitted_is_a_failed_script() {
        for line in [
            "ERR Error running script (call to f_1f): @user_script:8: @user_script: 8: The user executing the script can't \
             run this command or subcommand",
            "ERR Error running script (call to f_1f): @user_script:8: NOPERM this user may not run 'zadd'",
            "ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:8.",
            "ERR ACL failure in script: User rk has no permissions to run the 'zadd' command script: 1f, on @user_script:8.",
        ] {
            assert_eq!(meaning(line), Refusal::Script, "{line}");
        }
        let whole = "NOPERM this user has no permissions to run the 'evalsha' command";
        assert_eq!(meaning(whole), Refusal::Unable);
    }

    /// Reads until `verb` has come `times` times.
    async fn hear(server: &mut DuplexStream, verb: &str, times: usize) {
        let verb = format!("\r\n{verb}\r\n");
        let mut heard = String::new();
        while heard.matches(&verb).count() < times {
            let mut some = [0; 4 << 10];
            let length = server.read(&mut some).await.expect("it is there");
            assert!(length > 0, "{heard}");
            heard.push_str(&String::from_utf8_lossy(&some[..length]));
        }
    }

    /// As when the scripts are flushed between two calls of one pipeline, and the server then goes.
    #[tokio::test]
    async fn answers_that_are_there_outlive_a_connection_that_is_cut_while_the_script_is_loaded() {
        let (ours, mut server) = tokio::io::duplex(1 << 20);
        let without_login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new();
        let opened = MultiplexedConnection::new_with_config(&without_login, ours, config).await;
        let (mut connection, driver) = opened.expect("nothing is asked of anybody");
        let calls = [(); 3].map(|()| Sent {
            call: Call::new(),
            told: None,
            is_asking: false,
        });
        let (script, metrics) = (Script::new(Clock::Server), Metrics::default());
        let serving = async {
            hear(&mut server, "EVALSHA", calls.len()).await;
            let answers = b":1\r\n-NOSCRIPT No matching script\r\n:3\r\n";
            server.write_all(answers).await.expect("it is there");
            hear(&mut server, "EVAL", 1).await;
            drop(server);
        };
        let asked = ask(&mut connection, &calls, &script, &metrics);
        let replies = tokio::select! {
            (replies, ()) = async { tokio::join!(asked, serving) } => replies,
            () = async { driver.await; std::future::pending().await } => unreachable!("it is pending"),
        };
        let replies = replies.expect("two calls were answered");
        assert_eq!(replies[0], Ok(Value::Int(1)));
        assert_eq!(replies[2], Ok(Value::Int(3)));
        let lost = replies[1].as_ref().expect_err("the outcome is unknown");
        assert!(is_of_connection(lost), "{lost}");
    }
}
