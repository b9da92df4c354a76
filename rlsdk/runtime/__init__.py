"""Services of the process that training runs in: device, threads, memory, seeds, output and files.

`__all__` has the names for packages outside the core. They are imported on first use, because some need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.runtime.files import LastPrepared as LastPrepared
    from rlsdk.runtime.files import append_whole as append_whole
    from rlsdk.runtime.files import is_edited as is_edited
    from rlsdk.runtime.files import open_library as open_library
    from rlsdk.runtime.files import sealed as sealed
    from rlsdk.runtime.files import write_beside_edits as write_beside_edits
    from rlsdk.runtime.files import write_json as write_json
    from rlsdk.runtime.files import write_whole as write_whole
    from rlsdk.runtime.memory import available_bytes as available_bytes
    from rlsdk.runtime.memory import gigabytes as gigabytes
    from rlsdk.runtime.output import counted as counted
    from rlsdk.runtime.output import is_quiet as is_quiet
    from rlsdk.runtime.output import print_line as print_line
    from rlsdk.runtime.output import quietly as quietly
    from rlsdk.runtime.process import Streams as Streams
    from rlsdk.runtime.process import checked_seed as checked_seed
    from rlsdk.runtime.process import choose_device as choose_device
    from rlsdk.runtime.process import fresh_seed as fresh_seed
    from rlsdk.runtime.process import limited_threads as limited_threads
    from rlsdk.runtime.process import use_one_thread_here as use_one_thread_here

HOMES = {
    **dict.fromkeys(("Streams", "checked_seed", "fresh_seed"), "rlsdk.runtime.process"),
    **dict.fromkeys(("counted", "is_quiet", "print_line", "quietly"), "rlsdk.runtime.output"),
    **dict.fromkeys(
        ("append_whole", "is_edited", "open_library", "sealed", "write_beside_edits", "write_json", "write_whole"),
        "rlsdk.runtime.files",
    ),
    **dict.fromkeys(("available_bytes", "gigabytes"), "rlsdk.runtime.memory"),
    "LastPrepared": "rlsdk.runtime.files",
    **dict.fromkeys(("choose_device", "limited_threads", "use_one_thread_here"), "rlsdk.runtime.process"),
}
__all__ = sorted(HOMES)  # noqa: PLE0605  # type checkers read the imports above
__getattr__, __dir__ = attach(__name__, HOMES)
