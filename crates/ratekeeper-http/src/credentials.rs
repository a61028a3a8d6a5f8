//! Parts of a request that name somebody: headers, cookies and bearer tokens.
//!
//! A service behind may be more liberal than we are about how they are written. What it could take for another name than
//! the one that is counted is refused, so that nobody gets a counter of their own by writing a name another way.

mod bearer;
mod cookie;

pub(crate) use bearer::{authorization, bearer_token};
pub(crate) use cookie::cookie;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Malformed;

/// The value of the header `name`, which may be there once.
pub(crate) fn header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Malformed> {
    if let Some(twin) = headers.keys().find(|other| is_twin(name, other)) {
        return Err(Malformed {
            place: format!("header {}", twin.as_str().escape_default()),
            message: format!("many services take it for {name}; write {name}"),
        });
    }
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    match lines.next() {
        None => text_of(name, line).map(Some),
        Some(_) => Err(repeated(format!("header {name}"))),
    }
}

/// Whether CGI, WSGI and PHP have one name for both headers: they write `-` as `_`.
fn is_twin(name: &HeaderName, other: &HeaderName) -> bool {
    let (name, other) = (name.as_str().as_bytes(), other.as_str().as_bytes());
    let folded = |byte: &u8| if *byte == b'-' { b'_' } else { *byte };
    name.len() == other.len()
        && name != other
        && name.iter().map(folded).eq(other.iter().map(folded))
}

fn text_of<'a>(name: &HeaderName, line: &'a HeaderValue) -> Result<&'a str, Malformed> {
    std::str::from_utf8(line.as_bytes().trim_ascii())
        .map_err(|_| Malformed::header(name, "it is not UTF-8"))
}

fn repeated(place: String) -> Malformed {
    Malformed {
        place,
        message: "it is there twice; send it once".to_owned(),
    }
}

#[cfg(test)]
mod tests;
