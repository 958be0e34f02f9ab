#!/bin/sh
# Loads this folder into a new database of Neo4j 5 or later, offline:
#
#     sh import.sh [DATABASE]          # default: neo4j
#
# Set NEO4J_ADMIN where neo4j-admin is not on the PATH. The database must be empty, or not there
# yet; then create it (CREATE DATABASE name), and run schema.cypher in it:
#
#     cypher-shell -d DATABASE -f schema.cypher
#
# Quotes are doubled, a backslash is a backslash, an empty cell is unknown and "" is an empty text.
# The buffer holds the longest row of these files.
set -eu
cd "$(dirname "$0")"
exec "${NEO4J_ADMIN:-neo4j-admin}" database import full "${1:-neo4j}" \
  --id-type=string \
  --delimiter=, \
  --quote='"' \
  --legacy-style-quoting=false \
  --ignore-empty-strings=false \
  --trim-strings=false \
  --multiline-fields={multiline} \
  --read-buffer-size={buffer} \
  --nodes=nodes_run.csv \
  --nodes=nodes_event.csv \
  --nodes=nodes_entity.csv \
  --relationships=contains.csv \
  --relationships=next.csv \
  --relationships=caused_by.csv \
  --relationships=forked_from.csv \
  --relationships=mentions.csv \
  --relationships=relations.csv
