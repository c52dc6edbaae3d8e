"""The frozen, typed config of a crawl.

`model` holds the dataclasses (every option, its unit and default), `load` reads a YAML file into them and refuses
what it does not know. `config/krake-config.yml` is the same in prose. Nothing here reads the environment at import.
"""

from crawl_lib.config.load import CONFIG_PATH_VARIABLE, find_config_path, from_mapping, load_config, to_mapping
from crawl_lib.config.model import (
    BatchConfig,
    Config,
    CrawlConfig,
    ExportConfig,
    FetchConfig,
    FrontierConfig,
    HostConfig,
    InjectConfig,
    KeyStorageConfig,
    ParseConfig,
    QueueConfig,
    RuleConfig,
    ScratchConfig,
    SegmentConfig,
    UrlsConfig,
    WatermarksConfig,
)

__all__ = [
    "CONFIG_PATH_VARIABLE",
    "BatchConfig",
    "Config",
    "CrawlConfig",
    "ExportConfig",
    "FetchConfig",
    "FrontierConfig",
    "HostConfig",
    "InjectConfig",
    "KeyStorageConfig",
    "ParseConfig",
    "QueueConfig",
    "RuleConfig",
    "ScratchConfig",
    "SegmentConfig",
    "UrlsConfig",
    "WatermarksConfig",
    "find_config_path",
    "from_mapping",
    "load_config",
    "to_mapping",
]
