"""Measure lists and pages of a million rollouts over HTTP: a single web process with its own PostgreSQL.

`python -m scripts.measure_lists [--rollouts 1000000] [--requests 40] [--only rollouts]` fills a database
(scripts/fill_rollouts.py), starts `manage.py serve --no-worker`, and requests every list of the API and every page with
rows in several orders, filters and depths. One JSON object per line: p50, p95 and p99 of complete responses in
milliseconds, and of the CPU that web process and database used for them, which depends less on other load. Over budget,
an address is measured up to two more times; if the machine is busy, the CPU decides, as `judged_by` shows. The exit
status is 1 if a budget was missed.
"""

import http.client
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from scripts.list_addresses import Address, find_addresses, read_rows
from scripts.measuring import Ground, filled_ground, is_busy, machine_load, parse_ground, say
from scripts.process_figures import cpu_seconds, processes, run_milliseconds
from scripts.servers import redis
from tests.gymweb.serving import serving

WARM_UP = 3
TRIES = 3


class Reply(NamedTuple):
    """Milliseconds until the response was complete, CPU milliseconds that the servers used, and bytes."""

    milliseconds: float
    cpu: float
    size: int


class Refused(Exception):
    """Raised for an invalid reply, which must not be measured."""


class Reader:
    """A persistent connection of a user with a key and a session."""

    def __init__(self, port: int, headers: dict[str, dict[str, str]], servers: Sequence[int]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = headers
        self._servers = servers
        self.look_around()

    def look_around(self) -> None:
        """Find the current server processes."""
        self._pids = processes(*self._servers)

    def cpu_milliseconds(self) -> float:
        """Return the CPU of the servers with all processes, including ended ones."""
        return cpu_seconds(*self._servers) * 1000

    def read(self, path: str) -> Reply:
        kind = "api" if path.startswith("/api/") else "page"
        before, began = run_milliseconds(self._pids), time.perf_counter()
        # A preview is requested by the script of a page.
        part = {"HX-Request": "true"} if path.endswith("/peek/") else {}
        self._connection.request("GET", path, headers={"Host": "localhost", **self._headers[kind], **part})
        reply = self._connection.getresponse()
        body = reply.read()
        took = (time.perf_counter() - began) * 1000
        if reply.status != 200:
            raise Refused(f"{path} answered {reply.status}: {body[:300]!r}")
        return Reply(took, run_milliseconds(self._pids) - before, len(body))


def measure_address(reader: Reader, address: Address, requests: int) -> dict[str, object]:
    """Return the best of up to three rounds: other load makes a response slower, never faster."""
    for path in list(address.paths)[:WARM_UP]:
        reader.read(path)
    reader.look_around()
    paths = [address.paths[place % len(address.paths)] for place in range(max(requests, len(address.paths)))]
    best: list[Reply] = []
    mean_cpu = 0.0
    rounds = 0
    while rounds < TRIES and (not best or _p95(best).milliseconds > address.budget_ms):
        rounds += 1
        before = reader.cpu_milliseconds()
        found = [reader.read(path) for path in paths]
        mean = (reader.cpu_milliseconds() - before) / len(paths)
        if not best or _p95(found).milliseconds < _p95(best).milliseconds:
            best, mean_cpu = found, mean
    middle, p95, most = _at(best, 50), _p95(best), _at(best, 99)
    # Processes that PostgreSQL starts for a single query are included only in the mean.
    least = max(p95.cpu, mean_cpu)
    taken = least if is_busy() and p95.milliseconds > address.budget_ms else p95.milliseconds
    return {
        "list": address.name,
        "p50_ms": middle.milliseconds,
        "p95_ms": p95.milliseconds,
        "p99_ms": most.milliseconds,
        "cpu_p50_ms": middle.cpu,
        "cpu_p95_ms": p95.cpu,
        "cpu_mean_ms": round(mean_cpu, 1),
        "budget_ms": address.budget_ms,
        "judged_by": "clock" if taken == p95.milliseconds else "cpu",
        "within": taken <= address.budget_ms,
        "kb": round(max(reply.size for reply in best) / 1024, 1),
        "rounds": rounds,
        "slowest": max(zip(best, paths, strict=True))[1],
        "load": machine_load(),
    }


def _p95(replies: Sequence[Reply]) -> Reply:
    return _at(replies, 95)


def _at(replies: Sequence[Reply], percentile: int) -> Reply:
    """Return this percentile of each figure separately."""
    cuts = [
        statistics.quantiles(values, n=100, method="inclusive")[percentile - 1] if len(replies) > 1 else values[0]
        for values in zip(*replies, strict=True)
    ]
    return Reply(round(cuts[0], 1), round(cuts[1], 1), round(cuts[2]))


def _headers() -> dict[str, dict[str, str]]:
    """Return the headers of a user with a key for the API and a session for pages."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    from apps.accounts.api_keys import create_api_key
    from apps.accounts.models import User

    user = User.objects.get(username="filler")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    cookie = f"{settings.SESSION_COOKIE_NAME}={session.session_key}"
    key = create_api_key(user=user, name="lists", scopes=["admin"])[1]
    return {"api": {"Authorization": f"Bearer {key}"}, "page": {"Cookie": cookie}}


def measure_lists(ground: Ground, *, cache: str, requests: int, only: str, servers: Sequence[int]) -> bool:
    """Return True if every budget was kept."""
    rows = read_rows(ground.filled, min(requests, 40))
    missed = []
    with serving(ground.var, "--no-worker", **{**ground.settings, "GYMWEB_REDIS_URL": cache}) as served:
        reader = Reader(served.port, _headers(), [served.process.pid, *servers])
        for address in find_addresses(ground.filled, rows):
            if only in address.name:
                try:
                    figures = measure_address(reader, address, requests)
                except Refused as refusal:
                    figures = {"list": address.name, "message": str(refusal), "within": False}
                say("list", **figures)
                missed += [] if figures["within"] else [address.name]
    say("lists", missed=missed, within=not missed)
    return not missed


def main() -> None:
    parser = parse_ground(__doc__, traced=0.1, requests=40)
    parser.add_argument("--only", default="", help="lists whose name has this")
    parser.add_argument("--servers", type=int, nargs="*", default=[], help="pids of its server, whose CPU counts")
    options = parser.parse_args()
    given = {name: getattr(options, name) for name in ("rollouts", "traced", "database")}
    with redis() as cache, filled_ground(**given) as ground:
        within = measure_lists(
            ground,
            cache=cache.url,
            requests=options.requests,
            only=options.only,
            servers=ground.servers or options.servers,
        )
    sys.exit(not within)


if __name__ == "__main__":
    main()
