"""URLs: canonical text, key, host, owner, and whether a URL belongs to the crawl.

Data flows through this room in one direction:

1. A text (a seed, or a link's `href` with the page's base) becomes a **canonical URL**: `canonicalize`, `resolve`, and
   on the hot path `LinkResolver`, which needs no parser for most links (`canonical`, `links`).
2. The canonical URL gives the **key** (20 bytes SHA-1), the **host**, the authority of its robots.txt, and the
   registrable **domain** (`names`).
3. `UrlFilter` says whether the URL belongs to the crawl: port, depth, rules, scope (`filters`), and the config's
   `chains`.
4. `Owners` says which node owns the host (`names`); `Traps` and `Budgets` limit the numbers of queued URLs.

`Rejection` names the reason of each refusal, for the whole project.

This room keeps nothing on disk. Registrable domains depend on the pinned public suffix list (`requirements.lock`).
"""

from crawl_lib.urls.budgets import Budgets, DomainBudget
from crawl_lib.urls.canonical import canonicalize, resolve
from crawl_lib.urls.chains import Chain, Scope, require_chains, target_of_error
from crawl_lib.urls.filters import REQUISITE, UrlFilter
from crawl_lib.urls.links import LinkResolver, Target
from crawl_lib.urls.names import (
    Owners,
    authority_of,
    budget_domain_of,
    domain_of,
    has_listed_suffix,
    host_matches,
    host_of,
    is_address,
    key_of,
    refused_port,
    suffixes_of,
)
from crawl_lib.urls.rejections import Rejection
from crawl_lib.urls.traps import PATTERN_MARK, Groups, Traps, pattern_of
