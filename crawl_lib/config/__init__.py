"""The frozen, typed config of a crawl.

`model` holds the dataclasses (every option, its unit and default), `load` reads a YAML file into them and refuses
what it does not know, `place` finds that file. `config/krake-config.yml` is the same in prose. Nothing here reads the
environment at import.
"""

from crawl_lib.config.agreement import shared_options
from crawl_lib.config.load import (
    from_mapping,
    load_config,
)
from crawl_lib.config.model import (
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
from crawl_lib.config.place import (
    ConfigPlace,
    short_path,
)
