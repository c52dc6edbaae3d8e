"""Texts for the page of each task in Airflow, and for a table of the docs: its work, and the remedy of a failure.

Airflow shows `doc_md` on the page of a task. docs/operating.md has the same sentences as a table, as a test checks.
"""

from __future__ import annotations

from typing import NamedTuple


class TaskDoc(NamedTuple):
    """A task for its readers, in Markdown. `does`: one sentence; `failed`: the remedy of a failure."""

    does: str
    failed: str

    @property
    def doc_md(self) -> str:
        """The text on the page of a task."""
        return f"{self.does}\n\n**When it failed:** {self.failed}"


_CLEAR = "Correct what the last lines of the log name, then clear the task with its downstream"

TASK_DOCS: dict[str, TaskDoc] = {
    "inject": TaskDoc(
        "Makes the seeds of the run canonical, and leaves them for the nodes that own their hosts.",
        "Trigger a new run with other seeds if the seeds are wrong, since a cleared task keeps its parameters.",
    ),
    "generate": TaskDoc(
        "Lists the best due URLs of the CrawlDb, as many as the nodes have room for.",
        f"{_CLEAR}. An iteration that has a list keeps this list.",
    ),
    "crawl": TaskDoc(
        "Takes URLs of the node's queue, fetches them, and commits a segment with WARC files and tables.",
        f"Airflow tries the task again by itself, and fetched pages are kept. {_CLEAR} after the last try.",
    ),
    "commit": TaskDoc(
        "Checks that the segments of all nodes are there, and writes the sums of the iteration.",
        "Clear the crawl task of each node that is missing, then this task with its downstream. "
        "If too few URLs were answered, look at the network first.",
    ),
    "update_crawldb": TaskDoc(
        "Takes the iteration's fetches and finds into a new version of the CrawlDb.",
        f"{_CLEAR}. The version before counts until then.",
    ),
    "collect": TaskDoc(
        "Makes a segment of the real-time service's fetches; skipped if nothing is new.",
        f"{_CLEAR}. The next run goes on where this one stopped, and the service may run meanwhile.",
    ),
    "statistics": TaskDoc(
        "Counts shared and fetched URLs of an hour by domain, and of earlier hours with late segments.",
        f"{_CLEAR}. A written version is never changed.",
    ),
    "settle": TaskDoc(
        "Takes the last iteration's finds into the node's queue.",
        f"{_CLEAR}. The next run takes in the same URLs otherwise, and loses none.",
    ),
    "maintain_keys": TaskDoc(
        "Counts the keys of one key server, compares the replicas, and fills in missing keys.",
        "Start the key server that the log names, then clear the task. No other task has to wait.",
    ),
    "export": TaskDoc(
        "Gives the crawled pages their numbers, and writes mapping, content and offsets.",
        f"{_CLEAR}. For an export that exists with other iterations, trigger a new run with another label.",
    ),
    "linker": TaskDoc(
        "Turns the links between exported pages into arcs.",
        f"{_CLEAR}. Finished parts are kept.",
    ),
    "finalizer": TaskDoc(
        "Writes the web graph of the export, and deletes exports beyond `export.keep`.",
        f"{_CLEAR}. Finished parts are kept.",
    ),
    "invert_links": TaskDoc(
        "Takes new segments into the LinkDb: links to pages, with anchor texts.",
        f"{_CLEAR}. The version before counts until then.",
    ),
    "duplicates": TaskDoc(
        "Marks all but the best of equal pages as `duplicate` in the CrawlDb.",
        f"{_CLEAR}. The version before counts until then.",
    ),
    "score": TaskDoc(
        "Ranks pages by inlinks, and makes the ranks the scores of the CrawlDb.",
        f"{_CLEAR}. Crawl more first if the pages do not link to each other.",
    ),
    "text": TaskDoc(
        "Reads each page's main text, language and words.",
        f"{_CLEAR}. Finished texts are kept.",
    ),
    "index": TaskDoc(
        "Makes a new version of the index, with the current pages.",
        f"{_CLEAR}. `krake search QUERY` asks the version before until then.",
    ),
    "push": TaskDoc(
        "Brings OpenSearch (`push.url`) to the newest version of the index.",
        f"{_CLEAR}. A push continues a stopped push.",
    ),
    "commoncrawl": TaskDoc(
        "Makes Common Crawl's index and WET files, as `commoncrawl.make` says.",
        f"{_CLEAR}. Finished folders are kept.",
    ),
    "graphs": TaskDoc(
        "Makes files of hosts, domains and links of the newest export, for other programs.",
        f"{_CLEAR}. Finished folders are kept.",
    ),
    "captures": TaskDoc(
        "Notes where the newest capture of each URL is, so that `krake show URL`, `why` and `cat` find it at once.",
        f"{_CLEAR}. These commands work without the table too, only slower.",
    ),
}
"""By `stage_name` of an operator, in the order of a run."""


def doc_of(task_id: str) -> TaskDoc | None:
    """Return the text of a task by its id in a DAG, with its groups; None: the task has no work of its own."""
    names = ("update_crawldb" if part == "update" else part for part in task_id.split("."))
    return next((TASK_DOCS[name] for name in names if name in TASK_DOCS), None)


def table() -> str:
    """Return the same sentences as the table of docs/operating.md, which explains *Clear* once."""
    rows = [
        f"| `{name}` | {doc.does} | {doc.failed.replace(_CLEAR, '*Clear*')} |"
        for name, doc in TASK_DOCS.items()
    ]
    return "\n".join(["| task | what it does | when it failed |", "|---|---|---|", *rows])
