"""Memory for megabytes of bytes that are written once: received frames, and what batches decompress to.

Owns where such memory begins. On Linux NumPy asks for huge pages for arrays of 4 MiB and more; the kernel gives them for the whole
ones in the array only: of an array of 8 MiB that begins anywhere a quarter of the memory came in pages of 4 KiB. A page fault for
each of them took up to a tenth of the CPU of a read. https://docs.kernel.org/admin-guide/mm/transhuge.html
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_HUGE_PAGE_BYTES: Final = 2 * 1024 * 1024
#: NumPy asks for huge pages from this size on.
_ADVISED_BYTES: Final = 4 * 1024 * 1024


def empty_buffer(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return uint8[n_bytes], not initialised, on huge pages if it is large."""
    if n_bytes < _HUGE_PAGE_BYTES:
        return np.empty(n_bytes, dtype=np.uint8)
    array = np.empty(max(n_bytes + _HUGE_PAGE_BYTES, _ADVISED_BYTES), dtype=np.uint8)
    first = -array.ctypes.data % _HUGE_PAGE_BYTES
    return array[first : first + n_bytes]
