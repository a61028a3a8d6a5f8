//! The spellings: other ways to write a request that is over its limit.

/// The thing that is limited, and that a spelling stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// `POST /orders/export`, a rule for an endpoint.
    Endpoint,
    /// `GET /admin/x`, a rule with a pattern for paths.
    Path,
    /// The API key `ada`.
    Key,
    /// The cookie `session`, with the value `abc`.
    Session,
    /// The query parameter `key`, with the value `abc`.
    Parameter,
    /// The subject `ada` of a checked token.
    Token,
    /// The host `shop.example`.
    Host,
}

/// A request as it is written on the wire. Characters up to U+00FF stand for the byte of that number, `{jwt}` for a good
/// token of `ada`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelling {
    pub(crate) subject: Subject,
    pub(crate) method: &'static str,
    pub(crate) target: &'static str,
    pub(crate) host: &'static str,
    pub(crate) lines: &'static [&'static str],
}

impl Spelling {
    /// The request that everybody sends.
    pub(crate) const fn plain(subject: Subject) -> Self {
        match subject {
            Subject::Endpoint => endpoint("POST", "/orders/export"),
            Subject::Path => path("/admin/x"),
            Subject::Key => with(subject, &["X-Api-Key: ada"]),
            Subject::Session => with(subject, &["Cookie: session=abc"]),
            Subject::Parameter => parameter("/?key=abc"),
            Subject::Token => with(subject, &["Authorization: Bearer {jwt}"]),
            Subject::Host => host("shop.example"),
        }
    }
}

impl std::fmt::Display for Spelling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.subject {
            Subject::Endpoint | Subject::Path if self.lines.is_empty() => {
                format!("{} {}", self.method, self.target)
            }
            Subject::Parameter => format!("{} {}", self.method, self.target),
            Subject::Host => format!("Host: {}", self.host),
            Subject::Endpoint
            | Subject::Path
            | Subject::Key
            | Subject::Session
            | Subject::Token => self.lines.join(" ⏎ "),
        };
        text.chars().try_for_each(|char| match char {
            '\t' => write!(f, "<TAB>"),
            ' '..='~' | '⏎' => write!(f, "{char}"),
            other => write!(f, "<{:02X}>", u32::from(other)),
        })
    }
}

pub(crate) const SUBJECTS: [Subject; 7] = [
    Subject::Endpoint,
    Subject::Path,
    Subject::Key,
    Subject::Session,
    Subject::Parameter,
    Subject::Token,
    Subject::Host,
];

const fn endpoint(method: &'static str, target: &'static str) -> Spelling {
    Spelling {
        subject: Subject::Endpoint,
        method,
        target,
        host: "localhost",
        lines: &[],
    }
}

const fn path(target: &'static str) -> Spelling {
    Spelling {
        subject: Subject::Path,
        ..endpoint("GET", target)
    }
}

const fn with(subject: Subject, lines: &'static [&'static str]) -> Spelling {
    Spelling {
        subject,
        lines,
        ..endpoint("GET", "/")
    }
}

const fn key(lines: &'static [&'static str]) -> Spelling {
    with(Subject::Key, lines)
}

const fn session(lines: &'static [&'static str]) -> Spelling {
    with(Subject::Session, lines)
}

const fn parameter(target: &'static str) -> Spelling {
    Spelling {
        subject: Subject::Parameter,
        ..endpoint("GET", target)
    }
}

const fn token(lines: &'static [&'static str]) -> Spelling {
    with(Subject::Token, lines)
}

const fn host(host: &'static str) -> Spelling {
    Spelling {
        subject: Subject::Host,
        host,
        ..endpoint("GET", "/")
    }
}

const fn overridden(lines: &'static [&'static str]) -> Spelling {
    Spelling {
        lines,
        ..endpoint("POST", "/")
    }
}

/// All of them.
pub(crate) const SPELLINGS: &[Spelling] = &[
    endpoint("POST", "/orders%2Fexport"),
    endpoint("POST", "/orders%2fexport"),
    endpoint("POST", "/orders%5Cexport"),
    endpoint("POST", "/orders\\export"),
    endpoint("POST", "/orders%252Fexport"),
    endpoint("POST", "/orders%c0%afexport"),
    endpoint("POST", "/orders%u002Fexport"),
    endpoint("POST", "//orders/export"),
    endpoint("POST", "///orders/export"),
    endpoint("POST", "/orders//export"),
    endpoint("POST", "//x/orders/export"),
    endpoint("POST", "/./orders/export"),
    endpoint("POST", "/orders/./export"),
    endpoint("POST", "/x/../orders/export"),
    endpoint("POST", "/x/%2e%2e/orders/export"),
    endpoint("POST", "/x/.%2E/orders/export"),
    endpoint("POST", "/orders/export/."),
    endpoint("POST", "/orders/export/x/.."),
    endpoint("POST", "/orders/export;x=1"),
    endpoint("POST", "/orders;x=1/export"),
    endpoint("POST", "/orders/export%3Bx=1"),
    endpoint("POST", "/;/orders/export"),
    endpoint("POST", "/orders/export/"),
    endpoint("POST", "/orders/export//"),
    endpoint("POST", "/orders/export?x"),
    endpoint("POST", "/orders/export?"),
    endpoint("POST", "/orders/export#x"),
    endpoint("POST", "/orders/export%3Fx"),
    endpoint("POST", "/orders/export%23x"),
    endpoint("POST", "/%6Frders/%65xport"),
    endpoint("POST", "/%6frders/export"),
    endpoint("POST", "/orders/export%00"),
    endpoint("POST", "/orders/export%00.css"),
    endpoint("POST", "/orders/export%20"),
    endpoint("POST", "/orders/export%09"),
    endpoint("POST", "/orders/export%0A"),
    endpoint("POST", "/orders/export%0D%0A"),
    endpoint("POST", "/orders/export%C2%A0"),
    endpoint("POST", "/Orders/Export"),
    endpoint("POST", "/ORDERS/EXPORT"),
    endpoint("POST", "/orders/\u{c3}\u{a9}xport"),
    endpoint("POST", "http://localhost/orders/export"),
    endpoint("POST", "http://localhost//orders/export"),
    endpoint("POST", "HTTP://LOCALHOST/orders/export"),
    endpoint("POST", "orders/export"),
    endpoint("POST", "localhost/orders/export"),
    endpoint("post", "/orders/export"),
    endpoint("Post", "/orders/export"),
    endpoint("POST\t", "/orders/export"),
    endpoint(" POST", "/orders/export"),
    overridden(&["X-Original-URL: /orders/export"]),
    overridden(&["X-Rewrite-URL: /orders/export"]),
    overridden(&["X-Forwarded-Prefix: /orders/export"]),
    path("/admin%2Fx"),
    path("/admin%2fx"),
    path("/admin/%78"),
    path("/%61dmin/x"),
    path("/admin//x"),
    path("//admin/x"),
    path("/admin/./x"),
    path("/admin/y/../x"),
    path("/admin/../admin/x"),
    path("/admin;/x"),
    path("/admin/x;y"),
    path("/admin/x/"),
    path("/admin\\x"),
    path("/admin%5Cx"),
    path("/Admin/x"),
    path("/admin/x%00"),
    path("/admin/x%0A"),
    path("/admin%252Fx"),
    key(&["x-api-key: ada"]),
    key(&["X-API-KEY:ada"]),
    key(&["X-Api-Key:\t ada \t"]),
    key(&["X_Api_Key: ada"]),
    key(&["X-Api_Key: ada"]),
    key(&["X_API-KEY: ada"]),
    key(&["X-Api-Key: eve", "X_Api_Key: ada"]),
    key(&["X-Api-Key: eve", "X-Api-Key: ada"]),
    key(&["X-Api-Key: ada", "X-Api-Key: eve"]),
    key(&["X-Api-Key: ada", "X-Api-Key: ada"]),
    key(&["X-Api-Key: ada", "X-Api-Key:"]),
    key(&["X-Api-Key:", "X-Api-Key: ada"]),
    key(&["X-Api-Key : ada"]),
    key(&["X: 1", " X-Api-Key: ada"]),
    key(&["X-Api-Key:", " ada"]),
    key(&["X-Api-Key: ada\u{b}"]),
    key(&["X-Api-Key: \u{c}ada"]),
    key(&["X-Api-Key: \u{a0}ada"]),
    key(&["X-Api-Key: ada\u{85}"]),
    key(&["X-Api-Key: ada\0"]),
    key(&["X-Api-Key: ada\r"]),
    key(&["Connection: X-Api-Key", "X-Api-Key: ada"]),
    key(&["HTTP_X_API_KEY: ada"]),
    session(&["cookie: session=abc"]),
    session(&["Cookie: session=\"abc\""]),
    session(&["Cookie: session=\"\\141bc\""]),
    session(&["Cookie: session=\"a\\bc\""]),
    session(&["Cookie: session=%61bc"]),
    session(&["Cookie: session=%61%62%63"]),
    session(&["Cookie: %73ession=abc"]),
    session(&["Cookie: session = abc"]),
    session(&["Cookie: session =abc"]),
    session(&["Cookie:  session=abc ;"]),
    session(&["Cookie: session=abc,x"]),
    session(&["Cookie: x=1,session=abc"]),
    session(&["Cookie: x=1, session=abc"]),
    session(&["Cookie: x=y session=abc"]),
    session(&["Cookie: $Version=1; session=abc"]),
    session(&["Cookie: session=abc; $Path=/"]),
    session(&["Cookie: session=abc; session=eve"]),
    session(&["Cookie: session=eve; session=abc"]),
    session(&["Cookie: session=eve", "Cookie: session=abc"]),
    session(&["Cookie: session=abc", "Cookie: session=eve"]),
    session(&["Cookie: x=\"y; session=abc"]),
    session(&["Cookie: x=\"; session=abc; y=\""]),
    session(&["Cookie: x=1;session=abc"]),
    session(&["Cookie: x;session=abc"]),
    session(&["Cookie: ;;session=abc"]),
    session(&["Cookie: \tsession=abc\t"]),
    session(&["Cookie: session=\u{a0}abc"]),
    session(&["Cookie: \u{a0}session=abc"]),
    session(&["Cookie: session=abc\u{a0}"]),
    session(&["Cookie: session\u{a0}=abc"]),
    session(&["Cookie: x=1;\u{a0}session=abc"]),
    session(&["Cookie: x=1;\u{85}session=abc"]),
    session(&["Cookie: x=1;\u{b}session=abc"]),
    session(&["Cookie: Session=abc"]),
    session(&["Cookie: session==abc"]),
    session(&["Cookie: session=j:\"abc\""]),
    session(&["Cookie: session=j:%22abc%22"]),
    session(&["Cookie: session=j:%20%22abc%22"]),
    session(&["Cookie: session=j:%20%20%0A%22abc%22"]),
    session(&["Cookie: session=j%3A%22abc%22"]),
    session(&["Cookie: session=%6a:%22abc%22"]),
    session(&["Cookie: session=j:%22%5Cu0061bc%22"]),
    session(&["Cookie: session=\"j:%22abc%22\""]),
    session(&["Cookie: session=j:[%22abc%22]"]),
    session(&["Cookie: session=s:abc.x"]),
    session(&["Cookie: session=abc%20"]),
    session(&["Cookie_: session=abc"]),
    parameter("/?%6Bey=abc"),
    parameter("/?key=%61bc"),
    parameter("/?key=abc&key=abc"),
    parameter("/?key=abc&key=eve"),
    parameter("/?key=eve&key=abc"),
    parameter("/?[key]=abc"),
    parameter("/?%5Bkey%5D=abc"),
    parameter("/?[[key]]=abc"),
    parameter("/?key[]=abc"),
    parameter("/?key[0]=abc"),
    parameter("/?key[1000]=abc"),
    parameter("/?key[x]=abc"),
    parameter("/?key%5B%5D=abc"),
    parameter("/?key%5b0%5d=abc"),
    parameter("/?key%255B%255D=abc"),
    parameter("/?key.x=abc"),
    parameter("/?KEY=abc"),
    parameter("/?+key=abc"),
    parameter("/?key+=abc"),
    parameter("/?key%00=abc"),
    parameter("/?%256Bey=abc"),
    parameter("/?key=%2561bc"),
    parameter("/?x=1;key=abc"),
    parameter("/?key=abc;x=1"),
    parameter("/?key=abc;"),
    parameter("/?key=abc%00"),
    parameter("/?key=abc%0A"),
    parameter("/?key=abc%20"),
    parameter("/?key=+abc"),
    parameter("/?key=abc%FF"),
    parameter("/?&key=abc"),
    parameter("/??key=abc"),
    parameter("/?key==abc"),
    parameter("/?key=abc#x"),
    token(&["authorization: bearer {jwt}"]),
    token(&["Authorization: BEARER {jwt}"]),
    token(&["Authorization: Bearer  {jwt}"]),
    token(&["Authorization: Bearer\t{jwt}"]),
    token(&["Authorization: Bearer \t{jwt}"]),
    token(&["Authorization: \tBearer {jwt} "]),
    token(&["Authorization: Bearer\u{a0}{jwt}"]),
    token(&["Authorization: Bearer\u{85}{jwt}"]),
    token(&["Authorization: Bearer\u{b}{jwt}"]),
    token(&["Authorization: Bearer\u{1f}{jwt}"]),
    token(&["Authorization: Bearer \u{a0}{jwt}"]),
    token(&["Authorization: Bearer {jwt}\u{a0}"]),
    token(&["Authorization: \u{a0}Bearer {jwt}"]),
    token(&["Authorization: Basic x, Bearer {jwt}"]),
    token(&["Authorization: Basic x,Bearer {jwt}"]),
    token(&["Authorization: Bearer {jwt}, Basic x"]),
    token(&["Authorization: Bearer {jwt},"]),
    token(&["Authorization: , Bearer {jwt}"]),
    token(&["Authorization: Bearer {jwt} x"]),
    token(&["Authorization: x Bearer {jwt}"]),
    token(&["Authorization: Bearer Bearer {jwt}"]),
    token(&["Authorization: Bearer: {jwt}"]),
    token(&["Authorization: Bearer \"{jwt}\""]),
    token(&["Authorization: Bearer {jwt}="]),
    token(&["Authorization: Bearer {jwt}=="]),
    token(&["Authorization: Bearer {jwt}."]),
    token(&["Authorization: Bearer {jwt};x"]),
    token(&["Authorization: Bearer%20{jwt}"]),
    token(&["Authorization: Bearer{jwt}"]),
    token(&["Authorization: JWT {jwt}"]),
    token(&["Authorization: Token {jwt}"]),
    token(&["Authorization: {jwt}"]),
    token(&["Authorization: Basic x", "Authorization: Bearer {jwt}"]),
    token(&["Authorization: Bearer {jwt}", "Authorization: Basic x"]),
    token(&["Authorization: Bearer x", "Authorization: Bearer {jwt}"]),
    token(&["Authorization_: Bearer {jwt}"]),
    token(&["Proxy-Authorization: Bearer {jwt}"]),
    token(&["X-Authorization: Bearer {jwt}"]),
    host("SHOP.example"),
    host("shop.example."),
    host("shop.example.."),
    host("shop.example:80"),
    host("shop.example:0080"),
    host("shop.example:"),
    host("shop.example.:80"),
    host("shop.example:80:80"),
    host(" shop.example\t"),
    host("x@shop.example"),
    host("shop.example/"),
    host("shop.example#"),
    host("shop.example?"),
    host("shop.example,x"),
    host("x,shop.example"),
    host("shop%2Eexample"),
    host("shop.example\u{a0}"),
];
