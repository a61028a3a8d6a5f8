"""Runs the binary that the environment variable RATEKEEPER names, on ports that are free."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Generator


@contextmanager
def running(rules: str, *args: str) -> Generator[dict[str, str], None, None]:
    """Starts it with rules, and gives the URLs of its listeners by their names."""
    binary = os.environ["RATEKEEPER"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rules.yaml").write_text(rules)
        common = ["--rules", "rules.yaml", "--admin", "127.0.0.1:0", "--drain-delay", "0s"]
        with open(Path(folder, "log"), "wb") as log:
            child = subprocess.Popen([binary, *args, *common], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert child.stdout
            urls: dict[str, str] = {}
            for line in child.stdout:
                found = re.match(r"\s*(\S+)\s+listening on\s+(?:http://)?(\S+)", line)
                if found:
                    urls[found[1].lower()] = f"http://{found[2]}"
                if line.startswith("Try:"):
                    break
            else:
                raise RuntimeError(f"it ended before it listened: {Path(folder, 'log').read_text()}")
            yield urls
        finally:
            child.kill()
            child.communicate()


def service(rules: str) -> Any:
    return running(rules, "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


def gateway(rules: str, upstream: str) -> Any:
    return running(rules, "gateway", "--listen", "127.0.0.1:0", "--upstream", upstream)


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Model(Upstream):
    """Streams 697 words, and says that they cost 700 tokens."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        word = 'data: {"choices":[{"delta":{"content":"word "}}]}\n\n'
        usage = 'data: {"choices":[],"usage":{"total_tokens":700}}\n\ndata: [DONE]\n\n'
        body = (word * 697 + usage).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def upstream() -> Any:
    return serving(Upstream)


def model() -> Any:
    return serving(Model)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Generator[str, None, None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
