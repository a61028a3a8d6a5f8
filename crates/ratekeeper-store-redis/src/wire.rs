//! Calls of the script as they go over the wire, and what a server says that does not answer them.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::lane::Lane;
use crate::script::Call;

/// A call of the script as it is sent.
pub(crate) struct Sent {
    pub(crate) call: Call,
    /// The time, for servers that are told.
    pub(crate) told: Option<u64>,
    pub(crate) is_asking: bool,
}

impl Sent {
    /// By the script's name, or by its text, which also loads it.
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

/// Asks by the script's name. A server that does not know the script has executed nothing, and is
/// asked again with the text.
pub(crate) async fn ask(
    connection: &mut MultiplexedConnection,
    calls: &[Sent],
    lane: &Lane,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let script = &lane.asking.script;
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
        lane.shard.metrics.reloaded();
        let calls: Vec<&Sent> = unknown.iter().map(|number| &calls[*number]).collect();
        let loaded = send(connection, &calls, |call| {
            call.command("EVAL", script.text())
        })
        .await?;
        for (number, reply) in unknown.into_iter().zip(loaded) {
            replies[number] = reply;
        }
    }
    Ok(replies)
}

/// The answer to each call, sent together; an error if the connection has ended.
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
        // A server that answers less than it was asked breaks the protocol.
        skipped.unwrap_or(Value::Nil).extract_error()
    };
    Ok(calls.iter().map(&mut reply_to).collect())
}

fn is_of_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error()
}

/// What a refusal says of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is there, and cannot serve: out of memory, unable to persist.
    Unable,
    /// It is not ready, or its cluster is not, and has carried out nothing.
    Unready,
    /// It is a replica by now, or serves this slot no more, and does not know who does.
    Elsewhere,
    /// The slot is another's.
    Moved,
    /// The slot is on its way to another, and these counters are there already.
    Ask,
    /// The slot is on its way, and these counters are not all at one end of it.
    Later,
    /// The script failed.
    Script,
}

impl Refusal {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => match kind {
                // Of one slot, and not of the server.
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

    /// Before Redis 7 a script that fails says so in words alone.
    fn of_text(text: &str) -> Self {
        const UNABLE: [&str; 7] = [
            "OOM",
            "MISCONF",
            "NOREPLICAS",
            "BUSY",
            "LOADING",
            "NOAUTH",
            "NOPERM",
        ];
        if text.contains("READONLY") {
            Self::Elsewhere
        } else if UNABLE.into_iter().any(|code| text.contains(code)) {
            Self::Unable
        } else {
            Self::Script
        }
    }
}

fn says_of_slot(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.starts_with("Hash slot"))
}
