"""The asynchronous client, with a method for each step of a workflow."""

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

from gymweb_client.attempts import OpeningAttempt
from gymweb_client.errors import ApiError, ChecksumMismatch, StreamBroken, TimeIsUp, WorkFailed
from gymweb_client.rows import Collection, Export, PairSet, Row

CHUNK = 256 * 1024
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between retries."""
UPLOADED = {"draft", "checked", "ready", "rejected", "failed"}
Progress = Callable[[Any], None]
Leave = Callable[[int], Awaitable[Any]] | None
BUSY = {429, 502, 503, 504}
LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class RolloutStream(AbstractAsyncContextManager["RolloutStream"]):
    """A stream of rollouts (or groups), in the order in which they finish.

    With `group`, `figures` of a group has its statistics and, in `advantages`, the advantages by rollout ID. Multiply
    the loss of a segment by its `weight`. Skip groups whose `zero_variance` is true.

    `collection` and `end` are the first and last line. Leaving `async with` closes the stream and cancels the remaining
    rollouts, unless `keep` was set.
    """

    def __init__(self, answer: aiohttp.ClientResponse, first: Row, lines: AsyncIterator[Row], leave: Leave) -> None:
        self.collection: int = first["collection"]
        self.total: int = first["total"]
        self.end: Row = {}
        self._answer, self._lines, self._leave = answer, lines, leave

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()
        if self._leave is not None:
            with suppress(ApiError, *LOST):  # The server cancels it after a while if this fails.
                await self._leave(self.collection)

    async def __aiter__(self) -> AsyncIterator[Row]:
        async for line in self._lines:
            if line["type"] == "end":
                self.end, self._leave = line, None
                if line["reason"] in {"cancelled", "denied"}:
                    raise StreamBroken(f"Collection {self.collection} ended before it was complete: {line['reason']}.")
                return
            yield line
        self._leave = None  # A retry continues the stream.
        raise StreamBroken(f"The stream of collection {self.collection} was interrupted.")


class AsyncGymWeb(AbstractAsyncContextManager["AsyncGymWeb"]):
    """A client of a GymWeb installation, with its URL and an API key (default: GYMWEB_URL and GYMWEB_KEY).

    Idempotent requests are retried if the connection breaks or the server is busy.
    """

    def __init__(self, url: str = "", key: str = "", *, timeout: float = 60.0) -> None:
        url = url or os.environ.get("GYMWEB_URL", "http://127.0.0.1:8000")
        self._base = url.rstrip("/").removesuffix("/api/v1") + "/api/v1/"
        self._headers = {"Authorization": "Bearer " + (key or os.environ.get("GYMWEB_KEY", ""))}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None  # created on the event loop that uses it

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, /, method: str, path: str, body: Any = None, *, idempotency_key: str = "", **query: Any
    ) -> Any:
        """Call the API and return the JSON of the response. `path` is relative to /api/v1/. Raise ApiError."""
        if method == "POST" and path == "collections/":
            idempotency_key = idempotency_key or uuid.uuid4().hex
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        given = {"json": body, "params": _texts(query), "headers": headers}
        async with await self._send(method, path, again=method in {"GET", "PUT"} or bool(headers), **given) as answer:
            if answer.status != 204 and not answer.content_type.endswith(("/json", "+json")):
                raise ApiError(answer.status, await _read_problem(answer))
            return await answer.json() if answer.status != 204 else None

    async def _send(self, method: str, path: str, *, again: bool, **given: Any) -> aiohttp.ClientResponse:
        """Send a request and return the open response. Retry if `again` is True."""
        if ".." in path.split("/"):
            raise ValueError(f"{path} is outside the API. Give a path below /api/v1/.")
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
        """Yield all rows of a list, reading page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.request("GET", path, **{"limit": 1000, **filters}, cursor=cursor or None)
            for row in page["results"]:
                yield row
            cursor = page["next_cursor"]

    async def settle(
        self, path: str, ends: set[str], seconds: float | None, look: float, progress: Progress | None = None
    ) -> Any:
        """Poll `path` until the row's state is one of `ends`, and return the row."""
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
        """Upload tasks, from a file or a list of rows, as a new version of a dataset. Return the loaded upload.

        With `environment`, a missing dataset is created. `choices` are upload options of the API, for example
        `on_error="skip"` or `mode="upsert"`. Raise WorkFailed with the rejected lines in its row.
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
        """Import stored rollouts from files of one run as a collection. `choices` are import options of the API."""
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
        """Create a collection and return it.

        `limits` are further options of the API, for example `sampling`, `concurrency` or `max_cost`.
        """
        parts = {"dataset": dataset, "policy_model": policy_model, "agent": agent, "repeats": repeats}
        return cast(Collection, await self.request("POST", "collections/", {**parts, **limits}))

    async def collection(self, collection: int) -> Collection:
        return cast(Collection, await self.request("GET", f"collections/{collection}/"))

    async def wait(
        self, collection: int, *, seconds: float | None = None, look: float = 1.0, progress: Progress | None = None
    ) -> Collection:
        """Wait until the collection is completed, cancelled or paused, and return it.

        Raise TimeIsUp after `seconds`.
        """
        ends = {"completed", "cancelled", "paused"}
        return cast(Collection, await self.settle(f"collections/{collection}/", ends, seconds, look, progress))

    async def cancel(self, collection: int) -> Collection:
        return cast(Collection, await self.request("POST", f"collections/{collection}/cancel/"))

    async def metrics(self, collection: int) -> Row:
        """Return mean reward, pass@k, solve buckets, stop reasons and errors."""
        return cast(Row, await self.request("GET", f"collections/{collection}/metrics/"))

    def rollouts(self, /, **filters: Any) -> AsyncIterator[Row]:
        """Yield rollouts that match API filters: `collection=1`, `reward_min=0.5`, `status="failed"`, …"""
        return self.pages("rollouts/", **filters)

    async def trace(self, rollout: int) -> list[Row]:
        """Return the trace events of the latest attempt."""
        return cast(list[Row], (await self.request("GET", f"rollouts/{rollout}/trace/"))["events"])

    async def tokens(self, rollout: int) -> Row:
        """Return the captured tokens as segments for training."""
        return cast(Row, await self.request("GET", f"rollouts/{rollout}/tokens/"))

    async def stream(self, /, *, idempotency_key: str = "", **asked: Any) -> RolloutStream:
        """Run tasks and stream each rollout when it ends.

        `asked` has the fields in docs/use/online.md: `rows` and `environment` or `task_ids`, `policy_model` or
        `endpoint`, `repeats`, `group`, `keep`, `seconds`, …
        """
        # All tries use the same key, so nothing runs twice.
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex, "Accept": "application/x-ndjson"}
        answer = await self._send("POST", "rollouts/stream/", again=True, json=asked, headers=headers)
        lines = _json_lines(answer)
        try:
            return RolloutStream(answer, await anext(lines), lines, None if asked.get("keep") else self.cancel)
        except (StopAsyncIteration, *LOST):
            answer.close()
            raise StreamBroken("The stream ended before its first line.") from None

    def attempt(self, collection: int, *, wait_seconds: float = 0.0) -> OpeningAttempt:
        """Take an attempt at a queued rollout of an external agent.

        `async with` gives the attempt and ends it; `await` returns it, or None if no rollout is queued.
        """
        return OpeningAttempt(self.request, collection, wait_seconds)

    async def build_pairs(self, /, collection: int, *, margin: float = 0.1, **rule: Any) -> PairSet:
        """Build preference pairs from the best and the worst rollout of each task.

        `rule` has further settings of the pair rule, for example `min_chosen_reward`.
        """
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
        """Write an export (`trl_sft`, …) and wait for it. `order` has further options.

        `pair_set`, `filters`, `options`, …
        """
        ordered = await self.request("POST", "exports/", {"format": format, "collection": collection, **order})
        export = await self.settle(
            f"exports/{ordered['id']}/", {"ready", "failed", "cancelled"}, seconds, 0.2, progress
        )
        if export["state"] != "ready":
            raise WorkFailed("Export", export)
        return cast(Export, export)

    async def cancel_export(self, export: int) -> Export:
        """Cancel an export; `export` then raises WorkFailed."""
        return cast(Export, await self.request("POST", f"exports/{export}/cancel/"))

    async def manifest(self, export: int) -> Row:
        """Return the manifest: contents of the files, and dropped rows by reason."""
        return cast(Row, await self.request("GET", f"exports/{export}/manifest/"))

    async def download(self, export: Export, path: str | Path) -> Path:
        """Download the first file and verify its SHA-256. An interrupted download is resumed."""
        return await self.fetch(f"exports/{export['id']}/download/", Path(path), export["sha256"])

    async def download_folder(self, export: Export, folder: str | Path) -> Path:
        """Download all files of an export, as a folder that trainers load."""
        (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
        for name in [*(sums := {one["name"]: one["sha256"] for one in export["files"]}), *export["beside"]]:
            await self.fetch(f"exports/{export['id']}/files/{name}/", folder / name, sums.get(name, ""))
        return folder

    async def fetch(self, /, address: str, path: Path, sha256: str = "", **query: Any) -> Path:
        """Download a file of the API to `path`. An interrupted download is resumed."""
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
        # Request from the last existing byte, so that the range is valid even for a complete file.
        headers = {"Range": f"bytes={have - 1}-"} if have else {}
        async with await self._send("GET", address, again=True, headers=headers, params=query) as answer:
            with part.open("r+b" if answer.status == 206 else "wb") as file:
                file.seek(have - 1 if answer.status == 206 else 0)
                async for chunk in answer.content.iter_chunked(CHUNK):
                    file.write(chunk)


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    """Return query parameters in the form of the API: nulls left out, Booleans as true or false, objects as JSON."""
    given = {name: value for name, value in query.items() if value is not None}
    return {name: json.dumps(value) if isinstance(value, bool | dict) else str(value) for name, value in given.items()}


async def _read_problem(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    text = await answer.text(errors="replace")
    with suppress(ValueError):  # Proxies respond with HTML.
        if isinstance(problem := json.loads(text), dict):
            return problem
    return {"type": "unreadable", "detail": text[:200]}


async def _json_lines(answer: aiohttp.ClientResponse) -> AsyncIterator[Row]:
    """Yield JSON lines of any length. Empty lines are keep-alives. A broken connection ends the iteration."""
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
