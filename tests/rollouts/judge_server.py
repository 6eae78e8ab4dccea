"""A judge model on loopback that answers questions about transcripts over Chat Completions."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MARK = re.compile(r"^<transcript-([0-9a-f]{8})>$", re.MULTILINE)
USAGE = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}


class _Server(ThreadingHTTPServer):
    # Dozens of calls connect at once.
    request_queue_size = 256
    daemon_threads = True


class JudgeServer:
    """`answer` gets the transcript, and returns the fields of the answer or an HTTP status; 429 is an exhausted quota.

    `asked` are the transcripts, `most` is the highest number of calls at the same time.
    """

    def __init__(self, answer: Callable[[str], dict[str, Any] | int], *, seconds: float = 0.0) -> None:
        self.asked: list[str] = []
        self.most = self.now = 0
        self._answer, self._seconds, self._lock = answer, seconds, threading.Lock()
        judge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, reply = judge.reply(body["messages"][1]["content"])
                content = json.dumps(reply).encode()
                # The client may be killed meanwhile.
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def reply(self, prompt: str) -> tuple[int, dict[str, Any]]:
        found = _MARK.search(prompt)
        assert found is not None
        transcript = prompt.replace(found[1], "MARK")
        with self._lock:
            self.asked.append(transcript)
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self._seconds)
        answer = self._answer(transcript)
        with self._lock:
            self.now -= 1
        if isinstance(answer, int):
            code = "insufficient_quota" if answer == 429 else "failed"
            return answer, {"error": {"message": "no", "code": code}}
        text = json.dumps({"mark": found[1], "reason": "Because.", "citations": [], **answer})
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return 200, {"id": "r", "object": "chat.completion", "model": "judge", "choices": [choice], "usage": USAGE}

    @contextlib.contextmanager
    def serving(self) -> Iterator["JudgeServer"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
