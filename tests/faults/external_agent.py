#!/usr/bin/env python
"""An agent in a process of its own: takes an attempt, calls the model, ends the attempt, and says each step.

Each line of its output is a JSON object: `offer`, `text` of a reply, `finished`. `Agent` does the same within a test.
"""

import argparse
import http.client
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Agent:
    """Calls one web process with an API key."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key
        self.taken: list[str] = []
        """The keys of the attempts."""

    def post(
        self, path: str, body: Any, headers: dict[str, str] | None = None, *, seconds: float = 240
    ) -> tuple[int, Any]:
        """Return the status and the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            given = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}", **(headers or {})}
            connection.request("POST", path, json.dumps(body).encode(), given)
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        return reply.status, json.loads(content) if content else None

    def take(self, collection: int) -> dict[str, Any]:
        key = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            status, offer = self.post("/api/v1/attempts/", {"collection": collection, "wait_seconds": 30}, key)
            if status == 201:
                self.taken.append(offer["api_key"])
                return dict(offer)
            assert status in (204, 503), (status, offer)
            key = {"Idempotency-Key": uuid.uuid4().hex}

    def call(self, offer: dict[str, Any], text: str, **headers: str) -> tuple[int, Any]:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        return self.post(_path(offer), body, {"Authorization": f"Bearer {offer['api_key']}", **headers})

    def finish(self, offer: dict[str, Any], **body: Any) -> tuple[int, Any]:
        return self.post(f"/api/v1/attempts/{offer['rollout']}/finish/", {"attempt": offer["attempt"], **body})

    def extend(self, offer: dict[str, Any]) -> tuple[int, Any]:
        return self.post(f"/api/v1/attempts/{offer['rollout']}/extend/", {"attempt": offer["attempt"]})

    @contextmanager
    def stream(self, offer: dict[str, Any], text: str) -> Iterator[http.client.HTTPResponse]:
        """Yield the open reply of a streamed call."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
        try:
            connection.request("POST", _path(offer), json.dumps(body), {"Content-Type": "application/json"})
            yield connection.getresponse()
        finally:
            connection.close()


def _path(offer: dict[str, Any]) -> str:
    return urlsplit(offer["openai_base_url"]).path + "/chat/completions"


def say(**step: Any) -> None:
    print(json.dumps(step), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--collection", type=int, required=True)
    parser.add_argument("--steps", nargs="*", default=[], choices=["call", "start-call", "wait", "finish"])
    parser.add_argument("--go", type=Path, help="the step `wait` waits for this file")
    options = parser.parse_args()
    agent = Agent(options.port, options.key)
    offer = agent.take(options.collection)
    say(offer=offer)
    for step in options.steps:
        if step == "call":
            say(text=agent.call(offer, "first")[1]["choices"][0]["message"]["content"])
        elif step == "start-call":
            threading.Thread(target=agent.call, args=(offer, "second"), daemon=True).start()
        elif step == "wait":
            while not options.go.exists():
                time.sleep(0.02)
        else:
            say(finished=agent.finish(offer))
    threading.Event().wait()


if __name__ == "__main__":
    main()
