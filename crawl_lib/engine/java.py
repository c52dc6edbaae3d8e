"""The Java of Spark, and its needs for a secured HDFS.

Spark reads `hdfs://` by Hadoop's own client, not by ours. Hadoop's client takes the ticket from the same cache, if the
cache is a file. (GSSAPI also gets a ticket by a keytab, KRB5_CLIENT_KTNAME, and leaves the ticket in the cache.) All
other settings come from the cluster's core-site.xml and hdfs-site.xml, or from options `spark.hadoop.*` of
spark-defaults.conf.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.version import in_checkout

LEAST_VERSION = 17
NEEDED = f"batch.engine: spark needs Java {LEAST_VERSION} or newer"
REMEDY = "install Java and set JAVA_HOME, or set batch.engine: duckdb"
_AUTHENTICATION, _PRINCIPAL = "hadoop.security.authentication", "dfs.namenode.kerberos.principal"


def require_engine(config: Config) -> None:
    """Check that a chosen Spark can run here.

    Raises ConfigError if its extra or Java is missing.
    """
    if config.batch.engine == "spark":
        if None in (find_spec("pyspark"), find_spec("py4j")):
            command = "make setup-spark" if in_checkout() else "pip install 'krake[spark]'"
            raise ConfigError(
                f"batch.engine: spark needs the extra `spark`, which is not installed: run `{command}`, or set"
                " batch.engine: duckdb"
            )
        check_java()


def check_java() -> None:
    """Check Java's version.

    Raises ConfigError without Java, or for a version that is too old for Spark.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise ConfigError(
            f"{NEEDED}: none is in {f'JAVA_HOME ({home})' if home else 'PATH'}; {REMEDY}"
        )
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{NEEDED}: {java} cannot be run: {error}; {REMEDY}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) < LEAST_VERSION:
        version = found[1] if found else "of an unknown version"
        raise ConfigError(f"{NEEDED}: {java} is {version}; {REMEDY}")


def is_secured(config: Config) -> bool:
    """Say whether Java must show a ticket.

    With Krake's copies of files, Spark needs no ticket.
    """
    return config.dfs.security == "kerberos" and config.spark.dfs_url is not None


def java_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Java's option for the first file in KRB5_CONFIG.

    Java does not know the variable, and finds only /etc/krb5.conf by itself.
    """
    first = environment.get("KRB5_CONFIG", "").split(":")[0]
    return {"java.security.krb5.conf": first} if first else {}


def check_kerberos(jvm: Any, dfs_url: str) -> None:
    """Check Java's Kerberos settings.

    Raises ConfigError if Java does not know that HDFS is secured, the namenodes' principal, or the user. Without this
    check Hadoop's client would try for a minute, and then report a broken pipe. Foreign exceptions.
    """
    jvm.org.apache.hadoop.hdfs.HdfsConfiguration.init()  # reads hdfs-site.xml
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    is_there = {
        _AUTHENTICATION: users.isSecurityEnabled(),
        _PRINCIPAL: jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf().get(_PRINCIPAL),
    }
    if missing := [name for name, found in is_there.items() if not found]:
        raise ConfigError(
            f"spark.dfs_url: {dfs_url}: HDFS is secured (dfs.security: kerberos), and Hadoop's configuration for Spark"
            f" has no {' and no '.join(missing)}: set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml"
            " and hdfs-site.xml, or spark.dfs_url: null (Spark then reads copies)"
        )
    user = users.getLoginUser()
    if not user.hasKerberosCredentials() and user.getCredentials().numberOfTokens() == 0:
        raise ConfigError(
            f"spark.dfs_url: {dfs_url}: Java finds no Kerberos ticket: KRB5CCNAME has to name a file (FILE:/path, not"
            " KCM: or KEYRING:), or spark-defaults.conf spark.kerberos.keytab and spark.kerberos.principal"
        )
