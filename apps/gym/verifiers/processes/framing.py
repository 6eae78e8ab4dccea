"""Messages on a stream socket: a length of four bytes, then the content."""

import socket
import struct
import time

_LENGTH = struct.Struct("!I")


def send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(_LENGTH.pack(len(message)) + message)


def receive(channel: socket.socket, *, seconds: float | None = None) -> bytes:
    """Return the next message, or no bytes when the other end is closed. Raises TimeoutError after `seconds` in all."""
    ends = None if seconds is None else time.monotonic() + seconds
    head = _read(channel, _LENGTH.size, ends)
    return _read(channel, _LENGTH.unpack(head)[0], ends) if head else b""


def _read(channel: socket.socket, size: int, ends: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if ends is not None:
            channel.settimeout(max(ends - time.monotonic(), 0.001))
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)
