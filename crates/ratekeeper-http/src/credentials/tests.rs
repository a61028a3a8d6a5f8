use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{AmbiguousCookies, authorization, bearer_token, cookie, header, parameter};

fn lines(name: &HeaderName, values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        headers.append(name, value);
    }
    headers
}

/// The token, or `refused`.
fn token(values: &[&str]) -> Option<String> {
    let headers = lines(&AUTHORIZATION, values);
    match bearer_token(&headers) {
        Ok(token) => token.map(str::to_owned),
        Err(_) => Some("refused".to_owned()),
    }
}

#[test]
fn a_bearer_token_has_one_way_to_be_written() {
    for one in [
        "Bearer a.b-c_d~e+f/g==",
        "bearer a.b-c_d~e+f/g==",
        "BEARER   a.b-c_d~e+f/g==",
        " Bearer a.b-c_d~e+f/g== ",
    ] {
        assert_eq!(token(&[one]).as_deref(), Some("a.b-c_d~e+f/g=="), "{one}");
    }
    // A token of Laravel.
    assert_eq!(token(&["Bearer 7|x:y"]).as_deref(), Some("7|x:y"));
    for refused in [
        "Bearer\ta.b.c",
        "Bearer \ta.b.c",
        "Bearer\u{a0}a.b.c",
        "Bearer: a.b.c",
        "Bearer, a.b.c",
        "Bearer=a.b.c",
        "Bearer a.b.c, Basic x",
        "Bearer a b",
        "Bearer a,b",
        "Bearer \"a.b.c\"",
        "Bearer a\\b",
        "Bearer caf\u{e9}",
        "Basic x, Bearer a.b.c",
        "Basic x,Bearer a.b.c",
        "Basic x bearer a.b.c",
        "Basic x, bEARER\ta.b.c",
        ",Bearer a.b.c",
        "\"Bearer a.b.c",
        "Digest x=1, Bearer",
    ] {
        assert_eq!(token(&[refused]).as_deref(), Some("refused"), "{refused}");
    }
    for other in [
        "Basic dDprZW4=",
        "Bearer",
        "Bearer  ",
        "bearertoken",
        "",
        "Basic bearer==",
    ] {
        assert_eq!(token(&[other]), None, "{other}");
    }
    for twice in [
        ["Bearer a", "Bearer b"],
        ["Bearer a", "Bearer a"],
        ["Basic x", "Bearer a"],
    ] {
        assert_eq!(token(&twice).as_deref(), Some("refused"), "{twice:?}");
    }
}

#[test]
fn the_signature_of_an_unchecked_token_has_one_spelling() {
    assert_eq!(
        token(&["Bearer eyJh.eyJz.AAA"]).as_deref(),
        Some("eyJh.eyJz.AAA")
    );
    // Lenient decoders read each of them as the same signature.
    for refused in [
        "eyJh.eyJz.AAB",
        "eyJh.eyJz.AAA=",
        "eyJh.eyJz.AAA!",
        "eyJh.eyJz.A~AA",
    ] {
        assert_eq!(
            token(&[&format!("Bearer {refused}")]).as_deref(),
            Some("refused"),
            "{refused}"
        );
    }
}

#[test]
fn the_whole_of_authorization_has_one_spelling_of_its_scheme() {
    for (written, wanted) in [
        ("bEARER  t", "Bearer t"),
        ("Bearer t", "Bearer t"),
        ("basic  dDprZW4=", "Basic dDprZW4="),
        ("Basic dDprZW4=", "Basic dDprZW4="),
        ("ApiKey k", "ApiKey k"),
    ] {
        let headers = lines(&AUTHORIZATION, &[written]);
        let said = authorization(&headers).expect("it has one meaning");
        assert_eq!(said.as_deref(), Some(wanted), "{written}");
    }
    for refused in ["Basic\tdDprZW4=", "Basic x, y", "Bearer\tt"] {
        assert!(
            authorization(&lines(&AUTHORIZATION, &[refused])).is_err(),
            "{refused}"
        );
    }
}

/// The cookie `session`, or `refused`.
fn session(values: &[&str]) -> Option<String> {
    session_with(values, AmbiguousCookies::Refuse)
}

fn session_with(values: &[&str], ambiguous: AmbiguousCookies) -> Option<String> {
    match cookie(&lines(&COOKIE, values), "session", ambiguous) {
        Ok(value) => value.map(std::borrow::Cow::into_owned),
        Err(_) => Some("refused".to_owned()),
    }
}

#[test]
fn a_cookie_is_read_as_services_read_it() {
    for one in [
        "session=abc",
        "a=b; session=abc; c=d",
        "a=b;session = abc",
        "session=\"abc\"",
        "session=%61bc",
        "session=\"%61b%63\"",
        "mysession=x; session=abc; session2=y; a.session=z",
    ] {
        assert_eq!(session(&[one]).as_deref(), Some("abc"), "{one}");
    }
    assert_eq!(
        session(&["a=b", "session=abc"]).as_deref(),
        Some("abc"),
        "HTTP/2 sends pieces"
    );
    for none in [
        "a=b",
        "session",
        "a=session=abc",
        "url=/x?session=abc",
        "Session=abc",
    ] {
        assert_eq!(session(&[none]), None, "{none}");
    }
    for refused in [
        // Flask and Django decode octal escapes.
        "session=\"\\141bc\"",
        "session=\"a\\bc\"",
        "session=\"abc",
        "session=a\"bc",
        // Some services end a value at a space or a comma.
        "session=abc x",
        "session=abc\tx",
        "session=abc,x",
        "a=b session=abc",
        "a=b, session=abc",
        "a=b\tsession=abc",
        "a=\"; session=abc",
        // PHP decodes names.
        "%73ession=abc",
        "session=a; s%65ssion=b",
        "session=\u{e9}",
    ] {
        let said = session(&[refused]);
        let is_alone = refused.starts_with("a=\";");
        let wanted = if is_alone { "abc" } else { "refused" };
        assert_eq!(said.as_deref(), Some(wanted), "{refused}");
    }
    for twice in [
        &["session=a; session=b"][..],
        &["session=a; session=a"],
        &["session=a", "session=a"],
    ] {
        assert_eq!(session(twice).as_deref(), Some("refused"), "{twice:?}");
    }
    let dotted = lines(&COOKIE, &["my.id=1"]);
    let folded = cookie(&dotted, "my_id", AmbiguousCookies::Accept);
    assert!(folded.is_err(), "PHP takes a dot for `_`");
}

/// Express reads each of the first four as `abc`.
#[test]
fn a_cookie_that_decodes_to_something_that_is_decoded_again_is_refused_unless_settings_accept_it() {
    for (sent, decoded) in [
        ("j%3A%22abc%22", "j:\"abc\""),
        ("j:%20%20%22abc%22", "j:  \"abc\""),
        ("j:%22%5Cu0061bc%22", "j:\"\\u0061bc\""),
        ("%6a:%22abc%22", "j:\"abc\""),
        ("j:1", "j:1"),
        ("s%3Aid.x%2By", "s:id.x+y"),
        ("s:id.x", "s:id.x"),
        ("%22abc%22", "\"abc\""),
        ("a%5Cbc", "a\\bc"),
        ("abc%20", "abc "),
    ] {
        for sent in [format!("session={sent}"), format!("session=\"{sent}\"")] {
            assert_eq!(session(&[&sent]).as_deref(), Some("refused"), "{sent}");
            let accepted = session_with(&[&sent], AmbiguousCookies::Accept);
            assert_eq!(accepted.as_deref(), Some(decoded), "{sent}");
        }
    }
    for harmless in ["js:x", "a:b", "J:x", "abc%2By", "%7Bx%7D"] {
        let said = session(&[&format!("session={harmless}")]);
        assert_ne!(said.as_deref(), Some("refused"), "{harmless}");
    }
}

/// The parameter `api_key`, or `refused`.
fn api_key(query: &str) -> Option<String> {
    match parameter(query.as_bytes(), "api_key") {
        Ok(value) => value,
        Err(_) => Some("refused".to_owned()),
    }
}

#[test]
fn a_parameter_is_read_as_services_read_it() {
    for one in [
        "api_key=abc",
        "a=b&api_key=abc&c=d",
        "api_key=%61bc",
        "%61pi_key=abc",
        "&&api_key=abc&",
        "api_key=abc&api_key=%61bc",
        "a;b=c&api_key=abc",
        "my_api_key=x&api_key=abc&api_key2=y",
        "a[api_key]=x&api_key=abc",
    ] {
        assert_eq!(api_key(one).as_deref(), Some("abc"), "{one}");
    }
    for (written, wanted) in [
        ("api_key=a+b%20c", "a b c"),
        ("api_key=a%2Bb", "a+b"),
        ("api_key=a=b", "a=b"),
        ("api_key=100%", "100%"),
        ("api_key=%zz", "%zz"),
        ("api_key=a%3Bb", "a;b"),
        ("api_key=caf%C3%A9", "caf\u{e9}"),
        ("api_key=", ""),
        ("api_key", ""),
    ] {
        assert_eq!(api_key(written).as_deref(), Some(wanted), "{written}");
    }
    for none in [
        "",
        "a=b",
        "xapi_key=1",
        "api_keys=1",
        "a[api_key]=1",
        "a=api_key",
    ] {
        assert_eq!(api_key(none), None, "{none}");
    }
    for refused in [
        // Express and Rack.
        "[api_key]=abc",
        "%5Bapi_key%5D=abc",
        "[[api_key]=abc",
        "api_key]=abc",
        "api_key[]=abc",
        "api_key[0]=abc",
        "api_key%5B%5D=abc",
        "api_key%5b0%5d=abc",
        "api_key[x][y]=abc",
        "api_key[=abc",
        // PHP.
        "+api_key=abc",
        "%20api_key=abc",
        "api.key=abc",
        "api+key=abc",
        "api[key=abc",
        "api.key[]=abc",
        "api_key%00=abc",
        "api_key%00x=abc",
        // ASP.NET.
        "API_KEY=abc",
        "Api_Key[]=abc",
        // Those that decode twice.
        "%2561pi_key=abc",
        "api_key%255B%255D=abc",
        "api_key=%2561bc",
        // Those that end a parameter at a semicolon, and those that do not.
        "a=b;api_key=abc",
        "a;api_key[]=abc",
        "api_key=abc;a=b",
        "api_key=abc;",
        "api_key;a=b",
        // Those that trim, that end a text at NUL, and that replace what is no UTF-8.
        "api_key=abc%20",
        "api_key=+abc",
        "api_key=abc%C2%A0",
        "api_key=abc%0A",
        "api_key=abc%00",
        "api_key=abc%FF",
        "api_key=abc&api_key=abd",
        "api_key=abc&[api_key]=abc",
    ] {
        assert_eq!(api_key(refused).as_deref(), Some("refused"), "{refused}");
    }
}

#[test]
fn a_header_has_no_twin_with_underscores() {
    let key = HeaderName::from_static("x-api-key");
    assert_eq!(header(&lines(&key, &[" a "]), &key), Ok(Some("a")));
    assert_eq!(header(&HeaderMap::new(), &key), Ok(None));
    assert!(header(&lines(&key, &["a", "a"]), &key).is_err());
    for twin in ["x_api_key", "x-api_key", "x_api-key"] {
        let twin = HeaderName::from_static(twin);
        let said = header(&lines(&twin, &["a"]), &key).expect_err("a twin");
        assert_eq!(
            said.to_string(),
            format!("header {twin}: many services take it for x-api-key; write x-api-key")
        );
        assert!(header(&lines(&key, &["a"]), &twin).is_err());
    }
}
