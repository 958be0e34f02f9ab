SELECT source_id, type, target_id, count(*) AS n
FROM relations WHERE run_id IN (SELECT unnest(?))
GROUP BY ALL ORDER BY source_id, type, target_id
