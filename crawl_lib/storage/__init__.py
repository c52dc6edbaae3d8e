"""Files on the DFS: a local directory, or HDFS by the same contract.

How data flows: `open_storage` reads `dfs_primary` and gives a `Storage`. Stages write into hidden folders (a name that
begins with "."), check what they wrote, and make it visible by one `rename`, which refuses any existing target.
Readers ignore hidden names. HDFS is spoken to over WebHDFS: `hdfs` keeps the contract, `hdfs_files` has the open files,
`webhdfs` asks the namenodes and waits, `session` says how a server is spoken to, `problems` what a failure means.

After a crash: a renamed file or folder is whole and durable; a hidden one is rubbish or is used again by the stage
that owns it. `filestore.Storage` states the contract; `tests/contracts/storage.py` runs it on every back end.
"""

from crawl_lib.storage.access import DfsAccess, is_hdfs, open_storage
from crawl_lib.storage.filestore import Entry, Storage, check_path, hidden_next_to
from crawl_lib.storage.local import DELETED, LocalStorage
