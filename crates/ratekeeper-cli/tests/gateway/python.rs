//! The gateway between clients and servers written in Python.

use std::process::Command;

use crate::support::Gateway;
use ratekeeper_testkit::process::{Process, free_port, output_of};

/// Debian's, which has the package of websockets.
fn python() -> Command {
    Command::new("/usr/bin/python3")
}

/// Both ends are python-websockets.
#[test]
fn websockets_pass() {
    const SERVER: &str = "
import asyncio, sys, websockets
patient = dict(ping_interval=None, close_timeout=60)
async def echo(ws, path=None):
    async for message in ws:
        await ws.send(message)
async def main():
    async with websockets.serve(echo, '127.0.0.1', int(sys.argv[1]), max_size=None, **patient):
        await asyncio.Future()
asyncio.run(main())
";
    const CLIENT: &str = "
import asyncio, sys, websockets
patient = dict(ping_interval=None, close_timeout=60)
async def main():
    async with websockets.connect(sys.argv[1], max_size=None, open_timeout=60, **patient) as ws:
        large = bytes(range(256)) * 4096
        for message in ['one', 'zwei \\u00fc', large]:
            await ws.send(message)
            assert await ws.recv() == message
        await (await ws.ping())
    assert ws.close_code == 1000, ws.close_code
    print('closed in good order')
asyncio.run(main())
";
    let port = free_port();
    let mut command = python();
    command.args(["-c", SERVER, &port.to_string()]);
    let mut server = Process::spawn("websockets", command);
    server.wait_for_port(port);
    let gateway = Gateway::start(&format!("http://127.0.0.1:{port}"), &[]);
    let url = format!("ws://127.0.0.1:{}/chat", gateway.port);
    let said = output_of(python().args(["-c", CLIENT, &url]));
    assert_eq!(said.trim(), "closed in good order");
}

/// Both ends are Python's own: a client that keeps its connection, and a server of HTTP/1.0 that closes after each answer.
#[test]
fn pythons_client_and_server_understand_each_other() {
    const CLIENT: &str = "
import http.client, sys
connection = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=30)
connection.connect()
connection.auto_open = 0
def ask(method, path, **headers):
    connection.request(method, path, headers={name.replace('_', '-'): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer, answer.read()
answer, body = ask('GET', '/file')
assert (answer.status, len(body)) == (200, 3 << 20), (answer.status, len(body))
date = answer.headers['Last-Modified']
answer, body = ask('HEAD', '/file')
assert (answer.status, answer.headers['Content-Length'], body) == (200, str(3 << 20), b''), answer.headers
answer, body = ask('GET', '/file', If_Modified_Since=date)
assert (answer.status, body) == (304, b''), answer.status
answer, body = ask('GET', '/none')
assert answer.status == 404 and b'File not found' in body, answer.status
answer, body = ask('DELETE', '/file')
assert answer.status == 501, answer.status
answer, body = ask('GET', '/', X_Api_Key='few')
assert (answer.status, answer.headers['X-RateLimit-Remaining']) == (200, '2'), answer.headers
print('all on one connection')
";
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("file"), vec![b'x'; 3 << 20]).expect("it can be written");
    let port = free_port();
    let mut command = python();
    command.args(["-m", "http.server", "--bind", "127.0.0.1"]);
    command.arg(port.to_string()).current_dir(folder.path());
    let mut server = Process::spawn("http.server", command);
    server.wait_for_port(port);
    let gateway = Gateway::start(&format!("http://127.0.0.1:{port}"), &[]);
    let said = output_of(python().args(["-c", CLIENT, &gateway.port.to_string()]));
    assert_eq!(said.trim(), "all on one connection");
}
