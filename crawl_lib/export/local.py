"""Open files of an export from the local disk."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crawl_lib.export.folder import ExportFolder
from crawl_lib.scratch import scratch_folder


@contextmanager
def local_files(folder: ExportFolder) -> Iterator[Callable[[str], Path]]:
    """Give a function from file names to local paths.

    The paths are good within the block. Files of a remote store are copied to a folder of this reader in the scratch
    directory, which is deleted at the end.
    """
    local = folder.storage.local_path(folder.path)
    if local is not None:
        yield local.joinpath
        return
    with scratch_folder(folder.stores.config, f"read-{folder.name}-{uuid.uuid4().hex}") as scratch:

        def copied(file: str) -> Path:
            folder.storage.download(folder.file(file), scratch / file)
            return scratch / file

        yield copied
