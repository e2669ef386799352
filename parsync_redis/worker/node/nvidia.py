"""NVIDIA's GPUs as nvidia-smi lists them: cards, and slices (MIG devices) of cards."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree

SMI: Final = "nvidia-smi"
SMI_S: Final = 30.0
"""Seconds that nvidia-smi may take: without its daemon it loads the driver first."""

_SICK: Final = re.compile(r"is lost|requires reset", re.IGNORECASE)
_CARD: Final = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)")
_SLICE: Final = re.compile(r"MIG \S+\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card, or a slice of a card.

    card: the number of the card, by the PCI bus, as nvidia-smi counts.
    card_uuid: the card's UUID, 'GPU-...'.
    uuid: the card's UUID, or for a slice 'MIG-...'.
    old_id: the slice's name in drivers before R470, 'MIG-GPU-UUID/1/0'.
    memory_mib: "" if the memory is unknown.
    """

    card: str
    card_uuid: str
    uuid: str
    memory_mib: str = ""
    old_id: str = ""

    @property
    def is_slice(self) -> bool:
        """True for a slice."""
        return self.uuid.startswith("MIG-")


@dataclass(slots=True)
class Listing:
    """The GPUs of a machine.

    troubles: errors that keep GPUs out of the list, such as the error of a card that has failed.
    """

    gpus: list[Gpu] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def list_gpus() -> Listing:
    """Return the GPUs of this machine; those of a divided card are its slices. Raises nothing."""
    answer, errors = _ask("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
    listing = Listing()
    for line in answer.splitlines():
        index, uuid, memory = (*(word.strip() for word in line.split(",")), "", "")[:3]
        if index.isdecimal() and not _SICK.search(line):
            listing.gpus.append(Gpu(index, uuid, uuid, memory if memory.isdecimal() else ""))
        elif line.strip():
            listing.troubles.append(line.strip())
    listing.troubles += errors
    if listing.gpus:
        _divide(listing)
    return listing


def named_gpus(word: str, gpus: list[Gpu]) -> list[Gpu]:
    """Return the GPU that an entry of CUDA_VISIBLE_DEVICES names, or all slices of a divided card.

    [] if it names none, or several: CUDA takes the beginning of a UUID if no other begins so.
    If nvidia-smi lists no slice at all, the entry of a slice is taken at its word.
    """
    if word.startswith("MIG-"):
        named = [
            gpu
            for gpu in gpus
            if gpu.is_slice and (gpu.uuid.startswith(word) or gpu.old_id == word)
        ]
        if not any(gpu.is_slice for gpu in gpus):
            named = [Gpu("", "", word)]
        return named if len(named) == 1 else []
    named = [
        gpu
        for gpu in gpus
        if gpu.card == word or (word.startswith("GPU-") and gpu.card_uuid.startswith(word))
    ]
    return named if len({gpu.card_uuid for gpu in named}) == 1 else []


def _ask(*arguments: str) -> tuple[str, list[str]]:
    """Return what nvidia-smi prints, and its errors."""
    try:
        process = subprocess.Popen(
            (SMI, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        return "", [str(error)]
    try:
        output, complaints = process.communicate(timeout=SMI_S)
    except subprocess.TimeoutExpired:
        # and it is not waited for: no signal ends a process that hangs in its driver
        process.kill()
        return "", [f"it did not answer within {SMI_S:g} s"]
    errors = [line.strip() for line in complaints.splitlines() if line.strip()]
    return output, [
        *errors,
        *([f"its exit code is {process.returncode}"] if process.returncode else []),
    ]


def _divide(listing: Listing) -> None:
    """Replace each divided card by its slices.

    A card in MIG mode without a slice leaves the list: nothing can run there until it is divided.
    """
    slices: dict[str, list[tuple[str, str]]] = {}
    card_uuid = ""
    for line in _ask("-L")[0].splitlines():
        if card_line := _CARD.search(line):
            card_uuid = card_line[1]
        elif slice_line := _SLICE.search(line):
            slices.setdefault(card_uuid, []).append((slice_line[1], slice_line[2]))
    details, divided = _details()
    gpus = []
    for card in listing.gpus:
        for number, uuid in slices.get(card.uuid, ()):
            memory_mib, instance = details.get((card.uuid, number), ("", ""))
            old_id = f"MIG-{card.uuid}/{instance}" if instance else ""
            gpus.append(Gpu(card.card, card.uuid, uuid, memory_mib, old_id))
        if card.uuid in divided and card.uuid not in slices:
            listing.troubles.append(
                f"card {card.card} is in MIG mode and has no slice, so nothing can run there"
            )
        elif card.uuid not in slices:
            gpus.append(card)
    listing.gpus = gpus


def _details() -> tuple[dict[tuple[str, str], tuple[str, str]], set[str]]:
    """Return the details of slices, and the UUIDs of the cards in MIG mode.

    The details of a slice are (MiB, 'GPU instance/compute instance'), by the card's UUID and the
    slice's number there.
    """
    try:
        cards = ElementTree.fromstring(_ask("-q", "-x")[0]).iter("gpu")  # noqa: S314 - nvidia-smi of this machine wrote it
    except ElementTree.ParseError:
        return {}, set()
    details = {}
    divided = set()
    for card in cards:
        if card.findtext("mig_mode/current_mig", "") == "Enabled":
            divided.add(card.findtext("uuid", ""))
        for part in card.iter("mig_device"):
            memory = part.findtext("fb_memory_usage/total", "").removesuffix("MiB").strip()
            instance = (
                f"{part.findtext('gpu_instance_id', '')}/{part.findtext('compute_instance_id', '')}"
            )
            key = (card.findtext("uuid", ""), part.findtext("index", ""))
            details[key] = (memory if memory.isdecimal() else "", instance)
    return details, divided
