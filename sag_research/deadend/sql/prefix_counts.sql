-- How many runs begin with each prefix, and how many of those failed.
--
-- tokens(run, step, token): integers; step counts from 0. runs(run, failed): 1, 0, or NULL where the
-- outcome is unknown; those runs are left out.
--
-- A prefix is the XOR of a hash for each of its steps. The hash takes ONE number, made of step and
-- token: DuckDB combines the hashes of several arguments by an operation under which
-- h(0, a) XOR h(1, b) = h(0, b) XOR h(1, a), and prefixes that differ in order alone would be one.
-- Signed, because a Python int bound to an unsigned column turns off DuckDB's indexes.
WITH chained AS (
    SELECT run, step, failed,
           bit_xor((hash((step::BIGINT << 32) | token::BIGINT) >> 1)::BIGINT)
               OVER (PARTITION BY run ORDER BY step) AS prefix
    FROM tokens JOIN runs USING (run)
    WHERE failed IS NOT NULL
)
SELECT step + 1 AS depth, prefix, count(*) AS n, sum(failed)::BIGINT AS failed, min(run) AS example
FROM chained
GROUP BY step, prefix
