"""Which partition each row goes to, thousands of rows at a time.

The default is that of Java's producer. A key belongs to one partition, ``(murmur2(key) & 0x7fffffff) % n``, so that records of one
key are in one partition whichever client wrote them. The hash is Java's murmur2 with the seed 0x9747b28c
(org.apache.kafka.common.utils.Utils). Rows without a key go to one partition for as many bytes as a batch has, then to the
next one (KIP-480, KIP-794): this makes few large batches instead of many small ones. ``partitioner.class`` selects others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.wire.arrow.arrays import to_numpy, validity
from pykafka_wire.wire.arrow.varints import Ints
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.masking import quoted
from pykafka_wire.wire.security.secret_references import load_callable
from pykafka_wire.wire.settings import ClientSettings

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF
#: How many bytes of rows without a key go to one partition before the next one, unless ``batch.size`` is set: four of Java's
#: batches, because here thousands of rows come at once.
_STICKY_BYTES: Final = 64 * 1024
_CLASS: Final = "partitioner.class"
_ROUND_ROBIN: Final = "RoundRobinPartitioner"
#: The older names of what Java's producer does by default, without and with partitioner.ignore.keys.
_DEFAULT: Final = "DefaultPartitioner"
_UNIFORM: Final = "UniformStickyPartitioner"


#: ``function(topic, keys, values, n_partitions)``: a partition for each row, as an Arrow or NumPy array or a sequence of
#: ints; null or -1 leaves a row to the partitioner for rows without a key. Keys and values are pa.BinaryArray.
PartitionFunction = Callable[[str, Any, Any, int], Any]


class Partitioner:
    """Places rows by ``partitioner.class`` and ``partitioner.ignore.keys``. One for each task: it remembers where the last row
    without a key went.

    Raises:
        SettingsError: ``partitioner.class`` is not available here.
    """

    def __init__(self, settings: ClientSettings) -> None:
        name = settings.partitioner_class or _DEFAULT
        short = name.rpartition(".")[2]
        self._name = name
        self._function: PartitionFunction | None = None
        self._round_robin = short == _ROUND_ROBIN
        self._ignores_keys = settings.partitioner_ignore_keys or short == _UNIFORM
        self._sticky_bytes = max(1, _STICKY_BYTES if settings.batch_size is None else settings.batch_size)
        #: Topic -> the partition that gets the next row without a key, and its bytes so far (with round robin: rows).
        self._current: dict[str, tuple[int, int]] = {}
        if ":" in name:
            self._function = load_callable(name, _CLASS)
        elif short not in (_ROUND_ROBIN, _DEFAULT, _UNIFORM):
            raise SettingsError(
                "{setting} is {name}, and Java classes cannot run here.",
                setting=_CLASS,
                remedy=f"Use {_ROUND_ROBIN}, or module:function with a function(topic, keys, values, n_partitions).",
                name=quoted(name),
            )

    def place(self, topic: str, keys: pa.Array, values: pa.Array, n_partitions: int) -> npt.NDArray[np.int32]:
        """Return the partition of each row, int32[n].

        Args:
            keys: pa.BinaryArray with nulls, or None where no row has one.
            values: pa.BinaryArray with nulls.

        Raises:
            SettingsError: the user's function did not return a partition for each row.
        """
        if self._round_robin:
            return self._one_after_another(topic, np.ones(len(values), dtype=np.int64), 1, n_partitions)
        if self._function is not None:
            partitions = self._call(self._function, topic, keys, values, n_partitions)
        elif keys is None or self._ignores_keys:
            partitions = np.full(len(values), -1, dtype=np.int32)
        else:
            partitions = partitions_of(keys, n_partitions)
        unassigned = np.flatnonzero(partitions < 0)
        if len(unassigned):
            sizes = _n_bytes(values) if keys is None else _n_bytes(values) + _n_bytes(keys)
            partitions[unassigned] = self._one_after_another(topic, sizes[unassigned], self._sticky_bytes, n_partitions)
        return partitions

    def _one_after_another(self, topic: str, sizes: Ints, share: int, n_partitions: int) -> npt.NDArray[np.int32]:
        """Return partitions one after another; each gets rows until their `sizes` add up to `share`."""
        first, begun = self._current.get(topic) or (random.randrange(n_partitions), 0)
        ends = begun + np.cumsum(sizes)
        n_shares, rest = divmod(int(ends[-1]), share)
        self._current[topic] = (first + n_shares) % n_partitions, rest
        if n_shares > len(sizes):  # as with batch.size=0: a share may be a byte
            return ((first + (ends - sizes) // share) % n_partitions).astype(np.int32)
        # The first row of each share, instead of a division for each row.
        firsts = np.searchsorted(ends - sizes, share * np.arange(1, n_shares + 1))
        n_rows = np.diff(firsts, prepend=0, append=len(sizes))
        return np.repeat(((first + np.arange(n_shares + 1)) % n_partitions).astype(np.int32), n_rows)

    def _call(
        self, function: PartitionFunction, topic: str, keys: pa.Array, values: pa.Array, n_partitions: int
    ) -> npt.NDArray[np.int32]:
        n_rows = len(values)
        given = function(topic, pa.nulls(n_rows, pa.binary()) if keys is None else keys, values, n_partitions)
        try:
            array = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
            partitions: npt.NDArray[np.int32] = np.array(pc.fill_null(array.cast(pa.int32()), -1))
        except (pa.ArrowException, TypeError) as error:
            raise self._invalid_result(f"partitions that are not whole numbers ({error})") from error
        if len(partitions) != n_rows:
            raise self._invalid_result(f"{len(partitions)} partitions for {n_rows} rows")
        outside = (partitions < -1) | (partitions >= n_partitions)
        if outside.any():
            raise self._invalid_result(f"partition {partitions[outside][0]} for {topic}, which has {n_partitions}")
        return partitions

    def _invalid_result(self, what: str) -> SettingsError:
        remedy = (
            "It takes (topic, keys, values, n_partitions) and returns a partition for each row, or null to leave the "
            "choice to the default."
        )
        return SettingsError(
            "{setting}: {function} returned {result}.", setting=_CLASS, remedy=remedy, function=self._name, result=what
        )


def _n_bytes(array: pa.Array) -> Ints:
    sizes: Ints = to_numpy(pc.binary_length(array), null=0).astype(np.int64)
    return sizes


def partitions_of(keys: pa.Array, n_partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, int32[n]; -1 where the key is null.

    Args:
        keys: pa.BinaryArray.
    """
    n = len(keys)
    partitions = np.full(n, -1, dtype=np.int32)
    if n == 0:
        return partitions
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + n + 1].astype(np.int64)
    data_bytes = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.empty(0, dtype=np.uint8)
    sizes = np.diff(bounds)
    if keys.null_count:
        sizes[~validity(keys)] = -1
    # Keys of equal length are hashed together: a loop over lengths, then over their words, never over keys.
    groups: list[Any] = [slice(None)]
    if int(sizes.min()) != int(sizes.max()):
        order = np.argsort(sizes, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1)
    for rows in groups:
        size = int(sizes[rows][0])
        if size >= 0:
            hashed = _murmur2_of_equal_length(data_bytes, bounds[:-1][rows], size)
            partitions[rows] = (hashed & np.uint32(0x7FFFFFFF)) % np.uint32(n_partitions)
    return partitions


def _murmur2_of_equal_length(
    data_bytes: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int
) -> npt.NDArray[np.uint32]:
    m = np.uint32(_M)
    h = np.full(len(starts), (_SEED ^ size) & _MASK, dtype=np.uint32)
    whole = size & ~3
    # The four bytes from each position on, as a number: a view.
    words = np.ndarray((max(len(data_bytes) - 3, 0),), dtype="<u4", buffer=data_bytes.data, strides=(1,))
    for position in range(0, whole, 4):
        k = words[starts + position].astype(np.uint32) * m
        k = (k ^ k >> np.uint32(_R)) * m
        h = h * m ^ k
    if whole < size:
        for position in range(whole, size):
            h = h ^ data_bytes[starts + position].astype(np.uint32) << np.uint32(8 * (position - whole))
        h = h * m
    h = (h ^ h >> np.uint32(13)) * m
    hashed: npt.NDArray[np.uint32] = h ^ h >> np.uint32(15)
    return hashed
