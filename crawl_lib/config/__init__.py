"""The frozen, typed config of a crawl.

`model` holds the dataclasses (every option, its unit and default), `load` reads a YAML file into them and refuses
what it does not know, `place` finds that file. `config/krake-config.yml` is the same in prose. Nothing here reads the
environment at import.
"""

from crawl_lib.config.agreement import differences, shared_options
from crawl_lib.config.load import (
    from_mapping,
    is_sqlite_server,
    load_config,
    realtime_of,
    to_mapping,
)
from crawl_lib.config.model import (
    OUTPUT_TASKS,
    REQUISITE_KINDS,
    ChainsConfig,
    Config,
    DfsConfig,
    FetchConfig,
    FetcherConfig,
    GenerateConfig,
    HostConfig,
    IndexConfig,
    KeyStorageConfig,
    LinkRankConfig,
    PageRankConfig,
    ParseConfig,
    Pattern,
    PolicyConfig,
    RetryConfig,
    RuleConfig,
    ScheduleRuleConfig,
    ScoringConfig,
    ScratchConfig,
    SearchConfig,
    SegmentConfig,
    StepConfig,
    TrapsConfig,
    UrlsConfig,
    WatermarksConfig,
)
from crawl_lib.config.order import FIFO
from crawl_lib.config.place import (
    CONFIG_PATH_VARIABLE,
    DEFAULT_CONFIG,
    configs_in,
    find_config_path,
    short_path,
)
