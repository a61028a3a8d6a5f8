"""A model that says `word` as often as `max_tokens` asks, by an API like OpenAI's, streamed or whole. In place of yours."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer("application/json", b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        words = asked.get("max_tokens", 100)
        prompt = sum(len(message["content"].split()) for message in asked.get("messages", []))
        usage = {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": prompt + words}
        if asked.get("stream"):
            events = [{"choices": [{"delta": {"content": "word "}}]} for _ in range(words)]
            events.append({"choices": [], "usage": usage})
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            self.answer("text/event-stream", ("".join(lines) + "data: [DONE]\n\n").encode())
        else:
            message = {"role": "assistant", "content": "word " * words}
            body = {"choices": [{"message": message}], "usage": usage}
            self.answer("application/json", json.dumps(body).encode())

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
