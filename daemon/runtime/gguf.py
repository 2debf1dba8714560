"""The header of a GGUF file: its metadata, and whether the file is as long as its header says.

Reads a few hundred kilobytes at most and loads no library: the daemon never touches the weights.
"""

import os
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from modeld.daemon.contract.errors import ErrorCode, ModeldError

MAGIC = b"GGUF"
_VERSIONS = {2, 3}
_MAX_COUNT = 10_000_000
_MAX_TEXT = 64 * 1024 * 1024
_KEPT_TEXT = 1024 * 1024

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_TEXT, _ARRAY = 8, 9

_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
"""ggml's tensor types: elements in a block, bytes of a block."""


class _Array(int):
    """The length of an array that was skipped; not a number of the model's."""


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata by key (of arrays their lengths), and the bytes that the file must have."""

    metadata: dict[str, Any]
    size: int
    expected_size: int

    @property
    def architecture(self) -> str:
        """The model family's name, by which its keys are prefixed."""
        return str(self.metadata.get("general.architecture", ""))

    def number(self, key: str) -> int | None:
        """An integer of the model family; ``None`` if it is absent, or differs by layer."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return value if type(value) is int else None


def read_header(path: str) -> Header:
    """The header of the file at ``path``.

    Raises ModeldError(model_load_failed) if it is no GGUF, or is damaged, and OSError.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            metadata, end = _read(file)
        except (struct.error, ValueError, OverflowError, RecursionError) as exc:
            raise ModeldError(
                ErrorCode.MODEL_LOAD_FAILED,
                f"{path} is not a whole GGUF file: {exc}",
                path=path,
                size_bytes=size,
            ) from exc
    return Header(metadata, size, end)


def check_whole(path: str, header: Header) -> None:
    """Raise ModeldError(model_load_failed) if the file is shorter than its tensors (B45)."""
    if header.size < header.expected_size:
        raise ModeldError(
            ErrorCode.MODEL_LOAD_FAILED,
            f"{path} is cut short: it has {header.size} bytes and its tensors need "
            f"{header.expected_size}",
            path=path,
            size_bytes=header.size,
            expected_bytes=header.expected_size,
            recovery="fetch the file again",
        )


def _read(file: BinaryIO) -> tuple[dict[str, Any], int]:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = _number(file, "<I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version} is not supported")
    tensors, pairs = _number(file, "<Q"), _number(file, "<Q")
    if max(tensors, pairs) > _MAX_COUNT:
        raise ValueError("its counts make no sense")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = _text(file)
        metadata[key] = _value(file, _number(file, "<I"))
    end = max((_tensor_end(file) for _ in range(tensors)), default=0)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0:
        raise ValueError("its alignment makes no sense")
    start = -(-file.tell() // alignment) * alignment
    return metadata, start + end


def _tensor_end(file: BinaryIO) -> int:
    _text(file)
    dimensions = _number(file, "<I")
    if dimensions > 8:  # noqa: PLR2004  (ggml has 4)
        raise ValueError("a tensor's shape makes no sense")
    elements = 1
    for _ in range(dimensions):
        elements *= _number(file, "<Q")
    kind, offset = _number(file, "<I"), _number(file, "<Q")
    per_block, block_bytes = _BLOCKS.get(kind, (1, 0))
    return int(offset + -(-elements // per_block) * block_bytes)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _SCALARS:
        return _number(file, _SCALARS[kind])
    if kind == _TEXT:
        return _text(file)
    if kind == _ARRAY:
        return _skip_array(file)
    raise ValueError(f"metadata type {kind} is unknown")


def _skip_array(file: BinaryIO) -> _Array:
    kind, count = _number(file, "<I"), _number(file, "<Q")
    if count > _MAX_COUNT:
        raise ValueError("an array's length makes no sense")
    if kind in _SCALARS:
        file.seek(count * struct.calcsize(_SCALARS[kind]), os.SEEK_CUR)
    elif kind == _TEXT:
        for _ in range(count):
            _skip_text(file)
    else:
        for _ in range(count):
            _value(file, kind)
    return _Array(count)


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _length(file: BinaryIO) -> int:
    length = int(_number(file, "<Q"))
    if length > _MAX_TEXT:
        raise ValueError("a text's length makes no sense")
    return length


def _text(file: BinaryIO) -> str:
    length = _length(file)
    if length > _KEPT_TEXT:
        file.seek(length, os.SEEK_CUR)
        return ""
    data = file.read(length)
    if len(data) < length:
        raise ValueError("it ends within its header")
    return data.decode("utf-8")


def _skip_text(file: BinaryIO) -> None:
    file.seek(_length(file), os.SEEK_CUR)
