-- In how many runs each context of the last k = 1 … 5 tokens occurs, and how many of those failed.
--
-- tokens(run, step, token) and runs(run, failed) as in prefix_counts.sql; $orders is the longest k.
-- A run counts once for a context, however often it comes back to it. Each token is hashed with its
-- distance from the end as ONE number, see prefix_counts.sql.
WITH last_five AS (
    SELECT run, step, failed, [token, lag(token, 1) OVER w, lag(token, 2) OVER w,
                               lag(token, 3) OVER w, lag(token, 4) OVER w] AS last
    FROM tokens JOIN runs USING (run)
    WHERE failed IS NOT NULL
    WINDOW w AS (PARTITION BY run ORDER BY step)
),
hashed AS (
    SELECT run, step, failed,
           (hash(last[1]::BIGINT) >> 1)::BIGINT AS h1,
           (hash((1::BIGINT << 32) | last[2]::BIGINT) >> 1)::BIGINT AS h2,
           (hash((2::BIGINT << 32) | last[3]::BIGINT) >> 1)::BIGINT AS h3,
           (hash((3::BIGINT << 32) | last[4]::BIGINT) >> 1)::BIGINT AS h4,
           (hash((4::BIGINT << 32) | last[5]::BIGINT) >> 1)::BIGINT AS h5
    FROM last_five
),
contexts AS (
    SELECT run, step, failed, unnest([1, 2, 3, 4, 5]) AS k,
           unnest([h1, xor(h1, h2), xor(xor(h1, h2), h3), xor(xor(h1, h2), xor(h3, h4)),
                   xor(xor(xor(h1, h2), xor(h3, h4)), h5)]) AS context
    FROM hashed
),
once AS (
    SELECT k, context, run, any_value(failed) AS failed, min(step) AS step
    FROM contexts
    WHERE k <= $orders AND k <= step + 1
    GROUP BY k, context, run
)
SELECT k, context, count(*) AS n, sum(failed)::BIGINT AS failed, min(run) AS example,
       arg_min(step, run) AS example_step
FROM once
GROUP BY k, context
