//! The rights that the user of a connection needs.

use redis::Cmd;

use crate::server_address::Login;
use crate::server_error::ServerError;

/// All commands in use, as an ACL grants them.
const COMMANDS: &str = "+ping +info +time +eval +evalsha +get +set +del +pexpire +pttl +exists +incrby +hget +hset +zadd +zrem \
                        +zcount +zscore +zremrangebyscore +zrangebyscore +wait";

/// The further commands for a cluster.
const OF_CLUSTERS: &str = " +cluster|slots +cluster|info +cluster|nodes +asking";

/// The login, prefix and kind of server that rights are needed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights<'a> {
    pub(crate) login: &'a Login,
    /// The prefix of all keys.
    pub(crate) prefix: &'a str,
    pub(crate) is_cluster: bool,
}

impl Rights<'_> {
    /// Asks which of these commands the user may not use on keys with the prefix: an array of names.
    pub(crate) fn question(self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command
            .arg(include_str!("script/rights.lua"))
            .arg(0)
            .arg(format!("{}{{user}}counter", self.prefix))
            .arg(u8::from(self.is_cluster));
        command
    }

    /// The command by which an operator grants this user all of them.
    pub(crate) fn grant(self) -> String {
        let user = self.login.user.as_deref().unwrap_or("default");
        let select = if self.login.db == 0 { "" } else { " +select" };
        let cluster = if self.is_cluster { OF_CLUSTERS } else { "" };
        format!(
            "ACL SETUSER {user} {COMMANDS}{select}{cluster} ~{}*",
            self.prefix
        )
    }

    /// The error for a user who lacks some of them.
    pub(crate) fn refusal(self, lacking: &[String]) -> ServerError {
        ServerError::LacksRights {
            commands: lacking.join(", "),
            prefix: self.prefix.to_owned(),
            grant: self.grant(),
        }
    }
}
