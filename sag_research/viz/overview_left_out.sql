-- Runs that the picture does not show, each under one reason.
SELECT CASE WHEN r.kind IS NOT DISTINCT FROM 'extraction' THEN 'extractions'
            WHEN r.hidden THEN 'hidden'
            ELSE 'without a step of their own' END AS why,
       count(*) AS n
FROM runs r
WHERE r.kind IS NOT DISTINCT FROM 'extraction' OR r.hidden
   OR NOT EXISTS (FROM steps s WHERE s.run_id = r.run_id AND NOT coalesce(s.inherited, false))
GROUP BY why ORDER BY why
