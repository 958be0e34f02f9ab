// Finished runs that met at least two of these names, and how they ended; $names is a list.
MATCH (run:Run)-[:CONTAINS]->(:Event)-[:PROCESSED|MUTATED]->(entity:Entity)
WHERE entity.name IN $names AND run.outcome <> 'unknown'
WITH run, count(DISTINCT entity.name) AS shared
WHERE shared >= 2
RETURN run.run_id AS run_id, run.outcome AS outcome, shared
ORDER BY shared DESC, run_id;
