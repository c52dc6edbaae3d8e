"""Tests on real servers: HDFS from the Maven artefacts of Apache Hadoop. `make test-cluster` runs them."""
