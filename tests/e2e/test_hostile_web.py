"""Whatever hostile hosts do, good pages come in time, and each hostile page ends in the outcome that is named for it.

The large one, 500 with 500, is `make bench PARTS=hostile`.
"""

from pathlib import Path

import pytest

from tests.e2e.hostile import Shape, check
from tests.web.catalogue import CASES


@pytest.mark.timeout(240)
def test_good_hosts_with_every_case_of_the_catalogue(tmp_path: Path) -> None:
    shape = Shape(
        good=20, pages=4, hostile=len(CASES), urls=1, delay_s=0.3, time_limit_s=4.0, connections=64
    )
    check(tmp_path, seed=1, shape=shape)
