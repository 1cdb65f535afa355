"""Records of TensorBoard's event files."""

from __future__ import annotations

import io

import pytest

from envfleet.runs.records import Checksum, RecordWriter


def test_the_checksum_is_the_published_one() -> None:
    # RFC 3720, appendix B.4
    checksum = Checksum()
    assert checksum.of(bytes(32)) == 0x8A9136AA
    assert checksum.of(b"\xff" * 32) == 0x62A8AB43
    assert checksum.of(bytes(range(32))) == 0x46DD794E
    assert checksum.of(b"123456789") == 0xE3069283


@pytest.mark.parametrize("length", [4, 5, 8, 300, 5000])
def test_records_are_those_of_tensorboard(length: int) -> None:
    tensorboard = pytest.importorskip("tensorboard.summary.writer.record_writer")
    content = bytes((7 * index + index // 11) % 256 for index in range(length))
    ours, theirs = io.BytesIO(), io.BytesIO()
    for file, writer in ((ours, RecordWriter(ours)), (theirs, tensorboard.RecordWriter(theirs))):
        for message in (content, content[:4], content):  # the table grows, then serves shorter messages
            writer.write(message)
        assert file.tell() == 2 * (length + 16) + 20
    assert ours.getvalue() == theirs.getvalue()
