"""Tests that start `docker-compose.yml` for real: `make test-compose`."""
