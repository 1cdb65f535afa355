"""Python objects between the caller and a worker, beside the data path: requests, replies, rare infos."""

from __future__ import annotations

import pickle
import queue
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import cloudpickle

from envfleet.fleet.portable import wait_ready

__all__ = [
    "CallerChannel",
    "Channel",
    "ChannelClosed",
    "LocalChannel",
    "SocketChannel",
    "dump",
    "dump_parts",
    "load_parts",
]

_HEADER = struct.Struct("<Q")
PART_BYTES = 1 << 20  # moved by one system call
LARGE_BYTES = 1 << 20  # an array of this size is a part of its own


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
    """A worker's end of a channel between processes: pickles over a socket pair. Both ends are our own program.

    It blocks where the socket is full or empty. Its counterpart never does, so the two cannot wait for each other.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    def pack(self, value: Any) -> bytes:
        return dump(value)

    def send(self, value: Any) -> None:
        self.send_packed(dump(value))

    def send_packed(self, packed: bytes) -> None:
        try:
            self._socket.sendall(_HEADER.pack(len(packed)))
            self._socket.sendall(packed)
        except OSError as error:
            raise ChannelClosed from error

    def receive(self, seconds: float | None = None) -> Any:
        assert seconds is None, "a worker waits for its caller as long as that lives"
        return pickle.loads(self._receive_bytes())

    def receive_parts(self) -> list[bytearray]:
        """What the caller sent with `send_parts`."""
        return [self._receive_bytes() for _ in range(self.receive())]

    def _receive_bytes(self) -> bytearray:
        (length,) = _HEADER.unpack(self._read(_HEADER.size))
        return self._read(length)

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        view, done = memoryview(data), 0
        while done < count:
            try:
                got = self._socket.recv_into(view[done : done + PART_BYTES])
            except OSError as error:
                raise ChannelClosed from error
            if not got:
                raise ChannelClosed
            done += got
        return data


class CallerChannel:
    """The caller's end, which never blocks: what the socket does not take at once is kept and sent by `pump`.

    A worker may be in the middle of a long message while the caller has one for it. So whoever waits for a worker
    pumps: sends what there is room for, takes what has come. A message of any size passes.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self.worker_fd = theirs.detach()  # the descriptor of the worker's end, until it is handed over
        self._unsent: deque[memoryview] = deque()
        self._received: deque[bytearray] = deque()
        self._incoming = bytearray(_HEADER.size)  # the header, then the message, that is being read
        self._filled = 0
        self._in_header = True
        self.closed = False  # the worker's end is gone

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        return bool(self._unsent)

    def pack(self, value: Any) -> bytes:
        return dump(value)

    def send(self, value: Any) -> None:
        self.send_packed(dump(value))

    def send_packed(self, packed: bytes) -> None:
        if self.closed:
            raise ChannelClosed
        self._unsent.append(memoryview(_HEADER.pack(len(packed))))
        self._unsent.append(memoryview(packed))
        self._send_some()

    def send_parts(self, parts: Sequence[bytes]) -> None:
        """Sends what `dump_parts` gave, without a copy of it."""
        self.send(len(parts))
        for part in parts:
            self.send_packed(part)

    def receive(self, seconds: float | None = None) -> Any:
        """The next message; TimeoutError where not a byte has moved for `seconds`."""
        while not self._received:
            if self.closed:
                raise ChannelClosed
            if not wait_ready(self.fd, seconds, writing=self.unsent):
                raise TimeoutError
            self.pump()
        return pickle.loads(self._received.popleft())

    def pump(self) -> None:
        """Sends what there is room for and takes what has come."""
        self._send_some()
        try:
            while not self.closed:
                view = memoryview(self._incoming)
                got = self._socket.recv_into(view[self._filled : self._filled + PART_BYTES])
                self.closed = got == 0
                self._filled += got
                if self._filled == len(self._incoming):
                    self._finish_part()
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def _finish_part(self) -> None:
        """A header or a message is complete."""
        if self._in_header:
            (length,) = _HEADER.unpack(self._incoming)
            self._incoming = bytearray(length)
        else:
            self._received.append(self._incoming)
            self._incoming = bytearray(_HEADER.size)
        self._in_header = not self._in_header
        self._filled = 0

    def _send_some(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0][:PART_BYTES])
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def close(self) -> None:
        self._socket.close()


def dump(value: Any) -> bytes:
    """The value as bytes; functions and classes of the caller's own script travel by value."""
    return bytes(cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


def dump_parts(value: Any, kept: list[bytes]) -> list[bytes]:
    """The value as a pickle, then its large arrays, each in bytes of its own.

    An array whose bytes are among `kept` is taken from there, a new one is added: values that are dumped with the same
    list share their arrays.
    """
    large: list[bytes] = []

    def put_aside(buffer: pickle.PickleBuffer) -> bool:
        """Whether the buffer shall stay in the pickle."""
        if buffer.raw().nbytes < LARGE_BYTES:
            return True
        data = bytes(buffer.raw())
        same = next((each for each in kept if each == data), None)
        if same is None:
            kept.append(data)
        large.append(data if same is None else same)
        return False

    pickled = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=put_aside)
    return [bytes(pickled), *large]


def load_parts(parts: Sequence[bytearray]) -> Any:
    """The value of `dump_parts`; its large arrays lie in the parts themselves."""
    return pickle.loads(parts[0], buffers=parts[1:])
