"""Workers collect without waiting for each other, each rollout with the weights that were newest when it began."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest

from envfleet.errors import EnvError, OutOfTimeError
from envfleet.rollout.worker_rollouts import StreamedRollouts, WorkerRollout
from tests.fleet.loop_back import InlineLink, use_loop_back
from tests.rollout.envs import Counter, faulty_counter
from tests.rollout.streaming import GROUP, SEED, STEPS, WORKERS, Holdable, Stream, held, streaming
from tests.training.envs import Endless
from tests.waiting import wait_until

SLOW = SEED + GROUP  # seed of the first environment of worker 1


@pytest.fixture(autouse=True)
def nothing_held() -> Any:
    yield
    for event in held.values():
        event.set()
    held.clear()


def taken(stream: Stream, count: int) -> dict[tuple[int, int, int], list[bytes]]:
    """Take rollouts and release each; return their bytes by worker, number and version."""
    found = {}
    for _ in range(count):
        rollout = stream.workers.next()
        found[rollout[:3]] = stream.bytes_of(rollout)
        stream.workers.release(rollout)
    return found


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_rollout_depends_on_its_worker_number_and_weights_alone(backend: str) -> None:
    """New weights are published all the time. A worker that read half-written ones would act differently."""
    found = {}
    with streaming(Counter, backend=backend) as stream:
        for version in range(20):
            stream.workers.publish(stream.weights(version), version)
            found |= taken(stream, 1)
    assert len(found) == 20
    with streaming(Counter, backend="sequential", groups=[[0], [1]]) as stream:
        for worker, number, version in sorted(found):
            buffer = stream.requests.collect(worker, number, stream.weights(version), math.inf)
            rollout = WorkerRollout(worker, number, version, buffer)
            assert found[worker, number, version] == stream.bytes_of(rollout)


def test_a_message_to_a_host_has_the_weights_of_its_worker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the weights that are sent in a round would grow with the square of the number of workers."""
    use_loop_back("loop-back", monkeypatch)
    sent: list[int] = []
    send = InlineLink.send

    def counted(link: InlineLink, commands: Any, whole: Any) -> None:
        sent.append(whole.nbytes + commands.parcel.data.nbytes)
        send(link, commands, whole)

    with streaming(Counter, backend="threads", workers=4, n_envs=8) as stream:
        monkeypatch.setattr(InlineLink, "send", counted)
        stream.workers.publish(stream.weights(0), 0)
        assert len(taken(stream, 8)) == 8
        size = stream.weights(0).nbytes
    assert len(sent) >= 8 and size < max(sent) < 1.5 * size


def test_a_worker_that_is_held_does_not_hold_the_others() -> None:
    held[SLOW].clear()
    with streaming(Holdable, backend="threads") as stream:
        stream.workers.publish(stream.weights(0), 0)
        found = [rollout[:3] for rollout in taken(stream, 3)]
        assert found == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
        held[SLOW].set()
        assert wait_until(lambda: taken(stream, 1).keys() == {(1, 0, 0)})


def test_at_most_one_rollout_is_under_way_and_one_waits() -> None:
    held[SLOW].clear()
    with streaming(Holdable, backend="threads") as stream:
        workers = stream.workers
        assert isinstance(workers, StreamedRollouts)
        workers.publish(stream.weights(0), 0)
        first = workers.next()
        # Its second rollout is finished, its first not released: worker 0 must wait.
        assert wait_until(lambda: len(workers._ready) == 1 and 0 not in workers._running)
        assert workers._held == [2, 1]
        workers.publish(stream.weights(1), 1)
        workers.release(first)  # so it begins its third, with the new weights
        assert [workers.next()[:3] for _ in range(2)] == [(0, 1, 0), (0, 2, 1)]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_more_buffers_let_more_rollouts_wait(backend: str) -> None:
    with streaming(Counter, backend=backend, buffers=5) as stream:
        workers = stream.workers
        assert isinstance(workers, StreamedRollouts)
        workers.publish(stream.weights(0), 0)
        first = workers.next()
        assert wait_until(lambda: len(workers._ready) == 9)  # 5 of each worker, with the one that was taken
        assert not workers._running
        workers.release(first)
        assert wait_until(lambda: len(workers._ready) == 10)


@pytest.mark.parametrize("backend", WORKERS)
def test_settled_workers_can_be_called_and_go_on_afterwards(backend: str) -> None:
    with streaming(Counter, backend=backend) as stream:
        stream.workers.publish(stream.weights(0), 0)
        before = taken(stream, 2)
        stream.workers.settle()
        assert len(stream.fleet.call("get_wrapper_attr", "spec")) == 4
        after = taken(stream, 4)
        assert not before.keys() & after.keys()


def test_settling_waits_for_a_rollout_that_is_about_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner settles at the moment when the thread has decided to start a worker, but not started it yet."""
    with streaming(Counter, backend="threads") as stream:
        workers = stream.workers
        assert isinstance(workers, StreamedRollouts)
        begin = stream.requests.begin
        begun: list[int] = []
        settled_after: list[int] = []

        def settle() -> None:
            workers.settle()
            settled_after.append(len(begun))

        settling = threading.Thread(target=settle)

        def begin_late(*arguments: Any) -> int:
            if not begun:
                settling.start()
                waiting = workers._changed._waiters  # type: ignore[attr-defined]
                # Two threads wait: the learner's, and the one that settles, unless it does not wait at all.
                assert wait_until(lambda: not settling.is_alive() or len(waiting) == 2)
            buffer = begin(*arguments)
            begun.append(arguments[0])
            return buffer

        monkeypatch.setattr(stream.requests, "begin", begin_late)
        workers.publish(stream.weights(0), 0)
        workers.next()
        settling.join()
        assert settled_after == [2]  # both workers began and have finished
        assert not workers._running


def test_an_error_of_an_environment_reaches_the_learner(tmp_path: Any) -> None:
    fault = {"kind": "raise", "seed": SEED + 1, "step": STEPS + 1, "marker": str(tmp_path / "struck")}
    with streaming(lambda: faulty_counter(**fault), backend="threads") as stream:
        stream.workers.publish(stream.weights(0), 0)
        with pytest.raises(EnvError, match="the simulator has failed") as failure:
            taken(stream, 20)
        assert failure.value.context.env_index == 1
        with pytest.raises(EnvError):
            stream.workers.settle()


def test_a_worker_that_dies_loses_one_step_of_its_rollout(tmp_path: Any) -> None:
    fault = {"kind": "kill", "seed": SEED + 1, "step": STEPS + 1, "marker": str(tmp_path / "struck")}
    with streaming(lambda: faulty_counter(**fault), backend="processes") as stream:
        stream.workers.publish(stream.weights(0), 0)
        lost = {}
        while (0, 2) not in lost:
            rollout = stream.workers.next()
            lost[rollout[:2]] = np.argwhere(~stream.columns(rollout, "valid")).tolist()
            stream.workers.release(rollout)
        assert lost.pop((0, 1)) == [[1, 0], [1, 1]]
        assert not any(lost.values())


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_rollouts_are_given_up_at_their_time(backend: str) -> None:
    with streaming("CartPole-v1", backend=backend) as stream:
        stream.workers.publish(stream.weights(0), 0)
        with pytest.raises(OutOfTimeError):
            for _ in range(100):
                stream.workers.release(stream.workers.next(time.monotonic()))


def test_a_worker_inside_a_long_step_is_not_waited_for() -> None:
    with streaming(Endless, backend="processes", n_envs=4) as stream:
        stream.workers.publish(stream.weights(0), 0)
        with pytest.raises(OutOfTimeError):
            stream.workers.next(time.monotonic() + 0.2)
