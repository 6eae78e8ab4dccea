"""The asynchronous client: one method for each thing that a script does."""

import asyncio
import hashlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import aiohttp

from gymweb_client.errors import ApiError, ChecksumMismatch, StreamBroken, TimeIsUp, WorkFailed
from gymweb_client.rows import Collection, Export, PairSet, Row

CHUNK = 256 * 1024
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between the tries of what may be tried again."""
UPLOADED = {"draft", "checked", "ready", "rejected", "failed"}
Progress = Callable[[Any], None]
Leave = Callable[[int], Awaitable[Any]] | None
BUSY = {429, 502, 503, 504}
LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class RolloutStream(AbstractAsyncContextManager["RolloutStream"]):
    """Iterate it for rollouts (or groups) in the order in which they end; `collection` and `end` are the lines around
    them. Leaving `async with` closes it and cancels what is left, unless it is to be kept."""

    def __init__(self, answer: aiohttp.ClientResponse, first: Row, lines: AsyncIterator[Row], leave: Leave) -> None:
        self.collection: int = first["collection"]
        self.total: int = first["total"]
        self.end: Row = {}
        self._answer, self._lines, self._leave = answer, lines, leave

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()
        if self._leave is not None:
            with suppress(ApiError, *LOST):  # The server does it by itself, where nobody asks again for a while.
                await self._leave(self.collection)

    async def __aiter__(self) -> AsyncIterator[Row]:
        async for line in self._lines:
            if line["type"] == "end":
                self.end, self._leave = line, None
                if line["reason"] in {"cancelled", "denied"}:
                    raise StreamBroken(f"Collection {self.collection} is {line['reason']}: not all of it was run.")
                return
            yield line
        self._leave = None  # Whoever asks again reads on.
        raise StreamBroken(f"The stream of collection {self.collection} broke off.")


class AsyncGymWeb(AbstractAsyncContextManager["AsyncGymWeb"]):
    """A GymWeb installation, by its address and an API key (or GYMWEB_URL and GYMWEB_KEY).

    What changes nothing when it is sent twice is tried again where the connection breaks or the server is busy.
    """

    def __init__(self, url: str = "", key: str = "", *, timeout: float = 60.0) -> None:
        url = url or os.environ.get("GYMWEB_URL", "http://127.0.0.1:8000")
        self._base = url.rstrip("/").removesuffix("/api/v1") + "/api/v1/"
        self._headers = {"Authorization": "Bearer " + (key or os.environ.get("GYMWEB_KEY", ""))}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None  # made in the loop that uses it

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, /, method: str, path: str, body: Any = None, *, idempotency_key: str = "", **query: Any
    ) -> Any:
        """Any call of the API: `path` below /api/v1/. Gives the JSON of the answer; raises ApiError."""
        if method == "POST" and path == "collections/":
            idempotency_key = idempotency_key or uuid.uuid4().hex
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        given = {"json": body, "params": _texts(query), "headers": headers}
        async with await self._send(method, path, again=method in {"GET", "PUT"} or bool(headers), **given) as answer:
            if answer.status != 204 and not answer.content_type.endswith(("/json", "+json")):
                raise ApiError(answer.status, await _read_problem(answer))
            return await answer.json() if answer.status != 204 else None

    async def _send(self, method: str, path: str, *, again: bool, **given: Any) -> aiohttp.ClientResponse:
        """The answer, open; tried again where `again` says that it may be."""
        if ".." in path.split("/"):
            raise ValueError(f"{path} leads out of the API; give a path below /api/v1/.")
        self._session = self._session or aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        for pause in (*PAUSES, None):
            try:
                answer = await self._session.request(method, self._base + path, **given)
            except LOST:
                if not again or pause is None:
                    raise
                await asyncio.sleep(pause)
                continue
            if answer.status < 400:
                return answer
            async with answer:
                if again and pause is not None and answer.status in BUSY:
                    await asyncio.sleep(float(answer.headers.get("Retry-After", pause)))
                    continue
                raise ApiError(answer.status, await _read_problem(answer))
        raise AssertionError("the last try returns or raises")

    async def pages(self, /, path: str, **filters: Any) -> AsyncIterator[Row]:
        """Every row of a list, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.request("GET", path, **{"limit": 1000, **filters}, cursor=cursor or None)
            for row in page["results"]:
                yield row
            cursor = page["next_cursor"]

    async def settle(
        self, path: str, ends: set[str], seconds: float | None, look: float, progress: Progress | None = None
    ) -> Any:
        """Ask until the state of the row at `path` is one of `ends`; return the row."""
        until = time.monotonic() + (float("inf") if seconds is None else seconds)
        while True:
            row = await self.request("GET", path)
            if progress:
                progress(row)
            if row["state"] in ends:
                return row
            if time.monotonic() >= until:
                raise TimeIsUp(f"{path} is still {row['state']} after {seconds:g} s.")
            await asyncio.sleep(look)

    async def upload(
        self,
        /,
        dataset: str,
        tasks: str | Path | IO[bytes] | Iterable[Mapping[str, Any]],
        *,
        environment: str = "",
        **choices: Any,
    ) -> Row:
        """Tasks from a file, or rows, as a new version of the dataset; gives the upload when it is loaded.

        A dataset that is not there yet is made where its `environment` is named. `choices` are those of the API, such
        as `on_error="skip"` or `mode="upsert"`. Raises WorkFailed with the rejected lines in its row.
        """
        body: Any
        if isinstance(tasks, str | Path):
            name, body = Path(tasks).name, await asyncio.to_thread(Path(tasks).open, "rb")  # aiohttp closes it
        else:
            name, body = "rows.jsonl", tasks if hasattr(tasks, "read") else _lines(tasks)
        query = {"filename": name, **choices, "environment": environment or None}
        given = {"data": body, "params": _texts(query), "headers": {"Content-Type": "application/octet-stream"}}
        async with await self._send("POST", f"datasets/{dataset}/uploads/", again=False, **given) as answer:
            sent = await answer.json()
        loaded: Row = await self.settle(f"uploads/{sent['id']}/", UPLOADED, None, 0.2)
        if loaded["state"] not in {"ready", "checked"}:
            raise WorkFailed("Upload", loaded)
        return loaded

    async def import_rollouts(self, /, dataset: str, files: Iterable[str | Path], **choices: Any) -> Row:
        """Stored rollouts from the files of one run, as a collection; `choices` are those of the API."""
        with ExitStack() as opened:
            form = aiohttp.FormData(quote_fields=False)
            for path in map(Path, files):
                form.add_field("file", opened.enter_context(path.open("rb")), filename=path.name)
            query = _texts({**choices, "dataset": dataset})
            sent = await self._send("POST", "collections/import/", again=False, data=form, params=query)
            async with sent as answer:
                return cast(Row, await answer.json())

    async def plan(
        self, /, dataset: str, policy_model: str, *, agent: str = "default", repeats: int = 1, **limits: Any
    ) -> Collection:
        """Queue a collection; `limits` are those of the API, such as `sampling`, `concurrency` or `max_cost`."""
        parts = {"dataset": dataset, "policy_model": policy_model, "agent": agent, "repeats": repeats}
        return cast(Collection, await self.request("POST", "collections/", {**parts, **limits}))

    async def collection(self, collection: int) -> Collection:
        return cast(Collection, await self.request("GET", f"collections/{collection}/"))

    async def wait(
        self, collection: int, *, seconds: float | None = None, look: float = 1.0, progress: Progress | None = None
    ) -> Collection:
        """Until it is completed, cancelled or paused. Raises TimeIsUp after so many seconds."""
        ends = {"completed", "cancelled", "paused"}
        return cast(Collection, await self.settle(f"collections/{collection}/", ends, seconds, look, progress))

    async def cancel(self, collection: int) -> Collection:
        return cast(Collection, await self.request("POST", f"collections/{collection}/cancel/"))

    async def metrics(self, collection: int) -> Row:
        """Mean reward, pass@k, solve buckets, stop reasons and errors."""
        return cast(Row, await self.request("GET", f"collections/{collection}/metrics/"))

    def rollouts(self, /, **filters: Any) -> AsyncIterator[Row]:
        """Rows of rollouts, by the filters of the API: `collection=1`, `reward_min=0.5`, `status="failed"`, …"""
        return self.pages("rollouts/", **filters)

    async def trace(self, rollout: int) -> list[Row]:
        """The events of its latest attempt."""
        return cast(list[Row], (await self.request("GET", f"rollouts/{rollout}/trace/"))["events"])

    async def tokens(self, rollout: int) -> Row:
        """Its captured tokens as segments to train on."""
        return cast(Row, await self.request("GET", f"rollouts/{rollout}/tokens/"))

    async def stream(self, /, *, idempotency_key: str = "", **asked: Any) -> RolloutStream:
        """Run tasks now and get each rollout as it ends; `asked` is what docs/online.md lists: `rows` and `environment`
        or `task_ids`, `policy_model` or `endpoint`, `repeats`, `group`, `keep`, `seconds`, …"""
        # With one key for all tries, none of them runs anything twice.
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex, "Accept": "application/x-ndjson"}
        answer = await self._send("POST", "rollouts/stream/", again=True, json=asked, headers=headers)
        lines = _json_lines(answer)
        try:
            return RolloutStream(answer, await anext(lines), lines, None if asked.get("keep") else self.cancel)
        except (StopAsyncIteration, *LOST):
            answer.close()
            raise StreamBroken("The stream broke off before its first line.") from None

    async def build_pairs(self, /, collection: int, *, margin: float = 0.1, **rule: Any) -> PairSet:
        """Preference pairs: the best with the worst rollout of every task; `rule` may have `min_chosen_reward`."""
        return cast(
            PairSet, await self.request("POST", "pair-sets/", {**rule, "collection": collection, "margin": margin})
        )

    def pairs(self, pair_set: int) -> AsyncIterator[Row]:
        return self.pages("pairs/", pair_set=pair_set)

    async def export(
        self,
        /,
        format: str,
        collection: int,
        *,
        seconds: float | None = None,
        progress: Progress | None = None,
        **order: Any,
    ) -> Export:
        """A training file (`trl_sft`, …), when it is written; `order` may have `pair_set`, `filters`, `options`, …"""
        ordered = await self.request("POST", "exports/", {"format": format, "collection": collection, **order})
        export = await self.settle(
            f"exports/{ordered['id']}/", {"ready", "failed", "cancelled"}, seconds, 0.2, progress
        )
        if export["state"] != "ready":
            raise WorkFailed("Export", export)
        return cast(Export, export)

    async def cancel_export(self, export: int) -> Export:
        """Stop writing it; whoever waits for it in `export` gets WorkFailed."""
        return cast(Export, await self.request("POST", f"exports/{export}/cancel/"))

    async def manifest(self, export: int) -> Row:
        """What the file holds, and why rows were left out."""
        return cast(Row, await self.request("GET", f"exports/{export}/manifest/"))

    async def download(self, export: Export, path: str | Path) -> Path:
        """The first file, checked against its SHA-256. A download that breaks off goes on where it stopped."""
        return await self.fetch(f"exports/{export['id']}/download/", Path(path), export["sha256"])

    async def download_folder(self, export: Export, folder: str | Path) -> Path:
        """The whole folder, which a trainer loads as it is: every file of rows, and what stands beside them."""
        (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
        for name in [*(sums := {one["name"]: one["sha256"] for one in export["files"]}), *export["beside"]]:
            await self.fetch(f"exports/{export['id']}/files/{name}/", folder / name, sums.get(name, ""))
        return folder

    async def fetch(self, /, address: str, path: Path, sha256: str = "", **query: Any) -> Path:
        """Any file of the API, into `path`. A download that breaks off goes on where it stopped."""
        (part := Path(f"{path}.part")).unlink(missing_ok=True)
        for pause in (*PAUSES, None):
            try:
                await self._fetch_rest(address, part, _texts(query))
                break
            except LOST:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        digest = await asyncio.to_thread(_sha256, part)
        if sha256 not in {"", digest}:
            part.unlink()
            raise ChecksumMismatch(f"{path}: SHA-256 is {digest}, not {sha256}.")
        return part.replace(path)

    async def _fetch_rest(self, address: str, part: Path, query: Mapping[str, str] | None = None) -> None:
        have = part.stat().st_size if part.exists() else 0
        # From its last byte on, so that a file that is there already is no range beyond the end.
        headers = {"Range": f"bytes={have - 1}-"} if have else {}
        async with await self._send("GET", address, again=True, headers=headers, params=query) as answer:
            with part.open("r+b" if answer.status == 206 else "wb") as file:
                file.seek(have - 1 if answer.status == 206 else 0)
                async for chunk in answer.content.iter_chunked(CHUNK):
                    file.write(chunk)


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as the API reads them: null is left out, truth is true or false, objects are JSON."""
    given = {name: value for name, value in query.items() if value is not None}
    return {name: json.dumps(value) if isinstance(value, bool | dict) else str(value) for name, value in given.items()}


async def _read_problem(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    text = await answer.text(errors="replace")
    with suppress(ValueError):  # Proxies answer in HTML.
        if isinstance(problem := json.loads(text), dict):
            return problem
    return {"type": "unreadable", "detail": text[:200]}


async def _json_lines(answer: aiohttp.ClientResponse) -> AsyncIterator[Row]:
    """Lines of any length; empty ones are signs of life. A connection that breaks ends them."""
    parts: list[bytes] = []
    with suppress(*LOST):
        async for chunk in answer.content.iter_any():
            head, *rest = chunk.split(b"\n")
            parts.append(head)
            for begun in rest:
                if line := b"".join(parts).strip():
                    yield json.loads(line)
                parts = [begun]


async def _lines(rows: Iterable[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    left = iter(rows)
    while block := list(islice(left, 64)):
        yield "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in block).encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
