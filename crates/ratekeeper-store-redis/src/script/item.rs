//! The elements of the script's answers.

/// One element of the array that the script returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// Null.
    Null,
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bytes(&'a [u8]),
}

/// The reason that an answer cannot be used. The outcome of the call is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// It is shorter or longer than the call, or something else than was asked for: it is no answer
    /// of this version's script.
    #[error("the script's answer is malformed")]
    Malformed,
    /// The script let requests pass that its own state denies, or the other way round: another
    /// program writes to the same keys, or the script and this program differ.
    #[error("the script's answer contradicts the state it read")]
    Disagrees,
    /// The key of a group's counter holds something else. That group was not carried out, all others were.
    #[error("the key holds something that is not a counter")]
    Corrupt,
}

/// The number that an item is.
pub(super) fn integer(item: Option<Item<'_>>) -> Result<u64, AnswerError> {
    match item {
        Some(Item::Int(number)) => u64::try_from(number).map_err(|_| AnswerError::Malformed),
        _ => Err(AnswerError::Malformed),
    }
}
