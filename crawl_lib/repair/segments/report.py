"""What `krake fsck --repair` says."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SalvageReport:
    """What a salvage found and did.

    `state`: `whole` (nothing to do), `salvaged`, `damaged` (dry run). `findings`: what was wrong. `pages`, `robots`:
    whole groups that were kept; `without_metadata`: pages of them whose metadata record is lost. `requests_lost`:
    requests of kept pages. `repeated`: groups that were there twice. `damage`: damaged places of the WARC files by
    reason; `places`: the first of them. `lost`: pages that are lost, `lost_named`: those of them whose URLs are known,
    `lost_urls`: the first. `outlinks_kept`: URLs of the old `outlinks`, `outlinks_whole`: whether these are all.
    `aside`: where the damaged segment is kept. `notes`: what else the operator should know.
    """

    segment: str
    state: str = "whole"
    findings: list[str] = field(default_factory=list)
    pages: int = 0
    robots: int = 0
    without_metadata: int = 0
    requests_lost: int = 0
    repeated: int = 0
    damage: dict[str, int] = field(default_factory=dict)
    damaged_bytes: int = 0
    places: list[str] = field(default_factory=list)
    lost: int = 0
    lost_named: int = 0
    lost_urls: list[str] = field(default_factory=list)
    outlinks_kept: int = 0
    outlinks_whole: bool = True
    aside: str = ""
    notes: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(vars(self))
