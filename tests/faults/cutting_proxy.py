"""Stands between workers and PostgreSQL, and cuts connections. While the server runs a statement, it does not notice,
so the statement goes on."""

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """`port` is its own. Connections are known by the port that PostgreSQL sees as the client's."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._clients: dict[int, socket.socket] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, port: int) -> bool:
        """Cut a connection. Return False if it has ended."""
        client = self._clients.pop(port, None)
        if client is not None:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        return client is not None

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for port in list(self._clients):
            self.cut(port)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._clients[server.getsockname()[1]] = client
                threading.Thread(target=self._serve, args=[client, server], daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=_copy, args=[server, client], daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
