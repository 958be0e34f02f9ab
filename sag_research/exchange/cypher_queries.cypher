// Three questions to the graph. The first two take a run:  :param run => 'task~digest'
// Runs of unknown outcome, forks, hidden runs and copied steps count nowhere; `n` runs stand
// behind each rate, and `low` and `high` are the ends of its 95 % interval (Wilson).

// 1. Is this run in a dead end? Of the earlier runs that share two entities or more with it, how
//    many failed. No row: there is no such run, and nothing is known.
//    Without the line `p.seq < r.seq`, later runs count, too.
MATCH (r:Run {run_id: $run})-[:CONTAINS]->(e:Event)-[:PROCESSED|MUTATED]->(x:Entity)
WHERE NOT e.inherited
WITH DISTINCT r, x
MATCH (x)<-[:PROCESSED|MUTATED]-(f:Event)<-[:CONTAINS]-(p:Run)
WHERE p.counted AND p.outcome IN ['success', 'failure'] AND NOT f.inherited
  AND p.run_id <> r.run_id
  AND p.seq < r.seq
WITH DISTINCT p, x
WITH p, count(x) AS shared
WHERE shared >= 2
WITH count(p) AS n, sum(CASE WHEN p.outcome = 'failure' THEN 1 ELSE 0 END) AS failed
WHERE n > 0
WITH n, failed, 1.0 * failed / n AS rate
RETURN n, failed, rate,
       (rate + 1.9207294103 / n
         - 1.9599639845 * sqrt(rate * (1 - rate) / n + 0.9603647052 / (n * n)))
         / (1 + 3.8414588207 / n) AS low,
       (rate + 1.9207294103 / n
         + 1.9599639845 * sqrt(rate * (1 - rate) / n + 0.9603647052 / (n * n)))
         / (1 + 3.8414588207 / n) AS high,
       rate >= 0.75 AS dead_end;

// 2. Which pairs of its entities do earlier runs name that mostly failed?
MATCH (r:Run {run_id: $run})-[:CONTAINS]->(e:Event)-[:PROCESSED|MUTATED]->(x:Entity)
WHERE NOT e.inherited
WITH DISTINCT r, x
MATCH (x)<-[:PROCESSED|MUTATED]-(f:Event)<-[:CONTAINS]-(p:Run)
WHERE p.counted AND p.outcome IN ['success', 'failure'] AND NOT f.inherited
  AND p.run_id <> r.run_id
  AND p.seq < r.seq
WITH DISTINCT p, x.entity_id AS name
WITH p, collect(name) AS names
UNWIND names AS a
UNWIND names AS b
WITH p, a, b
WHERE a < b
WITH a, b, count(p) AS n, sum(CASE WHEN p.outcome = 'failure' THEN 1 ELSE 0 END) AS failed
WITH a, b, n, failed, 1.0 * failed / n AS rate
WHERE n >= 5 AND rate >= 0.75
RETURN a, b, n, failed, rate,
       (rate + 1.9207294103 / n
         - 1.9599639845 * sqrt(rate * (1 - rate) / n + 0.9603647052 / (n * n)))
         / (1 + 3.8414588207 / n) AS low,
       (rate + 1.9207294103 / n
         + 1.9599639845 * sqrt(rate * (1 - rate) / n + 0.9603647052 / (n * n)))
         / (1 + 3.8414588207 / n) AS high
ORDER BY rate DESC, n DESC, a, b;

// 3. What did runs do in the step after one that shows an error, and how did these runs end? What
//    they did: the tool that was called, and whether the step changed an entity.
MATCH (p:Run)-[:CONTAINS]->(e:Event)-[:PROCESSED]->(x:Entity {kind: 'Error'})
WHERE p.counted AND p.outcome IN ['success', 'failure'] AND NOT e.inherited
WITH DISTINCT p, x, e
MATCH (p)-[:CONTAINS]->(f:Event)
WHERE f.step = e.step + 1 AND NOT f.inherited
OPTIONAL MATCH (f)-[m:MUTATED]->(:Entity)
WITH p, x, f, count(m) > 0 AS changed
WITH DISTINCT p, x.entity_id AS error, changed,
     CASE WHEN f.tool <> '' THEN f.tool ELSE 'none' END AS tool
WITH error, tool, changed, count(p) AS n,
     sum(CASE WHEN p.outcome = 'failure' THEN 1 ELSE 0 END) AS failed
WITH error, tool, changed, n, failed, 1.0 * failed / n AS rate
WHERE n >= 5
RETURN error, tool, changed, n, failed, rate,
       (rate + 1.9207294103 / n
         - 1.9599639845 * sqrt(rate * (1 - rate) / n + 0.9603647052 / (n * n)))
         / (1 + 3.8414588207 / n) AS low,
       (rate + 1.9207294103 / n
         + 1.9599639845 * sqrt(rate * (1 - rate) / n + 0.9603647052 / (n * n)))
         / (1 + 3.8414588207 / n) AS high
ORDER BY error, rate DESC, n DESC, tool, changed;
