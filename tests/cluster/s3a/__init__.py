"""What an operator installs so that Spark reads `s3a://`: hadoop-aws, by Maven from `pom.xml`, into `target/s3a`."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from tests.cluster.hdfs import TARGET

HERE = Path(__file__).resolve().parent
JARS = TARGET / "s3a"
LIMIT_S = 600.0
SPARKS_OWN = re.compile(r"netty-(?!nio-client)|slf4j-|commons-")
"""Jars that Spark has in versions of its own."""


def defaults(address: str) -> str:
    """Return lines of spark-defaults.conf for an object store at an address; jars are fetched if they are missing."""
    with (HERE / "pom.xml").open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        [own] = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
        version = own.stem.removeprefix("hadoop-client-api-")
        if not (JARS / f"hadoop-aws-{version}.jar").exists():
            shutil.rmtree(JARS, ignore_errors=True)
            goal = [
                "dependency:copy-dependencies",
                f"-DoutputDirectory={JARS}",
                f"-Dhadoop.version={version}",
            ]
            command = ["mvn", "-q", "-B", "-ntp", *goal]
            done = subprocess.run(
                command, cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S
            )
            assert done.returncode == 0, f"Maven cannot resolve hadoop-aws:\n{done.stdout[-2000:]}"
    jars = ":".join(
        str(jar) for jar in sorted(JARS.glob("*.jar")) if not SPARKS_OWN.match(jar.name)
    )
    return f"""spark.driver.extraClassPath {jars}
spark.hadoop.fs.s3a.endpoint {address}
spark.hadoop.fs.s3a.endpoint.region us-east-1
spark.hadoop.fs.s3a.path.style.access true
"""
