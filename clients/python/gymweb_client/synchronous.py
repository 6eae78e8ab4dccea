"""The synchronous client, for scripts and notebooks. It runs the asynchronous client on a background thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from gymweb_client.asynchronous import AsyncGymWeb, RolloutStream
from gymweb_client.rows import Row

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    method: Callable[Concatenate[AsyncGymWeb, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["GymWeb", P], T]:
    @wraps(method)
    def call(self: "GymWeb", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncGymWeb, P], AsyncIterator[T]],
) -> Callable[Concatenate["GymWeb", P], Iterator[T]]:
    @wraps(method)
    def call(self: "GymWeb", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._iterate(method(self._client, *args, **kwargs))

    return call


class Stream:
    """A stream of rollouts, to be iterated. `collection`, `total` and `end` are those of RolloutStream."""

    def __init__(self, client: "GymWeb", stream: RolloutStream) -> None:
        self._client, self._stream = client, stream
        self.collection, self.total = stream.collection, stream.total

    def __iter__(self) -> Iterator[Row]:
        return self._client._iterate(aiter(self._stream))

    @property
    def end(self) -> Row:
        return self._stream.end


class GymWeb(AbstractContextManager["GymWeb"]):
    """A client of a GymWeb installation, with its URL and an API key (default: GYMWEB_URL and GYMWEB_KEY).

    Has the methods of AsyncGymWeb. Close it, or use it in a `with`.
    """

    def __init__(self, url: str = "", key: str = "", *, timeout: float = 60.0) -> None:
        self._client = AsyncGymWeb(url, key, timeout=timeout)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymweb-client", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    request = _waiting(AsyncGymWeb.request)
    pages = _iterating(AsyncGymWeb.pages)
    settle = _waiting(AsyncGymWeb.settle)
    upload = _waiting(AsyncGymWeb.upload)
    import_rollouts = _waiting(AsyncGymWeb.import_rollouts)
    plan = _waiting(AsyncGymWeb.plan)
    collection = _waiting(AsyncGymWeb.collection)
    wait = _waiting(AsyncGymWeb.wait)
    cancel = _waiting(AsyncGymWeb.cancel)
    metrics = _waiting(AsyncGymWeb.metrics)
    rollouts = _iterating(AsyncGymWeb.rollouts)
    trace = _waiting(AsyncGymWeb.trace)
    tokens = _waiting(AsyncGymWeb.tokens)
    build_pairs = _waiting(AsyncGymWeb.build_pairs)
    pairs = _iterating(AsyncGymWeb.pairs)
    export = _waiting(AsyncGymWeb.export)
    cancel_export = _waiting(AsyncGymWeb.cancel_export)
    manifest = _waiting(AsyncGymWeb.manifest)
    fetch = _waiting(AsyncGymWeb.fetch)
    download = _waiting(AsyncGymWeb.download)
    download_folder = _waiting(AsyncGymWeb.download_folder)

    @contextmanager
    def stream(self, *, idempotency_key: str = "", **asked: Any) -> Iterator[Stream]:
        """Like AsyncGymWeb.stream; leaving the `with` closes it."""
        stream = self._run(self._client.stream(idempotency_key=idempotency_key, **asked))
        try:
            yield Stream(self, stream)
        finally:
            self._run(stream.__aexit__())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            # Ctrl-C, for example, must also cancel the work on the other thread.
            running.cancel()
            raise

    def _iterate(self, rows: AsyncIterator[T]) -> Iterator[T]:
        async def next_row() -> T | None:
            return await anext(rows, None)

        while (row := self._run(next_row())) is not None:
            yield row
