SELECT run_id, position, kind, scope, name, role, count(*) AS n
FROM mentions WHERE run_id IN (SELECT unnest(?))
GROUP BY ALL ORDER BY run_id, position, kind, scope, name, role
