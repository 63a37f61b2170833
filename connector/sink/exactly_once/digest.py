"""The digest of a micro-batch: a number for its rows that a second computation of the same rows has again.

The sum of a 64-bit hash for each row. All rows of a column are hashed together, eight bytes at a time: each word of a value times a
number of its place, summed up, then mixed (as MurmurHash3 does at its end), so that the sum over rows notices values that rows have
exchanged. It finds mistakes and other data, not forgeries. Markers hold digests, so the function must not change.
"""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.wire.arrow.arrays import binary_array, to_numpy, validity

Hashes = npt.NDArray[np.uint64]

_WORD: Final = 8
#: Longer values are hashed one by one: then a call for each value costs less than a pass for each word.
_MAX_WORDS: Final = 256
#: So many values are hashed at a time that their bytes stay in the cache: four times the speed of all at once, at 100 bytes.
_BLOCK: Final = 4_096
_MASK: Final = (1 << 64) - 1


def _factors(count: int) -> Hashes:
    """Return odd numbers without a pattern: the first of the generator SplitMix64 with seed 0."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    factors: Hashes = _mix(state) | np.uint64(1)
    return factors


def _mix(hashes: Hashes) -> Hashes:
    """Return each hash with all of its bits mixed: MurmurHash3's finalizer."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    mixed: Hashes = hashes ^ (hashes >> np.uint64(33))
    return mixed


_FACTORS: Final = _factors(_MAX_WORDS + 1)


def digest_of(records: RecordColumns) -> int:
    """Return the digest of rows, from 0 to 2**64 - 1; those of parts add up: independent of the rows' order and of their split
    into tasks.

    Record timestamps do not count, because a null one becomes the time of writing. Partitions count only where a column
    names them.
    """
    headers = None
    if records.headers is not None:
        headers = binary_array([repr(headers).encode() for headers in records.headers.to_pylist()])
    of_rows = np.zeros(records.n_records, dtype=np.uint64)
    for i, column in enumerate([records.key, records.value, records.topic, headers]):
        if column is not None:
            of_rows += _mix(_hashes(column.cast(pa.binary())) + _FACTORS[i])
    if records.partition is not None:
        partition = to_numpy(records.partition, null=-1).astype(np.int64).view(np.uint64)
        of_rows += _mix(partition * _FACTORS[4] + _FACTORS[5])
    return int(_mix(of_rows).sum(dtype=np.uint64))


def _hashes(values: pa.BinaryArray) -> Hashes:
    """Return uint64[n]: a hash of each value of a pa.BinaryArray; of null another one than of any value."""
    bounds = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)
    present = validity(values)
    starts, lengths = bounds[:-1], np.where(present, np.diff(bounds), 0)
    hashes: Hashes = np.where(present, lengths + 1, 0).astype(np.uint64) * _FACTORS[_MAX_WORDS]
    is_long = lengths > _MAX_WORDS * _WORD
    for row in np.flatnonzero(is_long).tolist():
        value = data[starts[row] : starts[row] + lengths[row]]
        half = len(value) // 2
        hashes[row : row + 1] += np.uint64(crc32c(value[:half]) << 32 | crc32c(value[half:]))
    short = np.where(is_long, 0, lengths)
    for first in range(0, len(values), _BLOCK):
        block = slice(first, first + _BLOCK)
        hashes[block] += _sums_of_words(data, starts[block], short[block])
    return hashes


def _sums_of_words(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Hashes:
    """Return uint64[n]: for each value the sum of its words, each times the factor of its place; the last word padded with
    zeros."""
    longest = int(lengths.max())
    if not longest:
        return np.zeros(len(starts), dtype=np.uint64)
    used = lengths > 0
    first = int(starts[used].min())
    # The padding lets a word begin at any byte.
    padded = np.concatenate([data[first : int((starts + lengths)[used].max())], np.zeros(_WORD, dtype=np.uint8)])
    offsets = np.where(used, starts - first, 0)
    if lengths.min() == longest and int(offsets[-1]) == (len(offsets) - 1) * longest:
        return _sums_of_equal_lengths(padded, len(starts), longest)
    words: Hashes = np.ndarray(shape=(len(padded) - _WORD + 1,), dtype="<u8", buffer=padded, strides=(1,))
    # The longest first: the rows that have a word at a place are then the first ones, those that end in it the last of them.
    order = np.argsort((longest - lengths).astype(np.uint16), kind="stable")
    offsets, sorted_lengths = offsets[order], lengths[order]
    sums = np.zeros(len(starts), dtype=np.uint64)
    n_beyond = np.searchsorted(-sorted_lengths, -np.arange(0, longest + _WORD, _WORD), side="left").tolist()
    for place, (n, n_whole) in enumerate(itertools.pairwise(n_beyond)):
        word = words[offsets[:n] + place * _WORD]
        word[n_whole:] = _cut(word[n_whole:], sorted_lengths[n_whole:n] - place * _WORD)
        word *= _FACTORS[place]
        sums[:n] += word
    in_order = np.empty_like(sums)
    in_order[order] = sums
    return in_order


def _sums_of_equal_lengths(padded: npt.NDArray[np.uint8], n_rows: int, length: int) -> Hashes:
    """Return the same for values of one length that follow one another."""
    n_whole, rest = divmod(length, _WORD)
    words: Hashes = np.ndarray(shape=(n_rows, n_whole + 1), dtype="<u8", buffer=padded, strides=(length, _WORD))
    sums: Hashes = np.einsum("ij,j->i", words[:, :n_whole], _FACTORS[:n_whole])
    if rest:
        sums += _cut(words[:, n_whole], np.full(n_rows, rest)) * _FACTORS[n_whole]
    return sums


def _cut(words: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """Return words without the bytes that are beyond so many bytes, 1 to 8."""
    bits = lengths.astype(np.uint64) * np.uint64(8)
    cut: Hashes = words & (np.uint64(_MASK) >> (np.uint64(64) - bits))
    return cut
