"""The models that a worker has loaded: a few of them, the least recently used goes first."""

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Final

MODEL_BYTES: Final = 24 * 2**20
LOAD_S: Final = 1.0
"""A load takes so long; real ones read gigabytes from a disk or a network."""

MODELS_KEPT: Final = 3

Model = bytearray


def load_model(name: str) -> Model:
    """Load a model: it takes memory, and time."""
    time.sleep(LOAD_S)
    return bytearray(name.encode().ljust(16, b".")) * (MODEL_BYTES // 16)


class LoadedModels:
    """The models that a process has loaded, for all its threads."""

    def __init__(self, most: int, load: Callable[[str], Model]) -> None:
        self._most = most
        self._load = load
        self._lock = Lock()
        # by name, the least recently used first
        self._models: OrderedDict[str, Future[Model]] = OrderedDict()

    def get(self, name: str) -> tuple[Model, bool]:
        """Return a model, and whether it had to be loaded for this call.

        A thread whose model is being loaded by another thread waits for that load.
        """
        with self._lock:
            model = self._models.get(name)
            is_cold = model is None
            if model is None:
                model = self._models[name] = Future()
            self._models.move_to_end(name)
            if len(self._models) > self._most:
                self._models.popitem(last=False)
        if is_cold:
            self._fill(name, model)
        return model.result(), is_cold

    def _fill(self, name: str, model: "Future[Model]") -> None:
        """Load a model; a load that fails is forgotten, so that the next call tries it again."""
        try:
            model.set_result(self._load(name))
        except BaseException as error:
            with self._lock:
                if self._models.get(name) is model:
                    del self._models[name]
            model.set_exception(error)
