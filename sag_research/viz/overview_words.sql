-- The words that actions begin with, most frequent first.
SELECT split_part(ltrim(CASE WHEN starts_with(action, 'cd ') THEN split_part(action, '&&', 2)
                             ELSE action END), ' ', 1) AS word, count(*) AS n
FROM steps GROUP BY word ORDER BY n DESC, word LIMIT 2000
