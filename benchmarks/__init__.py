"""`make bench`: what Krake costs on this machine."""

import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).resolve().parents[1] / "plugins")
)  # as the Makefile and pytest do
