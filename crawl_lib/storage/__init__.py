"""Files on the DFS: a local directory, HDFS or an object store, by the same contract.

How data flows: `open_storage` reads `dfs_primary` and gives a `Storage`. Stages write into hidden folders (with names
like `.x`), check the files, and make the folder visible by one `rename`, which refuses any existing target. Readers
ignore hidden names. HDFS is spoken to over WebHDFS: `hdfs` keeps the contract, `hdfs_files` has the open files,
`webhdfs` asks the namenodes and waits, `session` has the dialogue with a server, `problems` the meaning of failures. An
object store is `s3`: the store renames a folder under a claim (`s3_claims`); `s3_files` has the open files and copies,
`s3_client` the requests, and `s3_memory` known answers.

After a crash: a renamed file or folder is whole and durable; a hidden folder is rubbish, or its stage uses the folder
again. `filestore.Storage` states the contract; `tests/contracts/storage.py` tests the contract on every back end.
"""

from pathlib import Path
from threading import Event

from crawl_lib.config import Config
from crawl_lib.storage.access import (
    DfsAccess,
    S3Credentials,
    is_hdfs,
    is_local,
    is_s3,
    shown_address,
)
from crawl_lib.storage.filestore import Entry, Storage, check_path, hidden_next_to
from crawl_lib.storage.local import DELETED, LocalStorage


def open_storage(
    config: Config,
    stop: Event | None = None,
    *,
    make: bool = True,
    credentials: S3Credentials | None = None,
) -> Storage:
    """Open the store that `dfs_primary` names.

    A missing directory is made if its parent exists; so is HDFS's root path. `make` False: nothing is made.

    `credentials`: of an object store; None has them found in the environment or by the machine's role.

    `stop`: once set, repeated requests to HDFS, and files being sent or read, end with StoppedError within about a
    second. A request that a server has got, and does not answer, ends by `dfs.timeout_s`; one that cannot be connected,
    by `dfs.connect_timeout_s`. Raises ConfigError (the operator corrects `dfs_primary`) and StorageError (the operator
    looks at the disk or the namenodes that are named).
    """
    if is_hdfs(config):
        from crawl_lib.storage.hdfs import HdfsStorage  # noqa: PLC0415 - 50 ms that a local store need not pay

        return HdfsStorage.open(config.dfs_primary, config.dfs, stop, make=make)
    if is_s3(config):
        from crawl_lib.storage.s3 import S3Storage  # noqa: PLC0415 - its client is an extra

        return S3Storage.open(config, credentials, stop)
    return LocalStorage.open(Path(config.dfs_primary), make=make)
