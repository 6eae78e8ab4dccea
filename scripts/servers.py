"""Real PostgreSQL and Redis for tests and benchmarks, on private loopback ports, with data in a temporary folder.

Each server is started by us, stopped by its pid, and can be killed and started again on the same port and data.
"""

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
from psycopg import sql

POSTGRES_FOLDERS = "/usr/lib/postgresql/*/bin"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class ServerMissing(Exception):
    """The programs of a server are not on this machine; the message says what to install."""


class ServerBroken(Exception):
    """A server was started and did not come up; the message ends with what it logged."""


def own_settings(var: Path, **settings: str) -> dict[str, str]:
    """Of a site for one program: on SQLite below this folder, whatever the shell says."""
    return {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(var),
        "GYMWEB_DATABASE_URL": f"sqlite:///{var}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        **settings,
    }


def free_port() -> int:
    """A free port below the range that outgoing connections use.

    While a server is down its port must stay its own: a client that tries a port of that range again and again is in
    the end connected to itself, and a server that is started again finds its port taken.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = min(15_000, lowest // 2)
    for _ in range(1000):
        port = random.randrange(first, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerBroken(f"no free port between {first} and {lowest}")


def cpu_seconds(*pids: int) -> float:
    """User and system time of these processes and of all their children, those that have ended included."""
    return sum(_cpu_ticks(one) for pid in pids for one in [*_children(pid), pid]) / _TICKS


def processes(*pids: int) -> list[int]:
    """These processes and their children now."""
    return [one for pid in pids for one in [pid, *_children(pid)]]


def run_milliseconds(pids: Sequence[int]) -> float:
    """The CPU that these processes have used, to the microsecond; those that have ended meanwhile are not counted."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            # The clock of another process, by its number: what clock_getcpuclockid(3) gives.
            total += time.clock_gettime(~pid << 3 | 2)
    return total * 1000


class Server:
    """A server process of ours. `start`, `kill` and `stop` may follow each other any number of times."""

    name = "server"
    stop_signal = signal.SIGTERM
    kill_signal = signal.SIGKILL

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        if self._process is None:
            raise ServerBroken(f"{self.name} is not running")
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start on the same port and data, and wait until it answers."""
        if self._process is not None:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise ServerBroken(f"{self.name} did not come up: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def start_again(self) -> None:
        """Start it where it has ended by itself, as a supervisor does."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        self.start()

    def stop(self) -> None:
        """Shut down in good order."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End at once, as a crash does: nothing is tidied up."""
        self._end(self.kill_signal)

    def cpu_seconds(self) -> float:
        """User and system time of the server and of all its children, those that have ended included."""
        return cpu_seconds(self.pid)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class Postgres(Server):
    """PostgreSQL with its own defaults, so that a crash is a crash: fsync is on and recovery replays the log."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": open connections are closed, a checkpoint is written
    kill_signal = signal.SIGQUIT  # "immediate": all its processes end at once, nothing is written

    def __init__(
        self, folder: Path, port: int, *, programs: Path, become: list[str], options: Sequence[str] = ()
    ) -> None:
        super().__init__(folder, port)
        self.url = f"postgres://postgres@127.0.0.1:{port}/gymweb"
        self._programs = programs
        self._options = options
        self._become = become
        self._data = folder / "data"

    def create(self) -> None:
        """Make the data folder and, in the end, the empty database of `url`. Leaves the server running."""
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
        made = subprocess.run(
            [*self._become, str(self._programs / "initdb"), "-D", str(self._data), *options],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        if made.returncode:
            raise ServerBroken(f"initdb failed: {made.stderr[-2000:]}")
        self.start()
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE gymweb")

    def command(self) -> list[str]:
        program = [*self._become, str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        return [*program, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", *self._options]

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self._address("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def create_database(self, name: str) -> str:
        """One more empty database; gives its URL."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._address(name)

    def _address(self, database: str) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"


class Redis(Server):
    """Redis without a file on disk: the channel layer keeps nothing in it that must survive."""

    name = "Redis"

    def __init__(self, folder: Path, port: int, *, program: str) -> None:
        super().__init__(folder, port)
        self.url = f"redis://127.0.0.1:{port}/0"
        self._program = program

    def command(self) -> list[str]:
        address = ["--port", str(self.port), "--bind", "127.0.0.1"]
        return [self._program, *address, "--dir", str(self.folder), "--save", "", "--appendonly", "no"]

    def is_ready(self) -> bool:
        try:
            return self.ask("PING") == "+PONG"
        except OSError:
            return False

    def ask(self, command: str) -> str:
        """The first line of the answer to a command without spaces in its arguments, such as FLUSHALL."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            with connection.makefile("rb") as answer:
                return answer.readline().decode().strip()


@contextlib.contextmanager
def postgres(*, parent: Path | None = None, options: Sequence[str] = ()) -> Iterator[Postgres]:
    """Yield a running PostgreSQL with an empty database. Raises ServerMissing.

    Its folder is made in `parent` (default: the system's temporary folder). `options` are those of the server program.
    """
    programs, become = _find_postgres()
    with _folder(become, parent) as folder:
        server = Postgres(folder, free_port(), programs=programs, become=become, options=options)
        try:
            server.create()
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def redis() -> Iterator[Redis]:
    """A running Redis. Raises ServerMissing."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServerMissing("Redis is not here: install redis-server (on Debian: apt-get install redis-server)")
    with _folder([]) as folder:
        server = Redis(folder, free_port(), program=program)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _find_postgres() -> tuple[Path, list[str]]:
    """The folder of the programs, and what runs a command as a user under whom they start: they refuse root."""
    folders = sorted(Path("/").glob(POSTGRES_FOLDERS.lstrip("/")), key=lambda path: path.parts[-2], reverse=True)
    on_path = shutil.which("initdb")
    folders += [Path(on_path).resolve().parent] if on_path else []
    found = [folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()]
    if not found:
        raise ServerMissing("PostgreSQL is not here: install its server (on Debian: apt-get install postgresql)")
    if os.geteuid():
        return found[0], []
    setpriv = shutil.which("setpriv")
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        setpriv = None
    if setpriv is None:
        raise ServerMissing("PostgreSQL does not run as root: a user `postgres` and setpriv (util-linux) are needed")
    return found[0], [setpriv, "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]


@contextlib.contextmanager
def _folder(become: list[str], parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder, given to the user that will write in it."""
    folder = Path(tempfile.mkdtemp(prefix="gymweb-server-", dir=parent))
    try:
        if become:
            shutil.chown(folder, "postgres", "postgres")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _children(parent: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _stat(pid)[1:2] == [str(parent)]]


def _cpu_ticks(pid: int) -> int:
    """utime, stime, and both again of the children that have ended."""
    return sum(int(ticks) for ticks in _stat(pid)[11:15])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, from the state on; none for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
