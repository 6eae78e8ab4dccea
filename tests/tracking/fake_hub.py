"""A stand-in for the Hugging Face Hub on loopback: the calls of its API that a push of a dataset makes."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_" + "a" * 34
MAX_REGULAR = 1_000
"""Bytes of a file from which it is uploaded to the large file storage."""


@dataclass
class Hub:
    """Repositories by name, and the number of their commits. `failures` replies are errors, to begin with."""

    address: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    large: dict[str, bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    failures: int = 0

    def answer(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        parts = urlsplit(path).path.strip("/").split("/")
        self.calls.append(f"{method} {urlsplit(path).path}")
        if self.failures:
            self.failures -= 1
            return 503, {"error": "unavailable"}
        if parts[0] == "storage":
            self.large[parts[1]] = body
            return 200, {}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid credentials in Authorization header"}
        if parts == ["api", "repos", "create"]:
            return self._create(json.loads(body))
        if parts == ["api", "validate-yaml"]:
            return 200, {"errors": [], "warnings": []}
        if "info" in parts and parts[-1] == "batch":
            return 200, self._batch(json.loads(body))
        name = "/".join(parts[2:4])
        if name not in self.private:
            return 404, {"error": "Repository not found"}
        if parts[4:5] == ["preupload"]:
            return 200, self._preupload(name, json.loads(body))
        if parts[4:5] == ["commit"]:
            return 200, self._commit(name, body)
        head = self.commits[-1] if self.commits else "0" * 40
        return 200, {"id": name, "private": self.private[name], "sha": head, "siblings": []}

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.private:
            return 409, {"error": "You already created this dataset repo", "url": f"{self.address}/datasets/{name}"}
        is_private = asked.get("private", False) or asked.get("visibility") == "private"
        self.private[name], self.files[name] = is_private, {}
        return 200, {"url": f"{self.address}/datasets/{name}"}

    def _preupload(self, name: str, asked: dict[str, Any]) -> Any:
        modes = {one["path"]: "lfs" if one["size"] >= MAX_REGULAR else "regular" for one in asked["files"]}
        return {
            "files": [
                {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": self._oid(name, path)}
                for path, mode in modes.items()
            ]
        }

    def _oid(self, name: str, path: str) -> str | None:
        """The id of the stored file, by which a push leaves out files that have not changed."""
        content = self.files[name].get(path)
        if content is None:
            return None
        if len(content) >= MAX_REGULAR:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()

    def _batch(self, asked: dict[str, Any]) -> Any:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.address}/storage/{one['oid']}"}}}
            if one["oid"] not in self.large
            else one
            for one in asked["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def _commit(self, name: str, body: bytes) -> Any:
        for line in body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.files[name][value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.files[name][value["path"]] = self.large[value["oid"]]
        self.commits.append(hashlib.sha1(body).hexdigest())
        return {"commitOid": self.commits[-1], "commitUrl": f"{self.address}/datasets/{name}/commit/{self.commits[-1]}"}


@contextmanager
def serve_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, content = hub.answer(self.command, self.path, self.rfile.read(length), self.headers)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = _reply

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
