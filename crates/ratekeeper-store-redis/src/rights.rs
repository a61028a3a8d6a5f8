//! What the user of a connection must be allowed to do.

use redis::Cmd;

use crate::node::Login;

/// All that is done, as an ACL grants it.
const COMMANDS: &str = "+ping +info +time +eval +evalsha +get +set +del +pexpire +zadd +zrem +zcount +zscore \
                        +zremrangebyscore";

/// Asks which of these commands the user may not use on keys that begin with `prefix`: an array
/// of names.
pub(crate) fn question(prefix: &str) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command
        .arg(include_str!("script/rights.lua"))
        .arg(0)
        .arg(format!("{prefix}{{user}}counter"));
    command
}

/// What an operator types so that this user may do all of it.
pub(crate) fn grant(login: &Login, prefix: &str) -> String {
    let user = login.user.as_deref().unwrap_or("default");
    let select = if login.db == 0 { "" } else { " +select" };
    format!("ACL SETUSER {user} {COMMANDS}{select} ~{prefix}*")
}

/// What is said of a user who may not do all of it.
pub(crate) fn refusal(lacking: &[String], login: &Login, prefix: &str) -> String {
    format!(
        "the user may not use {} on keys that begin with {prefix}; grant it: {}",
        lacking.join(", "),
        grant(login, prefix)
    )
}
