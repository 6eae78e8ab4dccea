"""A resource server whose health is a flag."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DOCUMENT = {"paths": {"/seed_session": {"post": {}}, "/verify": {"post": {}}, "/get_weather": {"post": {}}}}


class FlagServer:
    """`is_well` says whether it answers, `asked` counts health checks; the rest of the protocol always works."""

    def __init__(self):
        self.is_well = True
        self.asked = self._failing = 0
        self._document = DOCUMENT
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.asked += 1
                well = outer.is_well and outer._failing == 0
                outer._failing = max(0, outer._failing - 1)
                self.answer(200 if well else 503, outer._document if self.path == "/openapi.json" else {"status": "ok"})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(200, {"reward": 1.0} if self.path == "/verify" else {})

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def describe(self, description):
        """What its one tool says of itself."""
        self._document = {"paths": {**DOCUMENT["paths"], "/get_weather": {"post": {"description": description}}}}

    def fail_next(self, calls):
        self._failing = calls

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *args):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
