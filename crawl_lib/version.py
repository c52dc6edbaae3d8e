"""The version of Krake, as it stands in WARC records, manifests and the User-Agent header."""

VERSION = "0.1.0"
