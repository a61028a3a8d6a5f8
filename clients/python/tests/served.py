"""A service over connections that are kept, for tests of what only real ones show."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Generator

# What it answers to a call, by its path and body.
Answer = Callable[[str, Any], Any]


class Served(ThreadingHTTPServer):
    """Answers each connection in a thread of its own, and counts them."""

    daemon_threads = True
    # Connections that wait to be accepted.
    request_queue_size = 512

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answer = answer
        self.lock = threading.Lock()
        self.connections = 0
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client may leave its connections open with the loop that it had.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body go together: the second of two writes would wait until the first is acknowledged.
    wbufsize = -1
    server: Served

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.asked.append(self.path)
        answer = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(answer: Answer) -> Generator[Served, None, None]:
    server = Served(answer)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
