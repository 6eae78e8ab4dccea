"""PostgreSQL and Redis for tests and benchmarks, on private loopback ports, with data in a temporary folder.

Each server is started by us and stopped by its pid. It can be killed and started again on the same port and data.
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

from scripts.process_figures import cpu_seconds

POSTGRES_FOLDERS = "/usr/lib/postgresql/*/bin"
START_SECONDS = 60.0
STOP_SECONDS = 60.0


class ServerMissing(Exception):
    """Raised if the programs of a server are not installed. The message says what to install."""


class ServerBroken(Exception):
    """Raised if a server did not start. The message ends with its log."""


def own_settings(var: Path, **settings: str) -> dict[str, str]:
    """Return the settings of a separate site: SQLite below this folder, whatever the shell's environment."""
    return {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(var),
        "GYMWEB_DATABASE_URL": f"sqlite:///{var}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        **settings,
    }


def free_port() -> int:
    """Return a free port below the range of outgoing connections.

    While a server is down, its port must stay free. In the range of outgoing connections, a retrying client would
    eventually connect to itself, and the restarted server would find its port taken.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = min(15_000, lowest // 2)
    for _ in range(1000):
        port = random.randrange(first, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerBroken(f"no free port between {first} and {lowest}")


class Server:
    """A server process. `start`, `kill` and `stop` can be called in any order, any number of times."""

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
        """Return the pid of the running server."""
        if self._process is None:
            raise ServerBroken(f"{self.name} is not running")
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start on the same port and data, and wait until it responds."""
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
        """Start it again if it has ended by itself, as a supervisor does."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        self.start()

    def stop(self) -> None:
        """Shut down cleanly."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """Kill it without cleaning up, as in a crash."""
        self._end(self.kill_signal)

    def cpu_seconds(self) -> float:
        """Return user and system time of the server and all its children, including ended ones."""
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
    """PostgreSQL with default settings, so that crashes are realistic: fsync is on, and recovery replays the log."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": close connections, write a checkpoint
    kill_signal = signal.SIGQUIT  # "immediate": all processes end at once, nothing is written

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
        """Create the data folder and the empty database of `url`. Leaves the server running."""
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
        """Create another empty database, and return its URL."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._address(name)

    def _address(self, database: str) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"


class Redis(Server):
    """Redis without a file on disk: the channel layer stores nothing that must survive."""

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
        """Return the first line of the response to a command without spaces in arguments, for example FLUSHALL."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            with connection.makefile("rb") as answer:
                return answer.readline().decode().strip()


@contextlib.contextmanager
def postgres(*, parent: Path | None = None, options: Sequence[str] = ()) -> Iterator[Postgres]:
    """Yield a running PostgreSQL with an empty database. Raise ServerMissing.

    Its folder is created in `parent` (default: the temporary folder of the system). `options` are options of the server
    program.
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
    """Yield a running Redis. Raise ServerMissing."""
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
    """Return the folder of PostgreSQL, and the prefix that runs its programs as another user: they refuse root."""
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
    """Yield a temporary folder that belongs to the user who will write to it."""
    folder = Path(tempfile.mkdtemp(prefix="gymweb-server-", dir=parent))
    try:
        if become:
            shutil.chown(folder, "postgres", "postgres")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
