"""Seeds: read from lines and files, made canonical, and left in the crawl directory for the nodes that own them.

How data flows: `lines` reads URLs with their metadata from a text, a file or a directory. `files` opens only regular
files, and for a DAG only files below `inject.directory`. `contact` refuses other people's sites if the config has no
contact. `inject` sorts the URLs by owner into one folder, in the form of a segment's outlinks, by one rename: after a
crash the folder is whole or missing. A second run finds the folder of the same seeds and the same run id.
"""

from crawl_lib.seeds.check import check_seeds, set_damaged_aside
from crawl_lib.seeds.contact import has_contact, is_our_own, require_contact_for
from crawl_lib.seeds.files import find_files
from crawl_lib.seeds.inject import Division, hand_over, inject
from crawl_lib.seeds.lines import SeedReport, Seeds, parse_seeds
