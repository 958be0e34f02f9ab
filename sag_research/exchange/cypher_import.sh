#!/bin/sh
# Loads this folder into a new Neo4j database, offline: sh import.sh [DATABASE]
# Afterwards, in the running database: constraints.cypher, then the questions of deadend.cypher.
set -eu
cd "$(dirname "$0")"
exec neo4j-admin database import full "${1:-neo4j}" --multiline-fields=true \
  --nodes=Run=runs.csv --nodes=Event=events.csv --nodes=Entity=entities.csv \
  --relationships=CONTAINS=contains.csv --relationships=NEXT=next.csv \
  --relationships=CAUSED_BY=caused_by.csv --relationships=FORKED_FROM=forked_from.csv \
  --relationships=PROCESSED=processed.csv --relationships=MUTATED=mutated.csv \
  --relationships=relations.csv
