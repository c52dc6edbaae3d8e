#!/bin/sh
# The checks that docker-compose.yml asks for: the server takes connections, and has its storage engine.
exec mariadb --host=127.0.0.1 --user="$MARIADB_USER" --password="$MARIADB_PASSWORD" --execute='SHOW ENGINES' > /dev/null
