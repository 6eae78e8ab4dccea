"""A webhook receiver on loopback that can be started late, and subscriptions to it."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from apps.alerts.models import EVENT_CHOICES, Subscription
from apps.alerts.subscription_changes import save_subscription

# Fixed, because it is part of the names of tests, which all processes of a test run must share.
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ALL_EVENTS = [kind for kind, _ in EVENT_CHOICES]


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def receive(port: int = 0, *, status: int = 204) -> Iterator[tuple[str, list[Request]]]:
    """Yield the URL of a running receiver, and the list of its requests so far."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests.append(Request(self.path, headers, body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook/token", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def subscribe(address: str, channel: str = "webhook", **fields: Any) -> Subscription:
    given = {"name": f"{channel} {Subscription.objects.count()}", "event_kinds": ALL_EVENTS, **fields}
    secret = SECRET if channel == "webhook" else None
    return save_subscription(subscription=Subscription(channel=channel, **given), address=address, secret=secret)
