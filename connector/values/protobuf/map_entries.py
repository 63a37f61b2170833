"""Maps as lists of their entries, in the order of the bytes.

google.protobuf keeps a map as a hash table, whose order differs from process to process. The same file whose entries are messages
like all others gives them in their order. What parsers do with a map is done here: the last entry of a key counts, in the place of
the first, and an entry with unknown fields does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool


@dataclass(frozen=True, slots=True)
class WithoutMaps:
    """A file and all that it imports, in a pool of its own, whose maps are repeated fields.

    Attributes:
        entries: the full names of the messages that are entries of maps.
    """

    pool: DescriptorPool
    entries: frozenset[str]

    def message_class(self, descriptor: Descriptor) -> Any:
        """Return the class of the message that has the same name as ``descriptor``."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self.pool.FindMessageTypeByName(descriptor.full_name))


@lru_cache(maxsize=1_000)
def without_maps(file: FileDescriptor) -> WithoutMaps | None:
    """Return None where neither the file nor any that it imports has a map."""
    from google.protobuf.descriptor_pool import DescriptorPool

    from pykafka_wire.values.protobuf.linker import messages_of

    pool, entries = DescriptorPool(), set[str]()
    for dependency in files_of(file):
        for name, message in messages_of(dependency):
            if message.options.map_entry:
                message.options.ClearField("map_entry")
                entries.add(name)
        pool.Add(dependency)
    return WithoutMaps(pool, frozenset(entries)) if entries else None


def files_of(file: FileDescriptor) -> Iterator[Any]:
    """Yield copies of a file and of all that it imports, as FileDescriptorProto, each after all that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    known = set[str]()
    # Depth first, without recursion.
    waiting = [(file, False)]
    while waiting:
        dependency, is_ready = waiting.pop()
        if dependency.name in known:
            continue
        if not is_ready:
            waiting += [(dependency, True), *((inner, False) for inner in dependency.dependencies)]
            continue
        known.add(dependency.name)
        linked = FileDescriptorProto()
        dependency.CopyToProto(linked)
        yield linked


def pairs(entries: Iterable[Any]) -> dict[Any, Any]:
    """Return the keys and values of a map's entries."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    return {entry.key: entry.value for entry in entries if not len(UnknownFieldSet(entry))}
