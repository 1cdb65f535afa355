"""A host as an actor: messages that overtake others are put in order."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

from envfleet.fleet.backends.host_actor import HostActor
from tests.waiting import wait_until


def test_messages_are_carried_out_in_the_order_in_which_they_were_sent() -> None:
    """Otherwise older weights could replace newer ones."""
    carried_out: queue.SimpleQueue[int] = queue.SimpleQueue()
    actor: Any = object.__new__(HostActor)
    actor._reports, actor._early, actor._posted, actor._posting = {}, {}, 0, threading.Lock()
    actor._thread = SimpleNamespace(send=lambda commands, whole: carried_out.put(commands.number))
    threads = []
    for place in (2, 1, 0):
        threads.append(threading.Thread(target=actor.run, args=((place, SimpleNamespace(number=10 + place), b""),)))
        threads[-1].start()
        assert wait_until(lambda: carried_out.qsize() or len(actor._early) == len(threads))
    assert wait_until(lambda: carried_out.qsize() == 3)
    for number in (10, 11, 12):
        actor._deliver(SimpleNamespace(number=number, last=True, parcel=None))
    for thread in threads:
        thread.join()
    assert [carried_out.get() for _ in range(3)] == [10, 11, 12]
