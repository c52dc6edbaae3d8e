"""Tests on real servers: HDFS from the Maven artefacts of Apache Hadoop, and more. `make test-cluster` runs them."""
