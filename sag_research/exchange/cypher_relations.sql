-- One portion of the typed relations: how often each was read, in how many runs, and where first.
WITH renamed AS (
    SELECT unnest($old::VARCHAR[]) AS entity_id, unnest($new::VARCHAR[]) AS canonical
),
named AS (
    SELECT coalesce(a.canonical, r.source_id) AS source_id, r.type,
           coalesce(b.canonical, r.target_id) AS target_id, r.run_id, r.position, r.rule
    FROM relations r LEFT JOIN renamed a ON a.entity_id = r.source_id
         LEFT JOIN renamed b ON b.entity_id = r.target_id
    WHERE r.run_id IN (SELECT unnest($runs::VARCHAR[]))
),
counted AS (
    SELECT source_id, type, target_id, count(*) AS n, count(DISTINCT run_id) AS n_runs,
           min({'run_id': run_id, 'position': position, 'rule': rule}) AS first
    FROM named
    WHERE md5_number_lower(concat_ws('|', source_id, type, target_id)) % $parts = $part
    GROUP BY source_id, type, target_id
)
SELECT source_id, target_id, n, n_runs, first.run_id AS first_run,
       first.position AS first_position, first.rule AS rule, type
FROM counted
ORDER BY source_id, type, target_id
