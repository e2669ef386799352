"""AMD's GPUs, as the kernel lists them for ROCm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .nvidia import Gpu, Listing

TOOLS: Final = ("amd-smi", "rocm-smi")
"""ROCm's tools. A machine without them may have a card for its screen only."""
KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
"""The kernel's list. ROCm counts its cards in this order."""
AMD_CONTROL_FILE: Final = Path("/dev/kfd")
"""A program that computes on a card opens this file."""

_OF_THE_CARD: Final = (1, 2)
"""The heap types of a card's own memory."""


def has_rocm() -> bool:
    """Return whether one of ROCm's tools is on the PATH."""
    return any(map(shutil.which, TOOLS))


def has_cards() -> bool:
    """Return whether this process could compute on one of AMD's cards."""
    return os.access(AMD_CONTROL_FILE, os.R_OK | os.W_OK) and bool(list_amd().gpus)


def list_amd() -> Listing:
    """Return the GPUs that this process may use. Raises nothing.

    In a container the kernel refuses the properties of cards that the container was not given, and
    ROCm skips them.
    """
    gpus: list[Gpu] = []
    for folder in sorted(_numbered(KFD), key=lambda folder: int(folder.name)):
        facts = _read_properties(folder / "properties")
        if facts.get("simd_count", 0) == 0:  # a processor, or a card of another maker
            continue
        banks = [_read_properties(bank / "properties") for bank in _numbered(folder / "mem_banks")]
        memory = sum(
            bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _OF_THE_CARD
        )
        uuid = f"GPU-{facts['unique_id']:016x}" if facts.get("unique_id") else ""
        gpus.append(Gpu(str(len(gpus)), uuid, uuid, str(memory // 2**20) if memory else ""))
    return Listing(gpus)


def _numbered(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*") if path.name.isdecimal())


def _read_properties(file: Path) -> dict[str, int]:
    """Return the numbers in a file of lines `name number`, {} if it cannot be read."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
