"""A GGUF's header: read as its writer meant it, and any damage is one kind of error."""

import struct
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modeld.daemon.contract.errors import ErrorCode, ModeldError
from modeld.daemon.runtime.gguf import check_whole, read_header


def write_model(path: Path) -> bytes:
    """A small whole model with every kind of metadata, by the format's own library."""
    writer = reference.GGUFWriter(str(path), "llama")
    writer.add_context_length(2048)
    writer.add_block_count(2)
    writer.add_name("é")
    writer.add_bool("x.bool", True)
    writer.add_float32("x.f32", 0.5)
    writer.add_float64("x.f64", 0.25)
    writer.add_int8("x.i8", -8)
    writer.add_int16("x.i16", -16)
    writer.add_int32("x.i32", -32)
    writer.add_int64("x.i64", -64)
    writer.add_uint8("x.u8", 8)
    writer.add_uint16("x.u16", 16)
    writer.add_uint64("x.u64", 2**63)
    writer.add_array("x.numbers", [1, 2, 3])
    writer.add_array("x.texts", ["a", "bb", ""])
    writer.add_head_count([4, 8])
    writer.add_tensor("f32", np.zeros((4, 8), dtype=np.float32))
    writer.add_tensor("f16", np.zeros((3, 5), dtype=np.float16))
    blocks = np.zeros((2, 36), dtype=np.uint8)
    writer.add_tensor("q8_0", blocks[:, :34], raw_dtype=reference.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_model(path)
    return path


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def header_of(*pairs: bytes, version: int = 3, tensors: tuple[bytes, ...] = ()) -> bytes:
    counts = struct.pack("<IQQ", version, len(tensors), len(pairs))
    return b"GGUF" + counts + b"".join(pairs) + b"".join(tensors)


def failure_of(path: Path, data: bytes) -> ModeldError:
    path.write_bytes(data)
    with pytest.raises(ModeldError) as caught:
        read_header(str(path))
    assert caught.value.code is ErrorCode.MODEL_LOAD_FAILED
    assert caught.value.details["size_bytes"] == len(data)
    return caught.value


def test_metadata_are_as_their_writer_gave_them(model: Path) -> None:
    metadata = read_header(str(model)).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["general.name"] == "é"
    assert metadata["x.bool"] is True
    assert (metadata["x.f32"], metadata["x.f64"]) == (0.5, 0.25)
    assert [metadata[f"x.i{bits}"] for bits in (8, 16, 32, 64)] == [-8, -16, -32, -64]
    assert [metadata[f"x.u{bits}"] for bits in (8, 16, 64)] == [8, 16, 2**63]
    assert (metadata["x.numbers"], metadata["x.texts"]) == (3, 3)


def test_a_familys_number_is_one_number_or_none(model: Path) -> None:
    header = read_header(str(model))
    assert header.architecture == "llama"
    assert header.number("context_length") == 2048
    assert header.number("attention.head_count") is None, "it differs by layer"
    assert header.number("no.such") is None


def test_a_whole_file_is_as_long_as_its_header_says(model: Path) -> None:
    header = read_header(str(model))
    assert header.size == model.stat().st_size
    padding = header.size - header.expected_size
    assert 0 <= padding < 32, "the last tensor may be padded to the alignment"
    check_whole(str(model), header)


def test_every_tensor_type_is_as_large_as_the_formats_library_says(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    for kind, (per_block, size) in reference.GGML_QUANT_SIZES.items():
        tensor = text("t") + struct.pack("<IQIQ", 1, per_block * 3, int(kind), 0)
        path.write_bytes(header_of(tensors=(tensor,)))
        start = -(-path.stat().st_size // 32) * 32
        known = read_header(str(path)).expected_size - start
        if kind.name == "Q8_1":
            continue  # ggml's has 36 bytes since 2024; no file has tensors of it
        assert known in {size * 3, 0}, kind.name
        if kind.name in {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "MXFP4"}:
            assert known == size * 3, kind.name


def test_a_file_cut_anywhere_is_refused(model: Path, tmp_path: Path) -> None:
    """B45."""
    whole, cut = model.read_bytes(), tmp_path / "cut.gguf"
    needed = read_header(str(model)).expected_size
    for size in range(needed):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModeldError) as caught:
            check_whole(str(cut), read_header(str(cut)))
        assert caught.value.code is ErrorCode.MODEL_LOAD_FAILED, size
        assert caught.value.details["size_bytes"] == size


def test_a_short_file_is_refused_with_both_numbers(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-64])
    header = read_header(str(cut))
    with pytest.raises(ModeldError, match="cut short") as caught:
        check_whole(str(cut), header)
    assert caught.value.details["expected_bytes"] == header.expected_size
    assert caught.value.details["recovery"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "begin with GGUF"),
        (b"GGML" + bytes(40), "begin with GGUF"),
        (header_of(version=1), "version 1"),
        (header_of(version=0x03000000), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "counts"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "counts"),
        (header_of(text("k") + struct.pack("<I", 99)), "type 99"),
        (header_of(struct.pack("<Q", 2**62)), "length"),
        (header_of(text("k") + struct.pack("<IIQ", 9, 4, 2**62)), "array"),
        (header_of(text(b"\xff") + struct.pack("<IB", 0, 1)), "utf-8"),
        (header_of(text("general.alignment") + struct.pack("<II", 4, 0)), "alignment"),
        (header_of(text("general.alignment") + struct.pack("<If", 6, 0.5)), "alignment"),
        (header_of(tensors=(text("t") + struct.pack("<I", 9),)), "shape"),
    ],
)
def test_what_is_no_gguf_is_refused_and_says_why(tmp_path: Path, data: bytes, words: str) -> None:
    error = failure_of(tmp_path / "m.gguf", data)
    assert words in error.message


def test_arrays_in_arrays_are_passed_over(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 4, 2) + struct.pack("<II", 1, 2)
    nested = text("k") + struct.pack("<IIQ", 9, 9, 1) + inner
    path = tmp_path / "m.gguf"
    path.write_bytes(header_of(nested, text("after") + struct.pack("<II", 4, 7)))
    assert read_header(str(path)).metadata["after"] == 7


def test_arrays_nested_without_end_are_refused(tmp_path: Path) -> None:
    """A RecursionError would have ended the daemon."""
    deep = text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50_000
    failure_of(tmp_path / "m.gguf", header_of(deep))


def test_a_very_long_text_is_passed_over(tmp_path: Path) -> None:
    long = text("k") + struct.pack("<I", 8) + text("x" * (2 * 1024**2))
    path = tmp_path / "m.gguf"
    path.write_bytes(header_of(long, text("after") + struct.pack("<II", 4, 7)))
    assert read_header(str(path)).metadata == {"k": "", "after": 7}


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=6))
def test_a_damaged_file_is_read_or_refused(
    model: Path, tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(model.read_bytes())
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    try:
        check_whole(str(path), read_header(str(path)))
    except ModeldError as error:
        assert error.code is ErrorCode.MODEL_LOAD_FAILED  # noqa: PT017  (either is right)
