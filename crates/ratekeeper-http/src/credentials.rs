//! Parts of a request that name a caller: headers, query parameters, cookies and bearer tokens.
//!
//! An upstream may parse them more liberally than this module. Anything that an upstream could read
//! as another name than the counted one is refused, so that callers cannot get a fresh counter by
//! spelling a name differently.

mod bearer;
mod cookie;
mod query;

pub(crate) use bearer::{authorization, bearer_token};
pub(crate) use cookie::{AmbiguousCookies, cookie};
pub(crate) use query::parameter;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Malformed;

/// The value of the header `name`, which must not be repeated.
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

/// Returns true if CGI, WSGI and PHP give both headers the same name, because they map `-` to `_`.
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
