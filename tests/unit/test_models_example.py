"""The example with ten models, without a stack: what a worker keeps loaded, and its requests."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from examples.models.__main__ import MODELS, choose_models
from examples.models.loaded import LoadedModels


def test_a_worker_keeps_the_models_that_were_used_last():
    loads = []
    loaded = LoadedModels(2, lambda name: loads.append(name) or bytearray(name.encode()))
    cold = [loaded.get(name)[1] for name in ("a", "b", "a", "c", "a", "b")]
    assert cold == [True, True, False, True, False, True]
    assert loads == ["a", "b", "c", "b"]
    assert loaded.get("a") == (bytearray(b"a"), False)


def test_threads_that_want_the_same_model_load_it_once():
    begun = Barrier(2)
    may_end = Event()

    def load(name):
        begun.wait(10)
        assert may_end.wait(10)
        return bytearray(name.encode())

    loaded = LoadedModels(1, load)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(loaded.get, "a")
        begun.wait(10)
        second = threads.submit(loaded.get, "a")
        may_end.set()
        model, is_cold = first.result(10)
        assert is_cold
        assert second.result(10) == (model, False)
        assert second.result(10)[0] is model


def test_a_load_that_fails_is_tried_again():
    answers = iter([OSError("no such model"), bytearray(b"a")])

    def load(name):
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    loaded = LoadedModels(2, load)
    with pytest.raises(OSError, match="no such model"):
        loaded.get("a")
    assert loaded.get("a") == (bytearray(b"a"), True)


def test_both_runs_ask_for_models_of_their_own_in_the_same_order():
    runs = [choose_models(run, 2000, 7) for run in ("without", "warm")]
    numbers = [[name.rpartition("-")[2] for name in names] for names in runs]
    assert numbers[0] == numbers[1]
    assert not set(runs[0]) & set(runs[1])
    counts = Counter(numbers[0])
    assert len(counts) == MODELS
    assert counts["0"] > 1.5 * counts["1"] > 2 * counts["9"]
