-- What a workspace knows of its steps. The first program's name alone says what was done,
-- for the vocabulary's whole reading of millions of texts would take minutes.
SELECT s.run_id, r.task_id, r.outcome, s.step::BIGINT AS step,
       CASE WHEN $did THEN coalesce(w.class, $other)
            WHEN s.exit_code = 0 THEN 0
            WHEN s.exit_code <> 0 THEN 1
            WHEN s.observation = '' THEN 2
            ELSE 3 END AS class,
       NULL::DOUBLE AS risk
FROM steps s
JOIN runs r ON r.run_id = s.run_id AND NOT r.hidden AND r.kind IS DISTINCT FROM 'extraction'
LEFT JOIN (SELECT unnest($words::VARCHAR[]) AS word, unnest($classes::BIGINT[]) AS class) w
       ON $did AND w.word = split_part(
           ltrim(CASE WHEN starts_with(s.action, 'cd ') THEN split_part(s.action, '&&', 2)
                      ELSE s.action END), ' ', 1)
WHERE NOT coalesce(s.inherited, false)
