"""Python objects between the caller and a worker, beside the data path: requests, replies, rare infos."""

from __future__ import annotations

import pickle
import queue
import socket
import struct
import time
from typing import Any, Protocol

import cloudpickle

from envfleet.fleet.portable import wait_readable

__all__ = ["Channel", "ChannelClosed", "LocalChannel", "SocketChannel"]

_HEADER = struct.Struct("<Q")


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel(Protocol):
    """Sends and receives objects in order."""

    def pack(self, value: Any) -> Any:
        """The value as it will travel; raises where it cannot."""

    def send_packed(self, packed: Any) -> None: ...

    def send(self, value: Any) -> None: ...

    def receive(self, seconds: float | None = None) -> Any:
        """The next object; TimeoutError after `seconds`, ChannelClosed where the other side is gone."""


class LocalChannel:
    """Between threads of one process: objects are handed over as they are."""

    def __init__(self, inbox: queue.SimpleQueue[Any], outbox: queue.SimpleQueue[Any]) -> None:
        self._inbox, self._outbox = inbox, outbox

    @classmethod
    def pair(cls) -> tuple[LocalChannel, LocalChannel]:
        one: queue.SimpleQueue[Any] = queue.SimpleQueue()
        other: queue.SimpleQueue[Any] = queue.SimpleQueue()
        return cls(one, other), cls(other, one)

    def pack(self, value: Any) -> Any:
        return value

    def send_packed(self, packed: Any) -> None:
        self._outbox.put(packed)

    send = send_packed

    def receive(self, seconds: float | None = None) -> Any:
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None


class SocketChannel:
    """Between processes: pickles over a socket pair. Both ends are our own program."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)

    @classmethod
    def pair(cls) -> tuple[SocketChannel, int]:
        """This side of a new channel, and the descriptor of the other side."""
        ours, theirs = socket.socketpair()
        return cls(ours.detach()), theirs.detach()

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    def pack(self, value: Any) -> bytes:
        return dump(value)

    def send(self, value: Any) -> None:
        self.send_packed(dump(value))

    def send_packed(self, packed: bytes) -> None:
        try:
            self._socket.sendall(_HEADER.pack(len(packed)) + packed)
        except OSError as error:
            raise ChannelClosed from error

    def receive(self, seconds: float | None = None) -> Any:
        return pickle.loads(self.receive_bytes(seconds))

    def receive_bytes(self, seconds: float | None = None) -> bytes:
        deadline = None if seconds is None else time.monotonic() + seconds
        (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        return self._read(length, deadline)

    def _read(self, count: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < count:
            if deadline is not None and not wait_readable([self.fd], deadline - time.monotonic()):
                raise TimeoutError
            try:
                part = self._socket.recv(min(count - len(data), 1 << 20))
            except OSError as error:
                raise ChannelClosed from error
            if not part:
                raise ChannelClosed
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


def dump(value: Any) -> bytes:
    """The value as bytes; functions and classes of the caller's own script travel by value."""
    return bytes(cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
