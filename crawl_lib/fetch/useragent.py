"""The name of Krake in requests, and in the records of answers. No module of curl is loaded for it."""

from crawl_lib.config import FetchConfig
from crawl_lib.version import VERSION


def user_agent_header(config: FetchConfig) -> str:
    """Return the User-Agent header: `<token>/<version> (+<contact>)`, or `<token>/<version>` without a contact."""
    contact = f" (+{config.contact})" if config.contact else ""
    return f"{config.user_agent}/{VERSION}{contact}"
