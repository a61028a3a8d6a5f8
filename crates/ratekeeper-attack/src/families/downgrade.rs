//! TLS: old versions, weak suites, other protocols and no TLS at all, by hand-made greetings.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratekeeper_testkit::certificates::{Authority, Validity};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::Setup;

const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    rate_limit: { unit: minute, limit: 1 }
";

/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

const TLS_1_2: u16 = 0x0303;

/// Versions that are no longer secure.
const OLD: [(&str, u16); 3] = [
    ("SSL 3.0", 0x0300),
    ("TLS 1.0", 0x0301),
    ("TLS 1.1", 0x0302),
];

/// Suites with authenticated encryption and keys that are forgotten.
const STRONG: [u16; 4] = [0xc02b, 0xc02c, 0xc02f, 0xc030];

/// Suites of TLS 1.2 without one of those, each of which is offered alone.
const WEAK: [(&str, u16); 10] = [
    ("NULL", 0x003b),
    ("RC4", 0x0005),
    ("export", 0x0003),
    ("3DES", 0x000a),
    ("anonymous", 0x0034),
    ("RSA, CBC", 0x002f),
    ("RSA, GCM", 0x009c),
    ("DHE, GCM", 0x009e),
    ("ECDHE, CBC, RSA", 0xc013),
    ("ECDHE, CBC, ECDSA", 0xc009),
];

/// The types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// The end of the random bytes of a server that could speak TLS 1.3 and was made to speak 1.2: RFC 8446, section 4.1.3.
const SENTINEL: &[u8] = b"DOWNGRD\x01";

/// The first message of a client.
struct Hello<'a> {
    version: u16,
    suites: &'a [u16],
    compression: u8,
    /// The protocol to speak within; empty for none.
    protocol: &'a str,
}

const HELLO: Hello<'_> = Hello {
    version: TLS_1_2,
    suites: &STRONG,
    compression: 0,
    protocol: "",
};

pub(crate) fn attack(program: &Path, _: &Plan) -> Result<Vec<Row>> {
    let identity = Authority::new().issue("localhost", Validity::Valid);
    let setup = Setup::serve(program).rules(RULES);
    let setup = setup.file("tls.crt", &identity.certificate);
    let setup = setup.file("tls.key", &identity.key);
    let flags = ["--http-tls-cert", "tls.crt", "--http-tls-key", "tls.key"];
    let target = setup.args(&flags).start();
    let answer = |bytes: &[u8]| ask(target.port, bytes);
    // Without an answer to a good one, no refusal would mean anything.
    let good = answer(&HELLO.record())?;
    ensure!(
        good.first() == Some(&HANDSHAKE),
        "TLS 1.2 is not answered: {good:?}"
    );
    let mut row = Row::new("TLS downgraded");
    let warns = good.windows(SENTINEL.len()).any(|bytes| bytes == SENTINEL);
    row.bound(warns, "a client is not told that TLS 1.3 was left out");
    for (name, version) in OLD {
        row.count(fate(&answer(&Hello { version, ..HELLO }.record())?), name);
    }
    for (name, suite) in WEAK {
        let hello = Hello {
            suites: &[suite],
            ..HELLO
        };
        row.count(fate(&answer(&hello.record())?), name);
    }
    let compressed = Hello {
        compression: 1,
        ..HELLO
    };
    row.count(fate(&answer(&compressed.record())?), "compression");
    for protocol in ["h2", "foo", "http/1.0"] {
        let hello = Hello { protocol, ..HELLO };
        row.count(
            fate(&answer(&hello.record())?),
            format!("the protocol {protocol}"),
        );
    }
    for (name, text) in [
        (
            "HTTP without TLS",
            &b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        ),
        (
            "HTTP/2 without TLS",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        ),
    ] {
        row.count(fate(&answer(text)?), name);
    }
    let again = answer(&HELLO.record())?;
    row.bound(
        again.first() == Some(&HANDSHAKE),
        "clients are no longer answered",
    );
    row.measure(&target.process);
    Ok(vec![row])
}

impl Hello<'_> {
    /// The message in its record.
    fn record(&self) -> Vec<u8> {
        let mut body = self.version.to_be_bytes().to_vec();
        // Random bytes, that need not be, and no session.
        body.extend([7; 32]);
        body.push(0);
        let suites: Vec<u8> = self
            .suites
            .iter()
            .flat_map(|suite| suite.to_be_bytes())
            .collect();
        body.extend(long(&suites));
        body.extend([1, self.compression]);
        body.extend(long(&self.extensions()));
        let mut message = vec![1, 0];
        message.extend(long(&body));
        let mut record = vec![HANDSHAKE, 3, 1];
        record.extend(long(&message));
        record
    }

    fn extensions(&self) -> Vec<u8> {
        // x25519 and P-256; ECDSA and RSA with SHA-256.
        let mut all = vec![0, 10, 0, 6, 0, 4, 0, 29, 0, 23];
        all.extend([0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1]);
        if !self.protocol.is_empty() {
            let name = self.protocol.as_bytes();
            let list = [&[name.len() as u8][..], name].concat();
            all.extend([0, 16]);
            all.extend(long(&long(&list)));
        }
        all
    }
}

/// `bytes` behind their number in two bytes.
fn long(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// The server's first bytes, none if it closes the connection.
fn ask(port: u16, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("it does not listen")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // It may close before it has read all.
    let _ = stream.write_all(bytes);
    let mut answer = vec![0; 4_096];
    match stream.read(&mut answer) {
        Ok(count) => answer.truncate(count),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => answer.clear(),
        Err(error) => return Err(error).context("no answer and no end"),
    }
    Ok(answer)
}

/// The fate of an attempt by the first byte of the answer.
fn fate(answer: &[u8]) -> Fate {
    match answer.first() {
        None | Some(&ALERT) => Fate::Refused,
        Some(_) => Fate::Passed,
    }
}
