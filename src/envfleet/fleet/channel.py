"""Channels for Python objects between the caller and a worker: requests, replies and rare infos, not step data."""

from __future__ import annotations

import pickle
import queue
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import cloudpickle

from envfleet.fleet.os_compat import wait_ready

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
PART_BYTES = 1 << 20  # at most, per system call
LARGE_BYTES = 1 << 20  # arrays of at least this size are sent as separate parts


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel(Protocol):
    """Sends and receives objects in order."""

    def pack(self, value: Any) -> Any:
        """Convert the value to the form that is sent; raise if it cannot be sent."""

    def send_packed(self, packed: Any) -> None: ...

    def send(self, value: Any) -> None: ...

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next object; raise TimeoutError after `seconds`, ChannelClosed if the other side is gone."""

    def receive_packed(self, seconds: float | None = None) -> Any:
        """As `receive`, in the form in which it was sent, to pass it on."""


class LocalChannel:
    """A channel between threads of one process, which passes objects by reference."""

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

    receive_packed = receive


class SocketChannel:
    """A worker's end of a channel between processes: pickles over a socket pair. Both ends run our own code.

    It blocks if the socket is full or empty. The caller's end never blocks, so the two cannot deadlock.
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
        return pickle.loads(self.receive_packed(seconds))

    def receive_packed(self, seconds: float | None = None) -> bytearray:
        assert seconds is None, "a worker waits for its caller as long as that lives"
        return self._receive_bytes()

    def receive_parts(self) -> list[bytearray]:
        """Receive what the caller sent with `send_parts`."""
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
    """The caller's end, which never blocks when sending: `pump` sends later what the socket does not accept at once.

    A worker may be sending a long message while the caller sends one to it. So code that waits for a worker calls
    `pump`, which sends what fits and reads what has arrived. Messages can have any size.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self.worker_fd = theirs.detach()  # descriptor of the worker's end, until it is passed to the worker
        self._unsent: deque[memoryview] = deque()
        self._received: deque[bytearray] = deque()
        self._incoming = bytearray(_HEADER.size)  # the header or message that is being read
        self._filled = 0
        self._in_header = True
        self.closed = False  # whether the worker's end is gone

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
        """Send the result of `dump_parts` without copying it."""
        self.send(len(parts))
        for part in parts:
            self.send_packed(part)

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next message; raise TimeoutError if no byte was sent or received for `seconds`."""
        return pickle.loads(self.receive_packed(seconds))

    def receive_packed(self, seconds: float | None = None) -> bytes:
        """As `receive`, still pickled."""
        while not self._received:
            if self.closed:
                raise ChannelClosed
            if not wait_ready(self.fd, seconds, writing=self.unsent):
                raise TimeoutError
            self.pump()
        return bytes(self._received.popleft())

    def pump(self) -> None:
        """Send what fits into the socket and read what has arrived."""
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
        """Handle a completely received header or message."""
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
    """Pickle the value; functions and classes of the caller's own script are pickled by value."""
    return bytes(cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


def dump_parts(value: Any, kept: list[bytes]) -> list[bytes]:
    """Pickle the value; return the pickle, followed by the bytes of each large array.

    An array that is already in `kept` is reused, a new one is added. So values that are dumped with the same list share
    their arrays.
    """
    large: list[bytes] = []

    def put_aside(buffer: pickle.PickleBuffer) -> bool:
        """Return whether the buffer stays in the pickle."""
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
    """Load the value of `dump_parts`; its large arrays use the memory of the parts."""
    return pickle.loads(parts[0], buffers=parts[1:])
